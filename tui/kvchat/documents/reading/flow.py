"""Flow: the paragraphs and tables of an office document, put together as they come.

The rule: a position is the number of a paragraph or of a table's row, from 1, those without text not counted.
"""

from __future__ import annotations

import re

from kvchat.documents.reading.builder import Builder
from kvchat.documents.reading.content import Section
from kvchat.documents.reading.outline import as_title

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
_SPACES = re.compile("[ \u00a0]{2,}")
_DEEPEST = 8


class Flow:
    """What of a document has come so far."""

    def __init__(self) -> None:
        self.title = ""
        """The text of the first paragraph that is styled as the document's title."""
        self._builder = Builder()
        self._number = 0
        self._rows: list[list[list[str]]] = []
        """For each table that is open, the texts in the cells of its row."""
        self._before = ""

    def paragraph(self, text: str, *, level: int = 0, depth: int = 0, is_title: bool = False) -> None:
        """A paragraph; `level`: a heading, `depth`: an item of a list, from 1."""
        text = _SPACES.sub(" ", _CONTROLS.sub("", text)).strip()
        if not text:
            return
        if self._rows and self._rows[-1]:
            self._rows[-1][-1].append(" ".join(text.split()))
            return
        if is_title and not self.title:
            self.title = as_title(text)
        self._number += 1
        if level:
            self._builder.head(level, " ".join(text.split()), self._number, self._number)
        elif depth:
            indent = "  " * min(depth - 1, _DEEPEST)
            self._add(f"{indent}- {text}".replace("\n", f"\n{indent}  "), "item")
        else:
            self._add(text, "")

    def table(self) -> None:
        """A table begins, maybe in a cell of another."""
        self._rows.append([])

    def cell(self) -> None:
        """A cell begins."""
        if self._rows:
            self._rows[-1].append([])

    def row(self) -> None:
        """A row has ended."""
        if not self._rows:
            return
        text = " | ".join(" ".join(cell) for cell in self._rows[-1]).rstrip(" |")
        self._rows[-1] = []
        if text and len(self._rows) > 1 and self._rows[-2]:
            self._rows[-2][-1].append(text)
        elif text:
            self._number += 1
            self._add(text, "row")

    def end_table(self) -> None:
        """A table has ended."""
        if self._rows:
            self.row()
            self._rows.pop()
            self._before = ""

    def sections(self) -> tuple[Section, ...]:
        """All sections."""
        while self._rows:
            self.end_table()
        return self._builder.sections()

    def _add(self, text: str, kind: str) -> None:
        self._builder.add(text, self._number, self._number, close=bool(kind) and kind == self._before)
        self._before = kind
