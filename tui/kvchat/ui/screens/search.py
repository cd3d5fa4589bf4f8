"""Searching all conversations, with results as one types.

The rule: a search starts when the typing pauses, and an answer to an older query is never shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import ClassVar, NamedTuple, Protocol

from textual import on, work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from kvchat.prompt.conversation import SearchHit
from kvchat.prompt.message import Role
from kvchat.sanitize import one_line
from kvchat.text.format import counted, moment
from kvchat.ui.screens.filtering import FilterLine
from kvchat.ui.screens.modal import ListModal, hint_line
from kvchat.ui.screens.rows import RowList
from kvchat.ui.screens.tones import MATCH, MUTED, STRONG, USER, Part, content, joined, shown

PAUSE_SECONDS = 0.12
LIMIT = 200

ROLES: dict[str, str] = {Role.USER: "you", Role.ASSISTANT: "answer", Role.SYSTEM: "system"}


class Search(Protocol):
    """How the screen searches: `Conversations.search`."""

    async def __call__(self, query: str, limit: int = 50, ranked: bool = False) -> Sequence[SearchHit]: ...


class Found(NamedTuple):
    """The message a person chose from the results."""

    conversation: str
    node: str
    query: str


def snippet(text: str) -> Content:
    """A snippet on one line, what matched (between \\x02 and \\x03) marked."""
    parts: list[Part] = []
    for piece in text.split("\x02"):
        matched, end, rest = piece.partition("\x03")
        if not parts and not text.startswith("\x02"):
            matched, end, rest = "", "", piece.replace("\x03", "")
        parts += [(_flat(matched), MATCH) if end else _flat(matched), _flat(rest.replace("\x03", ""))]
    return content(*parts)


def _flat(text: str) -> str:
    """`text` on one line with the blanks at its ends kept, for they stand before and after a match."""
    if not text.strip():
        return " " if text else ""
    before, after = text[:1].isspace(), text[-1:].isspace()
    return " " * before + one_line(text) + " " * after


class SearchScreen(ListModal[Found]):
    """Messages that match, under the titles of their conversations. Result: Found."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+r", "rank", "Order", show=False)]

    def __init__(self, search: Search, *, query: str = "", now: datetime | None = None) -> None:
        super().__init__(classes="-list -wide")
        self.heading = "Search all conversations"
        self.hints = self._keys(False)
        self._search = search
        self._query = query
        self._now = now or datetime.fromtimestamp(time.time()).astimezone()
        self._ranked = False
        self._lines: list[SearchHit | str] = []
        """A hit, or the title above the hits of a conversation."""
        self._days: dict[int, str] = {}
        self._shown_query = ""
        self._timer: Timer | None = None

    @staticmethod
    def _keys(ranked: bool) -> tuple[tuple[str, str], ...]:
        return (("enter", "open"), ("^R", "newest first" if ranked else "best first"), ("esc", "close"))

    def body(self) -> Iterable[Widget]:
        yield FilterLine("words to look for", self._query)
        yield RowList(self._draw)

    def on_mount(self) -> None:
        query = self.query_one(Input)
        query.focus()
        self.rows.empty = "Type a word: every message of every conversation is searched."
        self.rows.show(0)
        if self._query:
            self._run(self._query)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if event.value == self._query:
            return
        self._query = event.value
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(PAUSE_SECONDS, lambda: self._run(self._query))

    @work(exclusive=True, group="search", exit_on_error=False)
    async def _run(self, query: str) -> None:
        if not query.strip():
            self._show([], "", "Type a word: every message of every conversation is searched.")
            return
        try:
            hits = await self._search(query, limit=LIMIT, ranked=self._ranked)
        except Exception as error:
            self._show([], query, f"The search did not work: {one_line(str(error), 200) or type(error).__name__}.")
            return
        self._show(hits, query, "Nothing found.")

    def _show(self, hits: Sequence[SearchHit], query: str, empty: str) -> None:
        groups: dict[str, list[SearchHit]] = {}
        for hit in hits:
            groups.setdefault(hit.conversation, []).append(hit)
        self._lines = []
        self._days = {}
        headings = set()
        for found in groups.values():
            if self._lines:
                headings.add(len(self._lines))
                self._lines.append("")
            at = len(self._lines)
            headings.add(at)
            self._days[at] = moment(max(hit.created for hit in found), self._now)
            self._lines += [found[0].title, *found]
        self._shown_query = query
        self.rows.empty = empty
        more = "the first " if len(hits) >= LIMIT else ""
        frame = self.query_one("#frame")
        count = f" · {more}{counted(len(hits), 'message')}" if hits else ""
        frame.border_title = Content(self.heading + count)
        self.rows.show(len(self._lines), headings=headings)

    def _draw(self, index: int, width: int) -> Content:
        line = self._lines[index]
        if isinstance(line, str):
            return joined(content((shown(line, width), STRONG)), content((self._days.get(index, ""), MUTED)), width)
        role = f"{ROLES.get(line.role, one_line(line.role, 8)):<8}"
        return content((role, USER if line.role == Role.USER else MUTED)) + snippet(line.snippet)

    def choose(self, index: int) -> None:
        line = self._lines[index]
        if isinstance(line, SearchHit):
            self.finish(Found(line.conversation, line.node, self._shown_query))

    def action_rank(self) -> None:
        self._ranked = not self._ranked
        frame = self.query_one("#frame")
        frame.border_subtitle = hint_line(self._keys(self._ranked))
        if self._query.strip():
            self._run(self._query)
