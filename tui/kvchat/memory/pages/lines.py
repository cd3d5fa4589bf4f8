"""The entries that a page's text holds, with the lines of each. Pure.

The rule: every id stands for one entry. The same line twice is one entry; a line that was copied and then changed has
the id of another one in its comment, and is an entry by hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvchat.memory.entry import BY_HAND, Entry, Kind
from kvchat.memory.pages.blocks import Item, blocks, split
from kvchat.memory.pages.comment import Comment, comments, derived_id, entry_of, mark
from kvchat.memory.pages.escape import decoded
from kvchat.memory.pages.front import front

BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of one entry."""

    entry: Entry
    item: Item
    lines: tuple[int, ...]
    """Its own, counted from 0; items in it that are entries themselves are not among them."""
    comment: Comment | None
    """Its comment, where it is one and stands on one line."""
    commented: bool
    copy: bool
    """Whether a block before it is the same entry."""
    barred: tuple[str, ...]
    """Ids that it would have if no other entry had them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A page, read."""

    mark: str
    """The byte order mark at its beginning, if there is one."""
    lines: tuple[str, ...]
    items: tuple[Item, ...]
    blocks: tuple[Block, ...]
    title: str


@dataclass(frozen=True, slots=True)
class _Draft:
    """An entry before it is known which ids are taken."""

    item: Item
    lines: tuple[int, ...]
    text: str
    comments: tuple[Comment, ...]
    id: str
    whole: bool
    """Whether its text is the one that kvchat wrote."""
    wrapped: bool


def read(name: str, text: str, when: float) -> Reading:
    """Read a page. Raises PageProblem."""
    order = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    lines = split(text[len(order):])
    matter = front(lines)
    found = blocks(lines, matter.end)
    drafts = _drafts(name, found.items)
    read_blocks = _Naming(name, matter.kind, float(math.floor(when)), drafts).blocks()
    return Reading(order, tuple(lines), found.items, tuple(read_blocks), found.title or matter.title)


def _drafts(name: str, items: Sequence[Item]) -> list[_Draft]:
    """The items that are entries. One without a comment inside of another is part of that one's text."""
    owners: dict[Item, Item] = {}
    members: dict[Item, list[Item]] = {}
    noted: dict[Item, list[Comment]] = {}
    for item in items:
        noted[item] = comments("\n".join(item.contents)) if any("<!--" in line for line in item.contents) else []
        owner = item if item.parent is None or noted[item] else owners[item.parent]
        owners[item] = owner
        members.setdefault(owner, []).append(item)
    return [draft for item, parts in members.items()
            if (draft := _draft(name, item, parts, tuple(noted[item]))) is not None]


def _draft(name: str, item: Item, parts: Sequence[Item], found: tuple[Comment, ...]) -> _Draft | None:
    """None when no text is left."""
    joined = "\n".join(item.contents)
    wrapped = any("\n" in joined[one.start:one.end] for one in found)
    pieces = list(zip(item.lines, _without(joined, found).split("\n"), strict=True))
    for part in parts[1:]:
        pieces.append((part.lines[0], f"{part.marker} {part.box}{part.contents[0]}"))
        pieces += zip(part.lines[1:], part.contents[1:], strict=True)
    pieces.sort()
    raw = [line for _, content in pieces if (line := content.strip(" \t"))]
    if not raw:
        return None
    text = "\n".join(map(decoded, raw))
    id = found[0].id if found else derived_id(name, text)
    whole = bool(found) and found[0].values.get("h") == mark(text)
    return _Draft(item, tuple(at for at, _ in pieces), text, found, id, whole, wrapped)


def _without(text: str, found: Sequence[Comment]) -> str:
    """The text without its comments, in as many lines."""
    for comment in reversed(found):
        before, after = text[:comment.start].rstrip(" \t"), text[comment.end:].lstrip(" \t")
        breaks = "\n" * text.count("\n", comment.start, comment.end)
        inside = before and after and not before.endswith("\n") and not after.startswith("\n")
        text = before + (breaks or (" " if inside else "")) + after
    return text


class _Naming:
    """Gives each draft its id."""

    def __init__(self, name: str, kind: Kind, when: float, drafts: Sequence[_Draft]) -> None:
        self._name = name
        self._kind = kind
        self._when = when
        self._drafts = drafts
        self._first: dict[str, _Draft] = {}
        """By id, the draft that has it by right: a line that is as kvchat wrote it, else the first with the comment."""
        for draft in drafts:
            rival = self._first.get(draft.id)
            if rival is None or self._rank(draft) > self._rank(rival):
                self._first[draft.id] = draft
        self._others: dict[str, _Draft] = {}
        self._seen: set[str] = set()

    def blocks(self) -> list[Block]:
        return [self._block(draft) for draft in self._drafts]

    @staticmethod
    def _rank(draft: _Draft) -> int:
        return draft.whole + bool(draft.comments)

    def _block(self, draft: _Draft) -> Block:
        barred: list[str] = []
        id, number = draft.id, 0
        while (holder := self._first.get(id) or self._others.setdefault(id, draft)).text != draft.text:
            barred.append(id)
            id, number = derived_id(self._name, draft.text, number), number + 1
        again = id in self._seen
        self._seen.add(id)
        comment = draft.comments[0] if len(draft.comments) == 1 and not draft.wrapped else None
        return Block(self._entry(holder, id), draft.item, draft.lines, comment, bool(draft.comments), again,
                     tuple(barred))

    def _entry(self, draft: _Draft, id: str) -> Entry:
        if not draft.comments:
            return Entry(id, self._kind, draft.text, self._name, self._when, by=BY_HAND)
        entry = entry_of(draft.comments[0], draft.text, self._name, self._when)
        if id == draft.id:
            return entry
        return replace(entry, id=id, by=BY_HAND, conversation="", nodes=(), confidence=None, edited=True)
