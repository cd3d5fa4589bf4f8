"""What an act needs of the surface on which the user asks for it: the app, or plain mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.chat.service import ChatService


class Surface(Protocol):
    """Says, asks and shows. What cannot be done is raised to the surface, which says why."""

    @property
    def service(self) -> ChatService: ...

    @property
    def conversation(self) -> OpenConversation:
        """The open conversation. Only called while one is open."""
        ...

    @property
    def marked(self) -> str | None:
        """The message of the open conversation that the user marked, if any."""
        ...

    def say(self, sentence: str, *, warning: bool = False, shown: bool = False) -> None:
        """Say a sentence, its last period left out where it ends in none. `shown`: a screen shows it by itself."""
        ...

    def way_to(self, action: str) -> str:
        """How the user does an action here: its key, or its slash command."""
        ...

    async def open(self, id: str, node: str | None = None) -> None:
        """Show a conversation, at a message if one is given. Raises ChatError."""
        ...

    async def pick(self, action: str, about: str = "") -> str | None:
        """Have the user choose what could have been written behind the slash command of an action; None: they did not,
        or the choices were listed. `about`: the conversation, or what was written."""
        ...

    def act_done(self) -> None:
        """An act was done that undo takes back, before what was typed until now."""
        ...

    def act_undone(self) -> None:
        """That act is taken back."""
        ...
