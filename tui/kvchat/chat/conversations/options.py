"""What a conversation is sent with: parameters, template options, the model; and the library of system prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.prompt.conversation import SavedPrompt
from kvchat.prompt.request import Parameters
from kvchat.text.options import EFFORTS, THINKING, THINKING_USAGE, no_thinking

if TYPE_CHECKING:
    from kvchat.backends.dialect import TemplateFacts


_NEXT: Mapping[object, str] = {None: "on", True: "off", False: "auto"}


class ThinkingChange(Struct, frozen=True):
    """What a word about thinking means for a conversation."""

    word: str
    options: Mapping[str, object]
    """The template's options with it."""
    facts: TemplateFacts | None
    """What the model's template does; None: unknown."""

    @property
    def is_known(self) -> bool | None:
        """Whether the model has such a switch; None: unknown."""
        if self.facts is None:
            return None
        return self.facts.takes_effort if self.word in EFFORTS else self.facts.switches_thinking

    @property
    def lacks(self) -> str:
        """What the model lacks for it, in a sentence; empty: nothing, or unknown."""
        if self.is_known is not False or self.word == "auto" or self.facts is None:
            return ""
        return no_thinking(
            self.word, takes_effort=bool(self.facts.takes_effort), switches=bool(self.facts.switches_thinking)
        )


class Options:
    """Sets the options of conversations."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def set_parameters(self, id: str, parameters: Parameters) -> None:
        await self._core.conversations.update(self._core.conversations.load(id), parameters=parameters)

    async def set_template_options(self, id: str, options: Mapping[str, object]) -> None:
        """Options of the chat template. They are part of the prefix: the next turn may prefill everything again."""
        conversation = self._core.conversations.load(id)
        self._core.tracker.did(conversation, "template")
        await self._core.conversations.update(conversation, template_options=dict(options))

    async def thinking(self, id: str, word: str = "") -> ThinkingChange:
        """What `on`, `off`, `auto` or an effort would change; an empty `word` is the next of the first three. Raises
        ChatError for another word."""
        before = self._core.conversations.load(id).record.template_options
        word = word.strip().lower() or _NEXT.get(before.get("enable_thinking"), "auto")
        if word not in THINKING:
            raise ChatError.of(THINKING_USAGE)
        options = {name: value for name, value in before.items() if name not in ("enable_thinking", "reasoning_effort")}
        if word in EFFORTS:
            options["reasoning_effort"] = word
        elif word != "auto":
            options["enable_thinking"] = word == "on"
        return ThinkingChange(word, options, await self._core.tracker.template_facts(id))

    async def set_model(self, id: str, model: str) -> None:
        conversation = self._core.conversations.load(id)
        self._core.tracker.did(conversation, "model")
        await self._core.servers.move(conversation, self._core.servers.link(id).kept_name, model)

    def prompts(self) -> list[SavedPrompt]:
        """The library of system prompts, by name."""
        return self._core.store.prompts()

    async def save_prompt(self, prompt: SavedPrompt) -> None:
        await self._core.writer.write(lambda: self._core.store.save_prompt(prompt))

    async def delete_prompt(self, name: str) -> None:
        await self._core.writer.write(lambda: self._core.store.delete_prompt(name))
