"""The text that the mouse selects: places in the messages, and the source text between two of them."""

from __future__ import annotations

from textual.geometry import Offset
from textual.selection import Selection

from kvchat.ui.widgets.transcript.column import Column
from kvchat.ui.widgets.transcript.render.rows import copied
from kvchat.ui.widgets.transcript.styles import GUTTER

_ROW_BITS = 24
"""A place for a text selection is one number: the message's place, then this many bits for its row. So it stays
right when heights above it change."""


def place_of(index: int, row: int) -> int:
    """The place of a row for a text selection."""
    return index << _ROW_BITS | row


def selection_of(index: int, first: int, last: int, characters: tuple[int, int] | None) -> Selection:
    """Rows of one message. `characters`: from and up to which; None: all of them."""
    begin, end = characters or (GUTTER, GUTTER)
    return Selection(Offset(begin, place_of(index, first)), Offset(end, place_of(index, last)))


def selected_text(column: Column, selection: Selection) -> str | None:
    """The source text of what is selected; None: there are no messages."""
    if not column:
        return None
    start, end = selection
    first, first_row = divmod(start.y, 1 << _ROW_BITS) if start else (0, 0)
    last, last_row = divmod(end.y, 1 << _ROW_BITS) if end else (len(column) - 1, 0)
    parts: list[str] = []
    for index in range(first, min(last, len(column) - 1) + 1):
        begins = start is not None and index == first
        ends = end is not None and index == last
        if not begins and not ends and not column.is_drawn(index):
            item = column[index]
            parts.append(f"{item.title}\n{item.text}\n\n")
            continue
        parts.append(
            copied(
                column.entry(index).rows(),
                (first_row, max(0, start.x - GUTTER)) if start and begins else None,
                (last_row, max(0, end.x - GUTTER)) if end and ends else None,
            )
        )
    return "".join(parts).strip("\n")
