"""An edit of the composer that knows which `@` the person typed.

The rule: a sign counts where it was typed, picked from the list or touched; every other way into the text, pasting
above all, leaves it text. It moves with what is around it, and undoing brings back what it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from textual.document._document import DocumentBase, EditResult, Location
from textual.document._edit import Edit
from textual.widgets import TextArea

SIGN = "@"


class HasSigns(Protocol):
    """A text area with its signs."""

    document: DocumentBase
    signs: list[bool]
    """Of each `@` in the text whether it counts."""


def signs_before(document: DocumentBase, location: Location) -> int:
    """How many `@` stand before a location."""
    row, column = location
    above = sum(line.count(SIGN) for line in document.lines[:row])
    return above + (document.lines[row].count(SIGN, 0, column) if row < document.line_count else 0)


@dataclass
class TypedEdit(Edit):
    """An edit with, for each `@` that it puts in, whether that counts. `area` is the one it is done in."""

    area: HasSigns
    counts: tuple[bool, ...]
    _before: list[bool] = field(init=False, default_factory=list)
    """What counted of those that it took out."""

    def do(self, text_area: TextArea, record_selection: bool = True) -> EditResult:
        first = signs_before(self.area.document, self.top)
        result = super().do(text_area, record_selection)
        last = first + result.replaced_text.count(SIGN)
        self._before = self.area.signs[first:last]
        self.area.signs[first:last] = self.counts
        return result

    def undo(self, text_area: TextArea) -> EditResult:
        first = signs_before(self.area.document, self.top)
        self.area.signs[first:first + len(self.counts)] = self._before
        return super().undo(text_area)
