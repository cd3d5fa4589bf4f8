"""The messages one below the other: which row of which message is at a height.

Heights change often and near the end, so the sums below a change are computed again only on request.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from kvchat.ui.widgets.transcript.entry import TranscriptEntry

MAX_DRAWN = 300
"""Messages whose rows are kept."""


class Column:
    """The entries of a transcript with their tops."""

    def __init__(self) -> None:
        self.entries: list[TranscriptEntry] = []
        self._index: dict[str, int] = {}
        self._tops = [0]
        self._valid = 0
        """Tops up to this entry's are right."""

    def set(self, entries: Sequence[TranscriptEntry]) -> None:
        self.entries = list(entries)
        self._index = {entry.item.node_id: number for number, entry in enumerate(self.entries)}
        self.changed(0)

    def append(self, entry: TranscriptEntry) -> None:
        self._index[entry.item.node_id] = len(self.entries)
        self.entries.append(entry)
        self.changed(len(self.entries) - 1)

    def find(self, node_id: str | None) -> int | None:
        """The place of a message."""
        return None if node_id is None else self._index.get(node_id)

    def changed(self, index: int) -> None:
        """The height of an entry may have changed."""
        self._valid = min(self._valid, index)

    def _summed(self) -> list[int]:
        if self._valid < len(self.entries) or len(self._tops) != len(self.entries) + 1:
            valid = min(self._valid, len(self._tops) - 1)
            heights = (entry.height for entry in self.entries[valid:])
            self._tops[valid:] = accumulate(heights, initial=self._tops[valid])
            self._valid = len(self.entries)
        return self._tops

    @property
    def height(self) -> int:
        return self._summed()[-1]

    def top(self, index: int) -> int:
        """The first row of an entry, from the top of the column."""
        return self._summed()[index]

    def locate(self, y: int) -> tuple[int, int] | None:
        """The entry at row `y` and the row in it; None below the end."""
        tops = self._summed()
        if not 0 <= y < tops[-1]:
            return None
        index = bisect_right(tops, y) - 1
        return index, y - tops[index]

    def draw_around(self, index: int, row: int, above: int, below: int) -> int:
        """Draw entries so that `above` rows above and `below` rows below a place are exact; the row in its entry that
        is there then."""
        entry = self.entries[index]
        row = self._draw(index, row, above, below)
        low, missing = index, above - row
        while missing > 0 and low > 0:
            low -= 1
            self._draw(low, sys.maxsize, missing, 0)
            missing -= self.entries[low].height
        high, missing = index + 1, below + row - entry.height
        while missing > 0 and high < len(self.entries):
            self._draw(high, 0, 0, missing)
            missing -= self.entries[high].height
            high += 1
        self._release_far(low, high)
        return row

    def _draw(self, index: int, row: int, above: int, below: int) -> int:
        entry = self.entries[index]
        height = entry.height
        row = entry.lay_out(row, above, below)
        if entry.height != height:
            self.changed(index)
        return row

    def _release_far(self, low: int, high: int) -> None:
        """Forget the rows of messages far from the view when very many are kept."""
        if len(self.entries) <= MAX_DRAWN:
            return
        margin = MAX_DRAWN // 2
        drawn = [i for i, entry in enumerate(self.entries) if entry.drawn]
        if len(drawn) > MAX_DRAWN:
            for index in drawn:
                if not low - margin <= index < high + margin:
                    self.entries[index].release()
