"""A text that is too long to be laid out at once: each part of it is when it comes into view."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from kvchat.ui.runs import Run
from kvchat.ui.widgets.transcript.render.rows import Row
from kvchat.ui.widgets.transcript.render.wrap import one_cell_each, plain_rows

PART = 16 * 1024
"""Characters that are laid out at once, about: 15 ms."""
UNSEEN = Row(end="", action="unseen")
"""Stands for a row that is not laid out yet."""


class _Piece(Struct):
    text: str
    end: str
    """The text between it and the next one."""
    height: int
    laid_out: bool = False


def _parts(text: str, width: int) -> Iterator[_Piece]:
    """Cut at a line's end, else at a space, else where a character surely begins."""
    start = 0
    while len(text) - start > PART:
        stop = start + PART
        end = next((end for end in "\n " if text.rfind(end, start + 1, stop) > 0), "")
        if end:
            stop = text.rfind(end, start + 1, stop)
        else:
            stop = next((at for at in range(stop, stop - 256, -1) if one_cell_each(text[at - 1 : at + 1])), stop)
        yield _Piece(text[start:stop], end, _estimated(text, start, stop, width))
        start = stop + len(end)
    yield _Piece(text[start:], "\n", _estimated(text, start, len(text), width))


def _estimated(text: str, start: int, stop: int, width: int) -> int:
    """Rows that a piece of text will take, about."""
    return text.count("\n", start, stop) + (stop - start) // max(1, width) + 1


class LazyText:
    """The rows of clean `text`. Of a part that was not in view they are drawn empty, and copied all the same."""

    def __init__(self, text: str, width: int) -> None:
        self._width = width
        self._parts = list(_parts(text, width))
        self.rows: list[Row] = []
        self.seen = 0
        """Parts that are laid out."""
        for part in self._parts:
            self.rows.append(replace(UNSEEN, runs=(Run("", "", part.text + part.end),)))
            self.rows += [UNSEEN] * (part.height - 1)

    def lay_out(self, row: int, above: int, below: int) -> int:
        """Lay out `above` and `below` rows around a row; return the row's place after that."""
        tops = list(accumulate((part.height for part in self._parts), initial=0))
        here = next(number for number, top in enumerate(tops[1:]) if row < top or number == len(self._parts) - 1)
        part, offset = self._parts[here], row - tops[here]
        height = part.height
        self._draw(here)
        offset = offset * part.height // height
        first, missing = here, above - offset
        while missing > 0 and first > 0:
            first -= 1
            missing -= self._draw(first)
        last, missing = here, below - (part.height - offset)
        while missing > 0 and last < len(self._parts) - 1:
            last += 1
            missing -= self._draw(last)
        return sum(part.height for part in self._parts[:here]) + offset

    def _draw(self, number: int) -> int:
        """Lay out a part; its rows."""
        part = self._parts[number]
        if not part.laid_out:
            top = sum(part.height for part in self._parts[:number])
            rows = plain_rows(part.text, self._width)
            rows[-1] = replace(rows[-1], end=part.end)
            self.rows[top : top + part.height] = rows
            part.height, part.laid_out = len(rows), True
            self.seen += 1
        return part.height
