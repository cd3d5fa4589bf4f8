"""List the conversations with a filter, search all of them during typing, and give one a title.

Nothing is deleted here: the list only returns what was asked for. A search starts when the typing pauses, and the
result of an older query is never shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from textual import on, work
from textual.binding import BindingType
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.prompt.conversation import Conversation, SearchHit
from kvchat.prompt.message import Role
from kvchat.prompt.tags import (
    ARCHIVE,
    FAVOURITE,
    TagError,
    in_order,
    in_words,
    meant,
    own,
    tag_name,
    terms,
)
from kvchat.sanitize import one_line
from kvchat.text.format import FAVOURITE_MARK, KEPT_MARK, counted, moment
from kvchat.ui.bindings import bindings
from kvchat.ui.screens.modal import Hint, ListModal, Modal
from kvchat.ui.screens.rows import FilterLine, RowList, highlighted, kept
from kvchat.ui.screens.tones import (
    ACCENT,
    BAD,
    MARK_TONES,
    MATCH,
    MUTED,
    STRONG,
    USER,
    WARNING,
    Part,
    content,
    joined,
    shown,
)
from kvchat.ui.widgets.pieces import fit
from kvchat.ui.widgets.sidebar_rows import GLYPHS, WORDS, Mark

if TYPE_CHECKING:
    from kvchat.chat.conversations.conversations import Conversations

Picked = tuple[Literal["open", "rename", "delete", "menu", "search"], str] | tuple[Literal["new"], None]


STATE = 18
"""Cells for how warm a conversation is, in words."""


class ConversationPicker(ListModal[Picked]):
    """All conversations, favourites first, then the newest; the archived while a filter is written. Result: what to do
    with the one that has this id, ("search", what is written), or ("new", None)."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("list_dialog")]

    def __init__(
        self,
        conversations: Sequence[Conversation],
        *,
        current: str | None = None,
        mark: Callable[[str], Mark] = lambda _: "unknown",
        state: Callable[[str], str] = lambda _: "",
        queued: Mapping[str, str] = MappingProxyType({}),
        query: str = "",
        at: str | None = None,
        row: int = 0,
        now: datetime | None = None,
        kept: Mapping[str, str] = MappingProxyType({}),
        turns: Callable[[Conversation], int] = lambda one: one.turns,
    ) -> None:
        """`mark` gives the mark of the conversation with this id, `state` the same in a few words, `turns` how many its
        branch in use has. By id: `queued`, how many messages wait for the user; `kept`, what is saved of those that are
        kept. The cursor begins on `at` (None: the open one), else in this `row`."""
        super().__init__(classes="-list")
        self.heading = "Conversations"
        self.hints = (
            ("rows.choose", "open"),
            ("list_dialog.new", "new"),
            ("list_dialog.rename", "rename"),
            ("list_dialog.delete", "delete"),
            ("list_dialog.menu", "menu"),
            ("dialog.close", "close"),
        )
        self._conversations = conversations = in_order(conversations)
        self._texts = [conversation.title.casefold() for conversation in conversations]
        self._tags = {tag for conversation in conversations for tag in conversation.tags}
        self._current = current
        self._ask_mark = mark
        self._state = state
        self._queued = queued
        self._ask_turns = turns
        self._turns: dict[str, int] = {}
        self.query_text = query
        """What is written in the filter."""
        self._words = ""
        """Of it, what is looked for in titles."""
        self._at = current if at is None else at
        self.row = row
        """Where the cursor begins, and where it stood when it was said what to do."""
        self._now = now or datetime.fromtimestamp(time.time()).astimezone()
        self._states = kept
        self._kept: list[int] = []

    def body(self) -> Iterable[Widget]:
        yield FilterLine("filter by title, or tag:NAME", self.query_text)
        yield RowList(self._draw, tip=lambda row: f"{GLYPHS[self._mark(row)]}  {WORDS[self._mark(row)]}")

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._filter(self.query_text, self._at, self.row)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if event.value != self.query_text:
            self._filter(event.value, None if event.value.strip() else self._current)

    def _filter(self, query: str, at: str | None, row: int = 0) -> None:
        self.query_text = query
        self._words, asked = terms(query)
        tags, filtered = [meant(term, self._tags) for term in asked], bool(query.strip())
        found = [
            index
            for index, one in enumerate(self._conversations)
            if all(not wanted.isdisjoint(one.tags) for wanted in tags) and (filtered or ARCHIVE not in one.tags)
        ]
        self._kept = [found[index] for index in kept([self._texts[index] for index in found], self._words)]
        places = {self._conversations[index].id: row for row, index in enumerate(self._kept)}
        self.rows.empty = self._nothing(filtered, bool(asked))
        self.rows.show(len(self._kept), cursor=places.get(at or "", min(row, max(0, len(self._kept) - 1))))

    def _nothing(self, filtered: bool, tagged: bool) -> str:
        if filtered:
            what = "No conversation with this tag matches." if tagged else "No title matches."
            search = f"{self.key('list_dialog.search')} searches the messages"
            return f"{what} {search}, {self.key('list_dialog.new')} begins a new conversation."
        return (
            "All conversations are archived; tag:archive shows them."
            if self._conversations
            else ("No conversations yet.")
        )

    def _turns_of(self, conversation: Conversation) -> int:
        if conversation.id not in self._turns:
            self._turns[conversation.id] = self._ask_turns(conversation)
        return self._turns[conversation.id]

    def _mark(self, row: int) -> Mark:
        return self._ask_mark(self._conversations[self._kept[row]].id)

    def _draw(self, index: int, width: int) -> Content:
        conversation = self._conversations[self._kept[index]]
        mark = self._mark(index)
        turns = counted(self._turns_of(conversation), "turn") if conversation.turns else "empty"
        warm, cells = self._state(conversation.id) if width >= 60 else "", STATE if width >= 60 else 1
        right = content((GLYPHS[mark], MARK_TONES[mark]), (f" {warm}", MUTED)).truncate(cells, pad=True) + content(
            (f"{turns:>10}" if width >= 84 else "", MUTED),
            (f"{moment(conversation.updated, self._now):>17}" if width >= 45 else "", MUTED),
        )
        kept = self._states.get(conversation.id, "")
        star = content((f"{FAVOURITE_MARK} ", ACCENT) if FAVOURITE in conversation.tags else "")
        title = star + highlighted(content(shown(conversation.title, width)), self._words)
        state = "on screen" if conversation.id == self._current else "new answer" if conversation.unread else ""
        archived = "  archived" if ARCHIVE in conversation.tags else ""
        tags = fit(in_words(conversation.tags), width // 4)
        queued = self._queued.get(conversation.id, "")
        tail = content(
            (f"  {queued}" if queued else "", WARNING),
            (f"  {state}" if state else "", ACCENT),
            (archived, MUTED),
            (f"  {KEPT_MARK} {kept}" if kept else "", MUTED),
            (f"  {tags}" if tags else "", MUTED),
        )
        room = max(0, width - right.cell_length - 4 - tail.cell_length)
        left = title.truncate(room, ellipsis=True) + tail
        return joined(left, right, width)

    def choose(self, index: int) -> None:
        self.finish(("open", self._conversations[self._kept[index]].id))

    def action_new(self) -> None:
        self.finish(("new", None))

    def action_search(self) -> None:
        self.finish(("search", self.query_text))

    def _finish_here(self, act: Literal["rename", "delete", "menu"]) -> None:
        if self.rows.cursor is not None:
            self.row = self.rows.cursor
            self.finish((act, self._conversations[self._kept[self.row]].id))

    def action_rename(self) -> None:
        self._finish_here("rename")

    def action_delete(self) -> None:
        self._finish_here("delete")

    def action_menu(self) -> None:
        self._finish_here("menu")


PAUSE_SECONDS = 0.12
LIMIT = 200

ROLES: dict[str, str] = {Role.USER: "you", Role.ASSISTANT: "answer", Role.SYSTEM: "system"}


class Found(NamedTuple):
    """The message that the user chose from the results."""

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

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("search_dialog")]

    def __init__(self, conversations: Conversations, *, query: str = "", now: datetime | None = None) -> None:
        super().__init__(classes="-list -wide")
        self.heading = "Search all conversations"
        self.hints = self._keys(False)
        self._conversations = conversations
        self._query = query
        self._now = now or datetime.fromtimestamp(time.time()).astimezone()
        self._ranked = False
        self._lines: list[SearchHit | str] = []
        """A hit, or the title above the hits of a conversation."""
        self._days: dict[int, str] = {}
        self._shown_query = ""
        self._timer: Timer | None = None

    @staticmethod
    def _keys(ranked: bool) -> Sequence[Hint]:
        return (
            ("rows.choose", "open"),
            ("search_dialog.rank", "newest first" if ranked else "best first"),
            ("dialog.close", "close"),
        )

    def body(self) -> Iterable[Widget]:
        yield FilterLine("words to look for; tag:NAME keeps to a tag", self._query)
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
            hits = await self._conversations.search(query, limit=LIMIT, ranked=self._ranked)
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
        self.show_hints(self._keys(self._ranked))
        if self._query.strip():
            self._run(self._query)


TITLE_LIMIT = 200


class RenameScreen(Modal[str]):
    """Asks for a title; the result is the new one, None when it was left as it is."""

    def __init__(self, title: str) -> None:
        super().__init__(classes="-small")
        self.heading = "Rename conversation"
        self.hints = (("enter", "rename"), ("dialog.close", "cancel"))
        self._title = one_line(title, TITLE_LIMIT)

    def body(self) -> Iterable[Widget]:
        yield FilterLine("a title", self._title)
        yield Static(classes="words")

    def on_mount(self) -> None:
        title = self.query_one(Input)
        title.max_length = TITLE_LIMIT
        title.focus()
        title.action_select_all()

    @on(Input.Changed)
    def _changed(self) -> None:
        self.query_one(Static).update("")

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        title = " ".join(event.value.split())
        if not title:
            close = self.key("dialog.close")
            self.query_one(Static).update(content((f"Write a title, or press {close} to keep the old one.", BAD)))
        else:
            self.finish(title if title != self._title else None)


class TagsScreen(Modal[tuple[frozenset[str], frozenset[str]]]):
    """Asks for a conversation's tags. The result is those that it gets and those that it loses, so that what another
    window tags meanwhile stays."""

    def __init__(self, title: str, tags: Iterable[str], known: Sequence[str]) -> None:
        """`known`: the tags that there are."""
        super().__init__(classes="-small")
        self.heading = f"Tags of “{one_line(title, 50)}”"
        self.hints = (("enter", "apply"), ("dialog.close", "cancel"))
        self._tags = own(tags)
        self._known = own(known)

    def body(self) -> Iterable[Widget]:
        yield FilterLine("words with a blank between them, such as: work paris", " ".join((*self._tags, "")))
        yield Static(classes="words")

    def on_mount(self) -> None:
        tags = self.query_one(Input)
        tags.select_on_focus = False  # one more is written behind them
        tags.cursor_position = len(tags.value)
        tags.focus()
        self._changed()

    @on(Input.Changed)
    def _changed(self) -> None:
        known = f"Tags there are: {one_line(in_words(self._known), 300)}" if self._known else ""
        self.query_one(Static).update(content((known, MUTED)))

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        try:
            tags = frozenset(map(tag_name, event.value.replace(",", " ").split()))
        except TagError as error:
            self.query_one(Static).update(content((one_line(str(error), 200), BAD)))
        else:
            self.finish((tags - frozenset(self._tags), frozenset(self._tags) - tags))
