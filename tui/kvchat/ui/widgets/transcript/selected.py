"""The message that is selected, and those that were selected with it."""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.ui.widgets.transcript.column import Column
from kvchat.ui.widgets.transcript.entry import TranscriptEntry


class SelectedMessages:
    """The selected messages of a column."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self.node: str | None = None
        """The node id of the selected message."""
        self._first: str | None = None
        """Where the selection of several messages began; None: at the selected one."""

    @property
    def index(self) -> int | None:
        """The place of the selected message in the column."""
        return self._column.find(self.node)

    @property
    def entry(self) -> TranscriptEntry | None:
        index = self.index
        return None if index is None else self._column.entry(index)

    @property
    def entries(self) -> list[TranscriptEntry]:
        """All that are selected, in their order."""
        index = self.index
        if index is None:
            return []
        begin = self._column.find(self._first)
        first, last = sorted((index, index if begin is None else begin))
        return [self._column.entry(at) for at in range(first, last + 1)]

    def take(self, node: str | None, extend: bool = False) -> bool:
        """Select a message; None, or one that is not there: none. `extend`: with all from where the selection began.
        Return whether a row has to be repainted."""
        before = self.entries
        self._first = (self._first or self.node) if extend else None
        self.node = node if self._column.find(node) is not None else None
        return self.mark(before)

    def mark(self, before: Sequence[TranscriptEntry]) -> bool:
        """Draw those that are selected now as selected, and no others of those that were `before`. Return whether that
        changed any."""
        now, changed = self.entries, False
        for entries, selected in (([one for one in before if one not in now], False), (now, True)):
            for entry in entries:
                if entry.selected is not selected:
                    entry.set_selected(selected)
                    changed = True
        return changed

    def forget_missing(self) -> bool:
        """Forget what the column has no longer. Return whether the selected message is one of that."""
        if self._column.find(self._first) is None:
            self._first = None
        if self.node is None or self.index is not None:
            return False
        self.node = None
        return True
