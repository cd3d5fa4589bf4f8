"""The words of the line over the composer: how many memories, files and passages go with the message, and which.

The rule: the line has exactly its width in cells, whatever names come from outside; what has no room is counted, not
named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from kvchat.display import one_line
from kvchat.ui.widgets.cells import fit
from kvchat.ui.widgets.context_items import FILE, MEMORY, PASSAGE, ContextItems, Item

GLYPHS = {MEMORY: "◆", FILE: "▥", PASSAGE: "▤"}
EMPTY = {MEMORY: "◇", PASSAGE: "▢"}
NOUNS = {MEMORY: ("memory", "memories"), FILE: ("file", "files"), PASSAGE: ("passage", "passages")}
NARROWEST = 14
"""Cells of a name; where there is less for each, only the first ones are named."""
SEARCHING = "searching…"
PLAIN = (" is plain text · Tab on it attaches it", " is text · Tab attaches")
NEEDS = " needs your y"
_BETWEEN = " · "
_WHERE = re.compile(r"(?::[\d¶-]+| p\. [\d-]+)\Z")


class Part(NamedTuple):
    """A run of text in one style."""

    text: str
    style: str
    at: int = -1
    """The place of the item that it names, from 0; -1: none."""
    kind: str = ""
    """The kind of items that it counts."""


class Shown(NamedTuple):
    """What the line has to say."""

    items: ContextItems
    cursor: int | None = None
    """The place of the item that is being chosen; None: the keys belong to the text."""
    key: str = ""
    """The key that chooses, as a person reads it; empty: none is shown."""
    searching: bool = False
    problems: Sequence[str] = ()
    pasted: Sequence[str] = ()
    """Mentions that are only text, without their `@`."""


def parts(shown: Shown, width: int) -> list[Part]:
    """The line in exactly `width` cells, the rule's own sign where nothing stands."""
    tail = _tail(shown, width)
    aside = cell_len(tail) + 3 if tail else 0
    heads = _heads(shown, width - aside)
    room = width - aside - _length(heads) - 2
    found = [*heads, *(_problem(shown, bool(heads), room) or _pasted(shown, bool(heads), room))]
    room -= _length(found[len(heads):])
    found += [*_names(shown, room), Part(" ", "quiet")] if found else []
    used = _length(found)
    if used + cell_len(tail) + 3 > width:
        tail = ""
    gap = max(0, width - used - (cell_len(tail) + 2 if tail else 0))
    filled = gap - 1 if tail and gap else gap
    tail = f" {tail} " if tail else ""
    found += [Part("─" * filled, "line"), Part(tail, "quiet"), Part("─" * (gap - filled), "line")]
    return list(_cut(found, width))


def _length(parts: Sequence[Part]) -> int:
    return sum(cell_len(part.text) for part in parts)


def _cut(parts: Sequence[Part], width: int) -> Iterator[Part]:
    """The parts in at most `width` cells."""
    for part in parts:
        text = fit(part.text, width)
        width -= cell_len(text)
        yield part._replace(text=text)


def _tail(shown: Shown, width: int) -> str:
    """What stands at the right end: the key, or the keys while one chooses; the longest that leaves room."""
    key = shown.key
    if shown.cursor is not None and shown.items.needs_yes(shown.items.all[shown.cursor]):
        wordings, most = ["y sends it · Enter shows it · Esc", "y sends it · Esc"], width // 2
    elif shown.cursor is not None:
        everything = f"{key} all · " if key else ""
        wordings = [f"←→ · Enter shows · Del · {everything}Esc", f"←→ Enter Del · {everything}Esc", "←→ Del · Esc"]
        most = width // 2
    elif shown.searching:
        wordings, most = [SEARCHING], width
    elif shown.items.is_offer and key:
        wordings, most = [f"{key} takes them", f"{key} takes"], width // 2
    else:
        wordings, most = [key if shown.items.all else ""], width // 4
    return next((words for words in wordings if cell_len(words) <= most), "")


# How many.


def _heads(shown: Shown, width: int) -> list[Part]:
    """How many of each kind; in few words where many leave no room for a name."""
    kinds = [kind for kind in (MEMORY, FILE, PASSAGE) if shown.items.of(kind)]
    found: list[Part] = []
    for brief in (False, True):
        found = []
        for kind in kinds:
            before = _BETWEEN if found else " "
            offered = kind == PASSAGE and shown.items.is_offer
            found += [Part(before, "quiet"), Part(_head(shown.items, kind, brief), "quiet" if offered else "mark",
                                                  kind=kind)]
        if _length(found) + NARROWEST + 4 <= width:
            break
    return found


def _head(items: ContextItems, kind: str, brief: bool) -> str:
    found, kept = items.of(kind), items.kept(kind)
    noun = NOUNS[kind][len(found) != 1]
    if kind == PASSAGE and items.is_offer:
        return f"{GLYPHS[kind]} {len(found)}{'' if brief else f' {noun}'} found"
    if not kept and kind in EMPTY:
        return f"{EMPTY[kind]} no{'' if brief else f' {NOUNS[kind][1]}'}"
    number = f"{len(kept)}" if len(kept) == len(found) else f"{len(kept)} of {len(found)}"
    tokens = sum(item.tokens for item in kept)
    return " ".join(filter(None, (
        GLYPHS[kind], number, "" if brief else noun, f"~{tokens:,}{'' if brief else ' tok'}" if tokens else "")))


def _problem(shown: Shown, follows: bool, room: int) -> list[Part]:
    """The first thing that is wrong with a mention."""
    if not shown.problems or room < NARROWEST:
        return []
    more = f" (+{len(shown.problems) - 1})" if len(shown.problems) > 1 else ""
    before = _BETWEEN if follows else " "
    words = fit(one_line(shown.problems[0], 300), (room if not follows else room // 2) - len(before) - len(more) - 2)
    return [Part(before, "quiet"), Part(f"! {words}{more}", "problem")]


def _pasted(shown: Shown, follows: bool, room: int) -> list[Part]:
    """That the first mention that was pasted is only text."""
    before = _BETWEEN if follows else " "
    room = (room // 2 if follows else room) - len(before)
    if not shown.pasted:
        return []
    for words in PLAIN:
        if (cells := room - len(words)) >= NARROWEST - 4:
            return [Part(before, "quiet"), Part(fit(f"@{one_line(shown.pasted[0], 300)}", cells) + words, "quiet")]
    return []


# Which.


def _names(shown: Shown, room: int) -> list[Part]:
    """The items in at most `room` cells. Those that are left out are named only while one chooses, and where some need
    a yes, only these."""
    items, choosing = shown.items, shown.cursor is not None
    every = items.all
    named = [at for at, item in enumerate(every) if choosing or items.needs_yes(item)] or [
        at for at, item in enumerate(every) if not items.is_out(item) or _is_offered(items, item)]
    labels = {at: one_line(every[at].label, 200) for at in named}
    while len(named) > 1 and (room - 2) // len(named) - len(_BETWEEN) < NARROWEST:
        named.pop(0 if choosing and shown.cursor == named[-1] else -1)
    found: list[Part] = []
    for number, at in enumerate(named):
        item, out = every[at], items.is_out(every[at])
        before = _BETWEEN if found else ": "
        needed = items.needs_yes(item)
        sign = "" if item.is_fixed else " +" if out else " ×"
        if needed and at != shown.cursor:
            sign = NEEDS
        label = _fitted(labels[at], item, room // (len(named) - number) - len(before) - len(sign))
        if not label:
            break
        style = "problem" if needed else "out" if out and not _is_offered(items, item) else "quiet"
        found += [Part(before, "quiet"), Part(label, "cursor" if at == shown.cursor else style, at),
                  Part(sign, "problem" if needed else "quiet", at)]
        room -= len(before) + cell_len(label) + len(sign)
    return found


def _fitted(label: str, item: Item, cells: int) -> str:
    """The label in at most `cells` cells. A passage keeps where it stands, for several are of one file; a path its
    end."""
    if item.outside and cell_len(label) > cells > 1:
        while cell_len(label) >= cells:
            label = label[1:]
        return f"…{label}"
    where = _WHERE.search(label) if item.kind == PASSAGE and cell_len(label) > cells else None
    name = fit(label[:where.start()], cells - cell_len(where[0])) if where else ""
    return name + where[0] if where and name else fit(label, cells)


def _is_offered(items: ContextItems, item: Item) -> bool:
    return item.kind == PASSAGE and items.is_offer
