"""Plain mode as the surface of acts: sentences, questions, what there is to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.commands.actions import BY_ID

if TYPE_CHECKING:
    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.chat.service import ChatService
    from kvchat.plain.chat import PlainChat


class PlainSurface:
    """As `commands.acts.surface.Surface`."""

    marked = None
    """There is no cursor to mark a message with."""

    def __init__(self, chat: PlainChat) -> None:
        self._chat = chat

    @property
    def service(self) -> ChatService:
        return self._chat.service

    @property
    def conversation(self) -> OpenConversation:
        return self._chat.conversation

    def say(self, sentence: str, *, warning: bool = False, shown: bool = False) -> None:
        self._chat.speaker.say(sentence if sentence[-1:] in ".?!:" else f"{sentence}.")

    def way_to(self, action: str) -> str:
        return f"/{BY_ID[action].slash}"

    async def open(self, id: str, node: str | None = None) -> None:
        await self._chat.open(id, node)

    async def pick(self, action: str, about: str = "") -> str | None:
        picks = {"rename": self._title, "tag": self._tags}
        return await picks[action](about)

    async def _title(self, id: str) -> str | None:
        return await self._chat.speaker.asked("Title: ", self.service.conversations.find(id).title)

    async def _tags(self, id: str) -> None:
        tags = self.service.conversations.find(id).tags
        self.say(f"Tags: {', '.join(tags)}" if tags else "No tags. /tag NAME puts one on this conversation.")

    def act_done(self) -> None:
        """What is typed is taken back at the prompt, never by /undo."""

    def act_undone(self) -> None: ...
