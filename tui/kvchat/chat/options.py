"""What a conversation is sent with: parameters, template options, the model; and the library of system prompts."""

from __future__ import annotations

from collections.abc import Mapping

from kvchat.chat.cache.tracker import CacheTracker
from kvchat.chat.conversations import Conversations
from kvchat.chat.ground import Ground
from kvchat.prompt.conversation import SavedPrompt
from kvchat.prompt.request import Parameters


class Options:
    """Sets the options of conversations."""

    def __init__(self, ground: Ground, conversations: Conversations, tracker: CacheTracker) -> None:
        self._ground = ground
        self._conversations = conversations
        self._tracker = tracker

    async def set_parameters(self, id: str, parameters: Parameters) -> None:
        await self._conversations.update(self._conversations.load(id), parameters=parameters)

    async def set_template_options(self, id: str, options: Mapping[str, object]) -> None:
        """Options of the chat template. They are part of the prefix: the next turn may prefill everything again."""
        conversation = self._conversations.load(id)
        self._tracker.did(conversation, "template")
        await self._conversations.update(conversation, template_options=dict(options))

    async def set_model(self, id: str, model: str) -> None:
        conversation = self._conversations.load(id)
        self._tracker.did(conversation, "model")
        await self._conversations.update(conversation, model=model)

    def prompts(self) -> list[SavedPrompt]:
        """The library of system prompts, by name."""
        return self._ground.store.prompts()

    async def save_prompt(self, prompt: SavedPrompt) -> None:
        await self._ground.keeper.write(lambda: self._ground.store.save_prompt(prompt))

    async def delete_prompt(self, name: str) -> None:
        await self._ground.keeper.write(lambda: self._ground.store.delete_prompt(name))
