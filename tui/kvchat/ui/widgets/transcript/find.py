"""Find text in the conversation.

Every message is searched in its source, and only messages that come into view are drawn.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from msgspec import Struct

from kvchat.ui.widgets.transcript.column import Column
from kvchat.ui.widgets.transcript.entry import TranscriptEntry
from kvchat.ui.widgets.transcript.render.rows import Row


class Match(Struct, frozen=True):
    """The `ordinal`-th occurrence in a message."""

    node: str
    ordinal: int


def _folded(text: str) -> str:
    """Small letters, character for character."""
    small = text.lower()
    return small if len(small) == len(text) else text


def marks(rows: Sequence[Row], first: int, query: str) -> list[tuple[int, int, int]]:
    """(row, start, stop) of every drawn occurrence from row `first` on; one that a wrap cut has two parts, of which
    only the first is given."""
    wanted = _folded(query)
    starts: list[int] = []
    parts: list[str] = []
    length = 0
    for row in rows[first:]:
        starts.append(length)
        separator = "\n" if "\n" in row.end else row.end
        parts.append(row.text + separator)
        length += len(parts[-1])
    text = _folded("".join(parts))
    found: list[tuple[int, int, int]] = []
    position = text.find(wanted) if wanted.strip() else -1
    while position >= 0:
        at = bisect_right(starts, position) - 1
        begin = position - starts[at]
        found.append((first + at, begin, begin + len(wanted)))
        position = text.find(wanted, position + len(wanted))
    return found


class Finder:
    """What is looked for in a column, and which match is shown."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self.query = ""
        """Empty: nothing is looked for."""
        self.current: tuple[str, int, int] | None = None
        """The message, row and first character of the match that is shown."""
        self._matches: list[Match] = []
        self._number = -1

    def begin(self, query: str) -> int:
        """Look for `query` in all messages; an empty one ends it. Returns the number of matches."""
        self.query = query if query.strip() else ""
        self.current = None
        for _, entry in self._column.made():
            entry.marks = None
        self._matches, self._number = self._found(), -1
        return len(self._matches)

    def search_again(self) -> None:
        """The messages have changed."""
        if self.query:
            self._matches = self._found()
            self._number = min(self._number, len(self._matches) - 1)

    def _found(self) -> list[Match]:
        """Every occurrence in the texts, without regard to case."""
        column, wanted = self._column, _folded(self.query)
        if not wanted:
            return []
        return [
            Match(id, number)
            for id, text in zip(column.ids, column.texts(), strict=True)
            for number in range(_folded(text).count(wanted))
        ]

    def nearest(self, y: int) -> int:
        """The last match of a message that starts at or above this row of the column, else the first."""
        place = self._column.locate(min(self._column.height - 1, y))
        last = place[0] if place else 0
        above = [n for n, match in enumerate(self._matches) if (self._column.find(match.node) or 0) <= last]
        return above[-1] if above else 0

    def after(self, step: int) -> int | None:
        """The match `step` after the one that is shown, around the end; None: there is none."""
        return (self._number + step) % len(self._matches) if self._matches else None

    def show(self, number: int, page: int) -> int | None:
        """Show this match: draw its message and `page` rows around. Returns its row in the column; None: the message is
        gone."""
        self._number = number
        match = self._matches[number]
        index = self._column.find(match.node)
        if index is None:
            return None
        entry = self._column.entry(index)
        entry.lay_out(0, 0, sys.maxsize)
        self._column.changed(index)
        self._column.draw_around(index, 0, page, 2 * page)
        found = marks(entry.rows(), entry.body_start, self.query)
        row, start, _ = found[min(match.ordinal, len(found) - 1)] if found else (0, 0, 0)
        self.current = (match.node, row, start)
        return self._column.top(index) + row

    def marks_in(self, entry: TranscriptEntry) -> Mapping[int, Sequence[tuple[int, int]]]:
        """(start, stop) of what is found in a message, by row."""
        if entry.marks is None:
            entry.marks = {}
            for number, start, stop in marks(entry.rows(), entry.body_start, self.query):
                entry.marks.setdefault(number, []).append((start, stop))
        return entry.marks
