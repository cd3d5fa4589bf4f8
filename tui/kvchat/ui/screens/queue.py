"""The queue of a conversation as a list: its messages are edited, dropped, sent and put into another order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import ClassVar, Literal

from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from kvchat.chat.events import EventBus, QueueChanged, ServiceEvent
from kvchat.chat.turns.queue import MessageQueue, Queued
from kvchat.sanitize import one_line
from kvchat.ui.bindings import bindings
from kvchat.ui.runs import shown
from kvchat.ui.screens.kit import ACCENT, MUTED, ListModal, RowList, content

QueueAct = tuple[Literal["edit", "send"], Queued]


class QueueScreen(ListModal[QueueAct]):
    """The messages that wait in a conversation. Result: one to edit, or to send now."""

    DEFAULT_CSS = "QueueScreen RowList { margin-top: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("queue")]

    def __init__(
        self,
        queue: MessageQueue,
        conversation: str,
        events: EventBus,
        *,
        title: str,
        words: str,
        drop: Callable[[Queued], Awaitable[object]],
    ) -> None:
        """`words`: what holds it, or when it is sent. `drop` takes a message out for good."""
        super().__init__(classes="-list")
        self.heading = f"Queue · {one_line(title, 60)}"
        self.hints = (
            ("rows.choose", "edit"),
            ("queue.send", "send"),
            ("queue.drop", "drop"),
            ("queue.earlier queue.later", "move"),
            ("dialog.close", "close"),
        )
        self._queue = queue
        self._conversation = conversation
        self._events = events
        self._words = words
        self._drop = drop
        self._items: Sequence[Queued] = ()

    def body(self) -> Iterable[Widget]:
        yield Static(content((self._words, MUTED)), classes="words")
        yield RowList(self._draw, empty="Nothing waits here.")

    def on_mount(self) -> None:
        self.hear(self._events, self._heard)
        self._show(0)

    def _heard(self, event: ServiceEvent) -> None:
        if event == QueueChanged(self._conversation):
            under = self._under_cursor()
            self._show(self.rows.cursor or 0, under)

    def _show(self, cursor: int, under: Queued | None = None) -> None:
        """The messages as they are now; the cursor stays on the same one."""
        self._items = self._queue.of(self._conversation)
        at = next((at for at, one in enumerate(self._items) if under is not None and one.id == under.id), cursor)
        self.rows.show(len(self._items), cursor=min(at, max(0, len(self._items) - 1)))

    def _under_cursor(self) -> Queued | None:
        at = self.rows.cursor
        return self._items[at] if at is not None and at < len(self._items) else None

    def _draw(self, index: int, width: int) -> Content:
        return content(
            (f"{index + 1:>{len(str(len(self._items)))}}  ", ACCENT), shown(self._items[index].question.text, width)
        )

    def choose(self, index: int) -> None:
        self.finish(("edit", self._items[index]))

    def action_edit(self) -> None:
        self.action_choose()

    def action_send(self) -> None:
        if (item := self._under_cursor()) is not None:
            self.finish(("send", item))

    async def action_drop(self) -> None:
        if (item := self._under_cursor()) is not None:
            await self._drop(item)

    async def action_shift(self, step: int) -> None:
        if (item := self._under_cursor()) is not None:
            await self._queue.move(self._conversation, item, step)
