"""Tables: columns aligned and wrapped to the width.

Every cell's text is drawn, cells beyond the header's columns too; when the columns cannot fit, or the lines are too
many, the table is shown as it was written.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from kvchat.commonmark import References
from kvchat.ui.runs import Run, width_of
from kvchat.ui.widgets.transcript.render.inline import inline_lines
from kvchat.ui.widgets.transcript.render.rows import Row
from kvchat.ui.widgets.transcript.render.wrap import plain_rows, wrapped

_BAR = Run(" │ ", "border", " | ")
MOST_LINES = 2000
"""Lines of a table that are laid out: 0.2 s."""
MIN_COLUMN = 4
"""Cells a column keeps when the table is too wide."""


class TableLine(Struct, frozen=True):
    """One row of a table."""

    cells: tuple[str, ...]
    source: str
    """The line as it was written."""


class Table(Struct):
    """A table that can grow by rows at its end."""

    header: TableLine
    delimiter: str
    aligns: tuple[str, ...]
    """`left`, `right`, `center` for every column."""
    body: list[TableLine] = field(default_factory=list)

    def add(self, line: str) -> None:
        self.body.append(table_line(line.strip(), len(self.aligns)))


def cells_of(line: str) -> list[str]:
    """The cells of a line of a table, as the table extension splits it: an escaped pipe is part of a cell."""
    cells, current, escaped = [], "", False
    for character in line.strip():
        if character == "|" and not escaped:
            cells.append(current)
            current = ""
        elif character == "|":
            current = current[:-1] + "|"
        else:
            current += character
        escaped = character == "\\"
    cells.append(current)
    if cells and not cells[0]:
        cells.pop(0)
    if cells and not cells[-1]:
        cells.pop()
    return [cell.strip() for cell in cells]


def table_line(line: str, columns: int) -> TableLine:
    """A body row of a table of `columns` columns; what is too much goes into the last cell."""
    cells = cells_of(line)
    if len(cells) > columns:
        cells[columns - 1 :] = [" | ".join(cells[columns - 1 :])]
    return TableLine(tuple(cells + [""] * (columns - len(cells))), line)


class TableLayout:
    """Draws one table again and again while it grows: a line's rows are kept as long as the column widths stay."""

    def __init__(self, width: int, references: References = ()) -> None:
        self._width = width
        self._references = references
        self._columns: list[int] | None = None
        self._drawn: dict[TableLine, list[Row]] = {}
        self._naturals: dict[TableLine, list[int]] = {}

    def rows(self, table: Table) -> list[Row]:
        naturals: Sequence[int] = [3] * len(table.aligns)
        many = len(table.body) > MOST_LINES
        for line in () if many else (table.header, *table.body):
            naturals = list(map(max, naturals, self._naturals_of(line)))
        columns = None if many else fitted(naturals, self._width)
        if columns is None:
            source = "\n".join([table.header.source, table.delimiter, *(line.source for line in table.body)])
            return plain_rows(source, self._width)
        if columns != self._columns:
            self._columns = columns
            self._drawn.clear()
        rows = [
            *_line_rows(table.header, columns, table.aligns, "th", self._references),
            _rule(table.delimiter, columns),
        ]
        for line in table.body:
            drawn = self._drawn.get(line)
            if drawn is None:
                drawn = self._drawn[line] = _line_rows(line, columns, table.aligns, "", self._references)
            rows += drawn
        return rows

    def _naturals_of(self, line: TableLine) -> list[int]:
        """The cells that each cell of a line needs to be drawn in one piece."""
        found = self._naturals.get(line)
        if found is None:
            texts = (inline_lines(cell, "", self._references) for cell in line.cells)
            found = self._naturals[line] = [max(map(width_of, lines)) for lines in texts]
        return found


def fitted(naturals: Sequence[int], width: int) -> list[int] | None:
    """Column widths for a table of `width` cells: narrow columns keep their natural width, wide ones share the
    rest. None when there is no room for `MIN_COLUMN` cells each."""
    room = width - 3 * (len(naturals) - 1)
    if sum(naturals) <= room:
        return list(naturals)
    columns = [0] * len(naturals)
    order = sorted(range(len(naturals)), key=naturals.__getitem__)
    for position, column in enumerate(order):
        share = room // (len(order) - position)
        columns[column] = min(naturals[column], share)
        if columns[column] < min(MIN_COLUMN, naturals[column]):
            return None
        room -= columns[column]
    return columns


def _rule(delimiter: str, columns: Sequence[int]) -> Row:
    return Row((Run("─┼─".join("─" * column for column in columns), "border", delimiter),))


def _padding(room: int, align: str) -> tuple[str, str]:
    if align == "right":
        return " " * room, ""
    if align == "center":
        return " " * (room // 2), " " * (room - room // 2)
    return "", " " * room


def _line_rows(
    line: TableLine, columns: Sequence[int], aligns: Sequence[str], style: str, references: References
) -> list[Row]:
    """The rows of one line of a table, as many as its tallest cell needs."""
    cells = [
        [row for text in inline_lines(cell, style, references) for row in wrapped(text, column)]
        for cell, column in zip(line.cells, columns, strict=True)
    ]
    height = max(len(rows) for rows in cells)
    out: list[Row] = []
    for number in range(height):
        runs: list[Run] = [Run("", "", "| ")]
        for index, rows in enumerate(cells):
            if index:
                runs.append(_BAR)
            content = rows[number].runs if number < len(rows) else ()
            before, after = _padding(columns[index] - width_of(content), aligns[index])
            runs += [Run(before, style, ""), *content, Run(after, style, "")]
        runs.append(Run("", "", " |"))
        out.append(Row(tuple(runs)))
    plain = height == 1 and not any("|" in cell for cell in line.cells)
    return out if plain else _copied_whole(out, line.source)


def _copied_whole(rows: list[Row], source: str) -> list[Row]:
    """Rows whose cells do not add up to the source, cut or escaped: any part of them copies the whole line."""
    out = []
    for number, row in enumerate(rows):
        mute = tuple(run.uncopied() for run in row.runs if run.text)
        head = (Run("", "", source),) if number == 0 else ()
        out.append(Row(head + mute, "\n" if number == len(rows) - 1 else ""))
    return out
