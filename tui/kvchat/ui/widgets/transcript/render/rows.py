"""Rows: what the transcript draws, one object per screen line, with the way back to the source text.

A row holds names of tones, and colours only for the pixels of an image. Every run knows what a copy of it gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from kvchat.ui.runs import Run

OPEN = "open"
"""The style of an undrawn opening marker, such as `**`; a copy drops it when its partner is not selected."""
CLOSE = "close"
"""The style of an undrawn closing marker."""


PIXELS = "#"
"""What the style of a cell of an image begins with: `#102030/#405060`, the upper pixel and the lower one."""


class Row(Struct, frozen=True):
    """One screen line."""

    runs: tuple[Run, ...] = ()
    end: str = "\n"
    """What a copy puts between this row and the next: a newline, the white space a wrap took, or nothing."""
    fill: str = ""
    """The style names of the rest of the line."""
    action: str = ""
    """What a click does: `fold:reasoning`, `fold:context`, `fold:call`, `code:N`, `sources`; empty: it selects the
    message."""

    @property
    def text(self) -> str:
        """The drawn characters."""
        return "".join(run.text for run in self.runs)


BLANK = Row()
GAP = Row(end="")
"""A blank line that is not in the source."""


def text_of(rows: Iterable[Row]) -> list[str]:
    """The drawn characters of every row."""
    return [row.text for row in rows]


def prefixed(rows: Iterable[Row], first: Sequence[Run], rest: Sequence[Run]) -> list[Row]:
    """`rows` with `first` before the first and `rest` before the others: list markers, quote bars. Before a row
    that a wrap made, the prefix is drawn but not copied."""
    uncopied = tuple(run.uncopied() for run in rest)
    out: list[Row] = []
    head = tuple(first)
    for row in rows:
        if not row.runs and not "".join(run.text for run in head).strip():
            head = tuple(run.uncopied() for run in head)
        out.append(Row(head + row.runs, row.end, row.fill, row.action))
        head = tuple(rest) if "\n" in row.end else uncopied
    return out


def _pieces(row: Row, start: int, stop: int | None) -> Iterable[tuple[str, str]]:
    """(style, source) of what lies between two character positions of a row; markers at the edges included."""
    position = 0
    for text, style, source in row.runs:
        begin, position = position, position + len(text)
        if stop is not None and begin > stop:
            return
        if not text:
            if begin >= start and source:
                yield style, source
        elif position > start and (stop is None or begin < stop):
            if source is None:
                yield "", text[max(0, start - begin) : None if stop is None else stop - begin]
            else:
                yield "", source


def _balanced(pieces: list[tuple[str, str]]) -> list[str]:
    """The pieces without markers whose partner is missing, and without a pair around the whole."""
    opened: list[int] = []
    partner: dict[int, int] = {}
    for index, (style, _) in enumerate(pieces):
        if style == OPEN:
            opened.append(index)
        elif style == CLOSE and opened:
            partner[opened[-1]] = index
            partner[index] = opened.pop()
    kept = [i for i, (style, source) in enumerate(pieces) if source and (i in partner or style not in (OPEN, CLOSE))]
    while len(kept) > 2 and partner.get(kept[0]) == kept[-1] and pieces[kept[0]][1] == pieces[kept[-1]][1]:
        kept = kept[1:-1]
    return [pieces[index][1] for index in kept]


def copied(rows: Sequence[Row], start: tuple[int, int] | None = None, stop: tuple[int, int] | None = None) -> str:
    """The source text between two (row, character) positions of `rows`; None: from the begin, to the end.

    Prose comes out as it was written, not as it was wrapped; list marks and emphasis as in the source. A piece
    that lies inside one pair of markers comes without them, so a selected command is only the command.
    """
    first_row, first_character = start or (0, 0)
    last_row, last_character = stop or (len(rows) - 1, None)
    pieces: list[tuple[str, str]] = []
    for index in range(max(0, first_row), min(last_row, len(rows) - 1) + 1):
        row = rows[index]
        begin = first_character if index == first_row else 0
        pieces.extend(_pieces(row, begin, last_character if index == last_row else None))
        if index != last_row or last_character is None:
            pieces.append(("", row.end))
    return "".join(_balanced(pieces))
