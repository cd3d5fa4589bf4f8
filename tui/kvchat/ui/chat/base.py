"""What all parts of the main screen stand on: the service, the open conversation, and saying things."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeVar

from textual.getters import query_one
from textual.screen import Screen

from kvchat.chat.errors import ChatError
from kvchat.display import clean
from kvchat.numbers import count
from kvchat.ui.widgets.composer import Composer
from kvchat.ui.widgets.sidebar import Sidebar
from kvchat.ui.widgets.statusline import Header, KeyBar, StatusLine
from kvchat.ui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from kvchat.chat.live import OpenConversation
    from kvchat.chat.service import ChatService
    from kvchat.ui.app import KvchatApp
    from kvchat.ui.screens.modal import Modal

Severity = Literal["information", "warning", "error"]
T = TypeVar("T")


class ChatBase(Screen[None]):
    """The main screen without its actions."""

    app: KvchatApp
    header = query_one(Header)
    sidebar = query_one(Sidebar)
    transcript = query_one(Transcript)
    composer = query_one(Composer)
    status = query_one(StatusLine)
    keybar = query_one(KeyBar)

    def __init__(self, service: ChatService) -> None:
        super().__init__()
        self.service = service
        self.current: OpenConversation | None = None
        self.show_sidebar = True
        """Whether the list stands beside the conversation where there is room for it."""
        self.editing: str | None = None
        """The question that the composer edits, if it does."""

    @property
    def conversation(self) -> OpenConversation:
        """The open conversation. Only called while one is open."""
        assert self.current is not None
        return self.current

    def say(self, text: str, severity: Severity = "information") -> None:
        """A sentence in a corner of the screen, for a few seconds; it takes the place of the one before."""
        self.app.clear_notifications()
        self.notify(clean(text), severity=severity, markup=False, timeout=8 if severity == "error" else 5)

    async def attempt(self, act: Awaitable[object]) -> bool:
        """Do `act`; what cannot be done is said. Whether it was done."""
        try:
            await act
        except ChatError as error:
            self.say(str(error), "warning")
            return False
        return True

    async def ask(self, screen: Modal[T]) -> T | None:
        """Show a modal screen and wait for its answer; None at once when one of its kind is open already. Only in a
        worker, and never in an exclusive one: a screen whose worker was cancelled could not give its answer."""
        if any(type(shown) is type(screen) for shown in self.app.screen_stack):
            return None
        with self.app.key_queue.coming():
            await self.app._flush_next_callbacks()
            answer = self.app.push_screen(screen, wait_for_dismiss=True)
        return await asyncio.shield(answer)  # who waits may be cancelled, and the screen still has to close

    def now(self) -> datetime:
        return self.service.clock()

    def model(self) -> str:
        """The model that would answer here."""
        chosen = self.current.record.model if self.current else ""
        return chosen or (self.service.servers.info.model if self.service.servers.info else "")

    def in_words(self, tokens: int) -> str:
        return f"{count(tokens)} tokens"

    def target(self, node: str | None = None) -> str | None:
        """The message an action is about: `node` if it is of this conversation (keys may come faster than the screen
        changes), the selected one, else the last."""
        if self.current is None or (node is not None and node not in self.current.tree):
            return None
        chosen = node or self.transcript.selected
        if chosen is not None and chosen in self.current.tree:
            return chosen
        path = self.current.path()
        return path[-1].id if len(path) > 1 else None

    async def open_conversation(self, id: str, node: str | None = None) -> None:
        """Show a conversation, at a message if one is given."""
        raise NotImplementedError

    async def may_leave_this_machine(self) -> bool:
        """Whether the person agrees that this conversation goes to the server. Only in a worker."""
        raise NotImplementedError
