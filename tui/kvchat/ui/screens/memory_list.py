"""Which memories the list shows, and in which order. Pure functions.

The rule: what waits for the person's yes stands on top; a search shows what the index found, best first, then what
merely has the letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvchat.memory.entry import Entry, Kind, Status
from kvchat.text.format import counted
from kvchat.ui.screens.memory_source import Look

ASKS, REMEMBERED = "Waits for your yes", "Remembered"


@dataclass(frozen=True, slots=True)
class Filter:
    """What of the memory is wanted."""

    query: str = ""
    found: Sequence[str] = ()
    """The ids that the index found for the query, best first."""
    kind: Kind | None = None
    conversation: str = ""
    """Only what was noted in this one; empty: in all."""

    @property
    def words(self) -> list[str]:
        return self.query.casefold().split()

    def keeps(self, entry: Entry) -> bool:
        """Whether an entry passes without regard to the query."""
        return ((self.kind is None or entry.kind is self.kind)
                and (not self.conversation or entry.conversation == self.conversation))


@dataclass(frozen=True, slots=True)
class Listing:
    """The rows of the list: entries, and headings above them."""

    rows: Sequence[Entry | str] = ()
    headings: frozenset[int] = field(default_factory=frozenset)

    def at(self, index: int | None) -> Entry | None:
        row = self.rows[index] if index is not None and index < len(self.rows) else None
        return row if isinstance(row, Entry) else None

    def place_like(self, old: Listing, place: int, wanted: str) -> int:
        """Where the memory `wanted` is now, that was at `place` of an older list; where it is gone, the next one of
        those that came after it there, else before it. One that was taken is followed by the next proposal."""
        places = {row.id: i for i, row in enumerate(self.rows) if isinstance(row, Entry)}
        around = [row for row in (*old.rows[place:], *reversed(old.rows[:place])) if isinstance(row, Entry)]
        waited = {row.id for row in around if row.status is Status.PROPOSED}
        waits = [id for id in (row.id for row in around) if id in waited and self._waits(places.get(id))]
        if wanted in waited and wanted in places and wanted not in waits and waits:
            return places[waits[0]]
        return next((places[id] for id in (wanted, *(row.id for row in around)) if id in places), 0)

    def _waits(self, place: int | None) -> bool:
        """Whether the row there is a proposal."""
        row = self.rows[place] if place is not None else None
        return isinstance(row, Entry) and row.status is Status.PROPOSED


class Texts:
    """The entries' texts as they are compared, folded once."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self._folded: Mapping[str, str] = {}
        self._entries = entries

    def has(self, entry: Entry, words: Sequence[str]) -> bool:
        """Whether every word stands in the entry's text, kind or page."""
        if not self._folded:
            self._folded = {e.id: _folded(e) for e in self._entries}
        text = self._folded.get(entry.id) or _folded(entry)
        return all(word in text for word in words)


def _folded(entry: Entry) -> str:
    return f"{entry.text} {entry.kind} {entry.page}".casefold()


def listed(look: Look, chosen: Filter, texts: Texts) -> Listing:
    """The rows for what is wanted."""
    words = chosen.words
    proposals = [e for e in look.proposals if chosen.keeps(e) and texts.has(e, words)]
    entries = [e for e in look.entries if chosen.keeps(e)]
    if words:
        ranks = {id: rank for rank, id in enumerate(chosen.found)}
        best = sorted((e for e in entries if e.id in ranks), key=lambda e: ranks[e.id])
        entries = best + [e for e in entries if e.id not in ranks and texts.has(e, words)]
    if not proposals:
        return Listing(entries)
    rows: list[Entry | str] = [f"{ASKS} · {counted(len(proposals), 'proposal')}", *proposals]
    headings = {0}
    if entries:
        headings |= {len(rows), len(rows) + 1}
        rows += ["", REMEMBERED, *entries]
    return Listing(rows, frozenset(headings))


def kinds_in(look: Look) -> list[Kind]:
    """The kinds that occur, in their order."""
    there = {entry.kind for entry in (*look.proposals, *look.entries)}
    return [kind for kind in Kind if kind in there]
