"""The list of all conversations with a filter.

The rule: one list widget whatever their number, and nothing is deleted here: the screen only says what was asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import ClassVar, Literal

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input

from kvchat.prompt.conversation import Conversation
from kvchat.text.format import counted, moment
from kvchat.ui.screens.filtering import FilterLine, highlighted, kept
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import RowList
from kvchat.ui.screens.tones import ACCENT, MARK_TONES, MUTED, content, joined, shown
from kvchat.ui.widgets.sidebar_rows import GLYPHS, WORDS, Mark

Picked = tuple[Literal["open", "delete"], str] | tuple[Literal["new"], None]


class ConversationPicker(ListModal[Picked]):
    """All conversations, newest first. Result: ("open", id), ("delete", id), ("new", None)."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+n", "new", "New conversation", show=False),
        Binding("delete", "delete", "Delete", show=False),
    ]

    def __init__(self, conversations: Sequence[Conversation], *, current: str | None = None,
                 mark: Callable[[str], Mark] = lambda _: "unknown", query: str = "",
                 now: datetime | None = None) -> None:
        """`mark` tells the mark of the conversation with this id."""
        super().__init__(classes="-list")
        self.heading = "Conversations"
        self.hints = (("enter", "open"), ("^N", "new"), ("del", "delete"), ("esc", "close"))
        self._conversations = conversations
        self._texts = [conversation.title.casefold() for conversation in conversations]
        self._current = current
        self._ask_mark = mark
        self._query = query
        self._now = now or datetime.fromtimestamp(time.time()).astimezone()
        self._kept: list[int] = []

    def body(self) -> Iterable[Widget]:
        yield FilterLine("filter by title", self._query)
        yield RowList(self._draw, tip=lambda row: f"{GLYPHS[self._mark(row)]}  {WORDS[self._mark(row)]}")

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._filter(self._query)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if event.value != self._query:
            self._filter(event.value)

    def _filter(self, query: str) -> None:
        self._query = query
        self._kept = kept(self._texts, query)
        rows = self.rows
        rows.empty = "No title matches. ^N begins a new conversation." if query.strip() else "No conversations yet."
        cursor = 0
        if not query.strip():
            cursor = next((row for row, index in enumerate(self._kept)
                           if self._conversations[index].id == self._current), 0)
        rows.show(len(self._kept), cursor=cursor)

    def _mark(self, row: int) -> Mark:
        return self._ask_mark(self._conversations[self._kept[row]].id)

    def _draw(self, index: int, width: int) -> Content:
        conversation = self._conversations[self._kept[index]]
        mark = self._mark(index)
        turns = counted(conversation.turns, "turn") if conversation.turns else "empty"
        right = content((f"{turns:>11}" if width >= 60 else "", MUTED),
                        (f"{moment(conversation.updated, self._now):>17}" if width >= 45 else "", MUTED))
        title = highlighted(content(shown(conversation.title, width)), self._query)
        state = "open" if conversation.id == self._current else "new answer" if conversation.unread else ""
        tail = content((f"  {state}", ACCENT)) if state else content()
        room = max(0, width - right.cell_length - 4 - tail.cell_length)
        left = content((GLYPHS[mark], MARK_TONES[mark]), " ") + title.truncate(room, ellipsis=True) + tail
        return joined(left, right, width)

    def choose(self, index: int) -> None:
        self.finish(("open", self._conversations[self._kept[index]].id))

    def action_new(self) -> None:
        self.finish(("new", None))

    def action_delete(self) -> None:
        if self.rows.cursor is not None:
            self.finish(("delete", self._conversations[self._kept[self.rows.cursor]].id))
