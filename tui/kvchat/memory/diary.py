"""The daily log: what each extraction noted, proposed and refused, in words, for the person to read.

The rule: it is never read back as memories, and an extraction stands in it once however often it is written. A log
that cannot be written holds nothing up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from kvchat.memory.entry import Act, Change
from kvchat.memory.ledger import Cell, Ledger
from kvchat.memory.pages.folder import Folder, FolderError

EVERY = 1 << 30
_WORDS = {
    Act.NOTED: "Noted", Act.PROPOSED: "Proposed, waits for your yes", Act.CORRECTED: "Corrected, no longer",
    Act.MERGED: "Merged", Act.SUMMARISED: "Summarised",
}


class Diary:
    """The log of one memory folder. `title` gives a conversation's title."""

    def __init__(self, folder: Folder, ledger: Ledger, title: Callable[[str], str]) -> None:
        self._folder = folder
        self._ledger = ledger
        self._title = title

    def written(self, changes: Sequence[Change]) -> list[str]:
        """Log the extractions that made these changes; sentences about what could not be written."""
        moments = {change.at for change in changes if change.act in (Act.NOTED, Act.PROPOSED, Act.CORRECTED)}
        if not moments:
            return []
        told = []
        for cell in reversed(self._ledger.cells(limit=EVERY)):
            if cell.created in moments:
                told += self.extraction(cell, [change for change in changes if change.at == cell.created])
        return told

    def extraction(self, cell: Cell, changes: Iterable[Change]) -> list[str]:
        """Log one extraction; sentences about what could not be written. One that found nothing is not worth a line."""
        lines = [f"{_WORDS[change.act]}{' again' if change.act is Act.NOTED and change.before else ''}: "
                 f"{_line(change.after.text)}" for change in changes if change.act in _WORDS]
        lines += [f"Refused: {_line(text)} ({_line(reason)})" for text, reason in json.loads(cell.refused or "[]")]
        if not lines:
            return []
        when = datetime.fromtimestamp(cell.created)
        heading = f"{when:%H:%M} {_line(self._title(cell.conversation))} ({cell.conversation[:8]})"
        try:
            self._folder.add_to_log(f"{when:%Y-%m-%d}", cell.id, lines, heading)
        except FolderError as error:
            return [f"The log of {when:%Y-%m-%d} was not written: {error}"]
        return []


def _line(text: str) -> str:
    return " ".join(text.split())
