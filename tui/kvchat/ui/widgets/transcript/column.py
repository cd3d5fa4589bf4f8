"""The messages one below the other: which row of which message is at a height.

A message has an entry once it came near the view, or was meant by a key; until then it is an estimate of its height.
Heights change often and near the end, so the sums below a change are computed again only on request.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import overload

from kvchat.ui.widgets.transcript.entry import TranscriptEntry, estimated_height
from kvchat.ui.widgets.transcript.items import ItemSource, ListedItems
from kvchat.ui.widgets.transcript.render.message import TranscriptItem

MAX_DRAWN = 300
"""Messages whose rows are kept."""


class Column(Sequence[TranscriptItem]):
    """The messages of a transcript with their tops. As a sequence, their items; one of a message without an entry is
    made for whoever asks, and not kept."""

    def __init__(self, make: Callable[[TranscriptItem], TranscriptEntry]) -> None:
        self._make = make
        self._source: ItemSource = ListedItems([])
        self.ids: list[str] = []
        self._index: dict[str, int] = {}
        self._entries: list[TranscriptEntry | None] = []
        self._texts: Sequence[str] = ()
        """What the source had as the texts, for the estimates."""
        self._width = 0
        self._estimates: list[int] = []
        self._tops = [0]
        self._valid = 0
        """Tops up to this message's are right."""

    def set(self, source: ItemSource, width: int) -> None:
        """Show these messages in rows of `width` cells. Those that are known keep their entries, with what the source
        says of them now."""
        known = {entry.item.node_id: entry for _, entry in self.made()}
        self._source = source
        self.ids = [*source.ids]
        self._index = {id: index for index, id in enumerate(self.ids)}
        self._entries = [known.get(id) for id in self.ids]
        for index, entry in self.made():
            if entry.item != (item := source.item(index)):
                entry.set_item(item)
        self._texts = source.texts()
        self._estimate(width)

    def append(self, item: TranscriptItem) -> None:
        self._index[item.node_id] = len(self.ids)
        self.ids.append(item.node_id)
        self._entries.append(self._make(item))
        self._estimates.append(0)
        self.changed(len(self.ids) - 1)

    def resize(self, width: int) -> None:
        """Take another width."""
        if width != self._width:
            self._estimate(width)

    def _estimate(self, width: int) -> None:
        self._width = width
        for _, entry in self.made():
            entry.resize(width)
        appended = len(self.ids) - len(self._texts)  # they have entries
        self._estimates = [*(estimated_height(text, width) for text in self._texts), *[0] * appended]
        self.changed(0)

    # -- messages

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> TranscriptItem: ...
    @overload
    def __getitem__(self, index: slice) -> list[TranscriptItem]: ...
    def __getitem__(self, index: int | slice) -> TranscriptItem | list[TranscriptItem]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        entry = self._entries[index]
        return entry.item if entry is not None else self._source.item(index)

    def texts(self) -> list[str]:
        """The source of each message."""
        texts = [*self._source.texts(), *[""] * (len(self.ids) - len(self._texts))]
        for index, entry in self.made():
            texts[index] = entry.item.text
        return texts

    def find(self, node_id: str | None) -> int | None:
        """The place of a message."""
        return None if node_id is None else self._index.get(node_id)

    def entry(self, index: int) -> TranscriptEntry:
        """The entry of a message, made now if it was not made yet."""
        entry = self._entries[index]
        if entry is None:
            entry = self._entries[index] = self._make(self._source.item(index))
            entry.height = self._estimates[index]  # until it is drawn: nothing moves because a message is meant
        return entry

    def is_drawn(self, index: int) -> bool:
        """Whether the rows of a message are there."""
        return (entry := self._entries[index]) is not None and entry.drawn

    def made(self) -> Iterator[tuple[int, TranscriptEntry]]:
        """The entries that are made, with their places."""
        return ((index, entry) for index, entry in enumerate(self._entries) if entry is not None)

    # -- heights

    def changed(self, index: int) -> None:
        """The height of an entry may have changed."""
        self._valid = min(self._valid, index)

    def _summed(self) -> list[int]:
        if self._valid < len(self.ids) or len(self._tops) != len(self.ids) + 1:
            valid = min(self._valid, len(self._tops) - 1)
            pairs = zip(self._entries[valid:], self._estimates[valid:], strict=True)
            heights = (estimate if entry is None else entry.height for entry, estimate in pairs)
            self._tops[valid:] = accumulate(heights, initial=self._tops[valid])
            self._valid = len(self.ids)
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
        row = self._draw(index, row, above, below)
        low, missing = index, above - row
        while missing > 0 and low > 0:
            low -= 1
            self._draw(low, sys.maxsize, missing, 0)
            missing -= self.entry(low).height
        high, missing = index + 1, below + row - self.entry(index).height
        while missing > 0 and high < len(self):
            self._draw(high, 0, 0, missing)
            missing -= self.entry(high).height
            high += 1
        self._release_far(low, high)
        return row

    def _draw(self, index: int, row: int, above: int, below: int) -> int:
        entry = self.entry(index)
        height = entry.height
        row = entry.lay_out(row, above, below)
        if entry.height != height:
            self.changed(index)
        return row

    def _release_far(self, low: int, high: int) -> None:
        """Forget the rows of messages far from the view when very many are kept."""
        if len(self) <= MAX_DRAWN:
            return
        margin = MAX_DRAWN // 2
        drawn = [(index, entry) for index, entry in self.made() if entry.drawn]
        if len(drawn) > MAX_DRAWN:
            for index, entry in drawn:
                if not low - margin <= index < high + margin:
                    entry.release()
