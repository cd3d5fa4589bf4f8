"""List the conversations with a filter, search all of them during typing, and give one a title.

Nothing is deleted here: the list only returns what was asked for. A search starts when the typing pauses, and the
result of an older query is never shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from msgspec import Struct, field
from textual.binding import BindingType
from textual.content import Content

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
from kvchat.ui.runs import fit, shown
from kvchat.ui.screens.kit import (
    ACCENT,
    MARK_TONES,
    MATCH,
    MUTED,
    USER,
    WARNING,
    AskScreen,
    FilterList,
    Heading,
    Hint,
    LineError,
    Part,
    SearchList,
    content,
    highlighted,
    joined,
    kept,
)
from kvchat.ui.widgets.sidebar_rows import GLYPHS, WORDS, Mark

if TYPE_CHECKING:
    from kvchat.chat.conversations.conversations import Conversations

Picked = tuple[Literal["open", "rename", "delete", "menu", "search"], str] | tuple[Literal["new"], None]


STATE = 18
"""Cells for how warm a conversation is, in words."""


class ConversationRowData(Struct, frozen=True):
    """What the rows are drawn from, beyond the conversations. By their ids: `queued`, how many messages wait for the
    user; `kept`, what is saved of those that are kept."""

    now: datetime
    mark: Callable[[str], Mark] = lambda _: "unknown"
    """The mark of the conversation with this id."""
    state: Callable[[str], str] = lambda _: ""
    """The same in a few words."""
    turns: Callable[[Conversation], int] = lambda one: one.turns
    """How many turns its branch in use has."""
    queued: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)


class ConversationPicker(FilterList[Conversation, Picked]):
    """All conversations, favourites first, then the newest; the archived while a filter is written. Result: what to do
    with the one that has this id, ("search", what is written), or ("new", None)."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("list_dialog")]
    heading = "Conversations"
    hints = (
        ("rows.choose", "open"),
        ("list_dialog.new", "new"),
        ("list_dialog.rename", "rename"),
        ("list_dialog.delete", "delete"),
        ("list_dialog.menu", "menu"),
        ("dialog.close", "close"),
    )
    placeholder = "filter by title, or tag:NAME"

    def __init__(
        self,
        conversations: Sequence[Conversation],
        data: ConversationRowData,
        *,
        current: str | None = None,
        query: str = "",
        at: str | None = None,
        row: int = 0,
    ) -> None:
        """The cursor begins on `at` (None: on `current`, the open one), else in this `row`."""
        super().__init__("-list", query=query, row=row)
        self._conversations = conversations = in_order(conversations)
        self._texts = [conversation.title.casefold() for conversation in conversations]
        self._tags = {tag for conversation in conversations for tag in conversation.tags}
        by_id = {one.id: one for one in conversations}
        self._current = by_id.get(current or "")
        self._data = data
        self._turns = cache(lambda id: data.turns(by_id[id]))
        self._words = ""
        """Of the query, what is looked for in titles."""
        self._first = self._current if at is None else by_id.get(at)

    def find(self, query: str) -> Iterable[Conversation]:
        self._words, asked = terms(query)
        tags, filtered = [meant(term, self._tags) for term in asked], bool(query.strip())
        self.empty = self._nothing(filtered, bool(asked))
        found = (self._conversations[at] for at in kept(self._texts, self._words))
        return [
            one
            for one in found
            if all(not wanted.isdisjoint(one.tags) for wanted in tags) and (filtered or ARCHIVE not in one.tags)
        ]

    def query_changed(self) -> None:
        self.fill(None if self.query_text.strip() else self._current)

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

    def tip(self, row: Conversation) -> str:
        mark = self._data.mark(row.id)
        return f"{GLYPHS[mark]}  {WORDS[mark]}"

    def draw(self, row: Conversation, width: int) -> Content:
        mark = self._data.mark(row.id)
        turns = counted(self._turns(row.id), "turn") if row.turns else "empty"
        warm, cells = self._data.state(row.id) if width >= 60 else "", STATE if width >= 60 else 1
        right = content((GLYPHS[mark], MARK_TONES[mark]), (f" {warm}", MUTED)).truncate(cells, pad=True) + content(
            (f"{turns:>10}" if width >= 84 else "", MUTED),
            (f"{moment(row.updated, self._data.now):>17}" if width >= 45 else "", MUTED),
        )
        kept = self._data.kept.get(row.id, "")
        star = content((f"{FAVOURITE_MARK} ", ACCENT) if FAVOURITE in row.tags else "")
        title = star + highlighted(content(shown(row.title, width)), self._words)
        state = "on screen" if row is self._current else "new answer" if row.unread else ""
        archived = "  archived" if ARCHIVE in row.tags else ""
        tags = fit(in_words(row.tags), width // 4)
        queued = self._data.queued.get(row.id, "")
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

    def result(self, row: Conversation) -> Picked:
        return "open", row.id

    def action_new(self) -> None:
        self.finish(("new", None))

    def action_search(self) -> None:
        self.finish(("search", self.query_text))

    def action_pick(self, act: Literal["rename", "delete", "menu"]) -> None:
        if (conversation := self.current) is not None:
            self.row = self.rows.cursor or 0
            self.finish((act, conversation.id))


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


class SearchScreen(SearchList[SearchHit, Found]):
    """Messages that match, under the titles of their conversations. Result: Found."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("search_dialog")]
    heading = "Search all conversations"
    placeholder = "words to look for; tag:NAME keeps to a tag"
    invitation = "Type a word: every message of every conversation is searched."
    not_found = "Nothing found."

    def __init__(self, conversations: Conversations, *, query: str = "", now: datetime | None = None) -> None:
        super().__init__("-list -wide", query=query)
        self.hints = self._keys(False)
        self._conversations = conversations
        self._now = now or datetime.fromtimestamp(time.time()).astimezone()
        self._ranked = False

    @staticmethod
    def _keys(ranked: bool) -> Sequence[Hint]:
        return (
            ("rows.choose", "open"),
            ("search_dialog.rank", "newest first" if ranked else "best first"),
            ("dialog.close", "close"),
        )

    async def search(self, query: str) -> Sequence[SearchHit | Heading]:
        groups: dict[str, list[SearchHit]] = {}
        for hit in await self._conversations.search(query, limit=LIMIT, ranked=self._ranked):
            groups.setdefault(hit.conversation, []).append(hit)
        found: list[SearchHit | Heading] = []
        for hits in groups.values():
            day = moment(max(hit.created for hit in hits), self._now)
            found += [*([Heading()] if found else []), Heading(hits[0].title, day), *hits]
        return found

    def found_heading(self) -> str:
        count = sum(isinstance(one, SearchHit) for one in self.found)
        more = "the first " if count >= LIMIT else ""
        return self.heading + (f" · {more}{counted(count, 'message')}" if count else "")

    def draw(self, row: SearchHit, width: int) -> Content:
        role = f"{ROLES.get(row.role, one_line(row.role, 8)):<8}"
        return content((role, USER if row.role == Role.USER else MUTED)) + snippet(row.snippet)

    def result(self, row: SearchHit) -> Found:
        return Found(row.conversation, row.node, self.found_for)

    def action_rank(self) -> None:
        self._ranked = not self._ranked
        self.show_hints(self._keys(self._ranked))
        self.look_up()


TITLE_LIMIT = 200


def rename_screen(title: str) -> AskScreen[str]:
    """Asks for a title; the result is the new one, None when it was left as it is."""
    before = one_line(title, TITLE_LIMIT)

    def check(text: str) -> str | None:
        if not (after := " ".join(text.split())):
            raise LineError(f"Write a title, or press {screen.key('dialog.close')} to keep the old one.")
        return after if after != before else None

    screen = AskScreen("Rename conversation", "a title", before, check, enter="rename", limit=TITLE_LIMIT)
    return screen


def tags_screen(
    title: str, tags: Iterable[str], known: Sequence[str]
) -> AskScreen[tuple[frozenset[str], frozenset[str]]]:
    """Asks for a conversation's tags. The result is those that it gets and those that it loses, so that what another
    window tags meanwhile stays. `known`: the tags that there are."""
    before = frozenset(own(tags))

    def check(text: str) -> tuple[frozenset[str], frozenset[str]]:
        try:
            after = frozenset(map(tag_name, text.replace(",", " ").split()))
        except TagError as error:
            raise LineError(str(error)) from None
        return after - before, before - after

    there = own(known)
    return AskScreen(
        f"Tags of “{one_line(title, 50)}”",
        "words with a blank between them, such as: work paris",
        " ".join((*own(tags), "")),
        check,
        enter="apply",
        below=f"Tags there are: {one_line(in_words(there), 300)}" if there else "",
    )
