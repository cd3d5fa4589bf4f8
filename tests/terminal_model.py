"""A terminal as far as the screen uses it: what stands in each cell, and in which style."""

from __future__ import annotations

import re

from rich.cells import cell_len

_PIECE = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[([\d;]*)m|\x1b\]8;([^\x1b]*)\x1b\\|(\n)|([^\x1b\n]+)")
TORN = ("torn", ())
"""Half of a wide character whose other half was overwritten."""


class TerminalModel:
    """Columns and rows of (text, style); a wide character stands in its first cell, the next one holds None."""

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.cells: list[list[tuple[str, tuple[str, ...]] | None]] = [[(" ", ())] * width for _ in range(height)]
        self._x = self._y = 0
        self._style: dict[str, str] = {}
        self._link = ""

    def write(self, output: str) -> None:
        at = 0
        for found in _PIECE.finditer(output):
            assert found.start() == at, repr(output[at : at + 40])
            at = found.end()
            row, column, sgr, link, line, text = found.groups()
            if row:
                self._y, self._x = int(row) - 1, int(column) - 1
            elif sgr is not None:
                self._sgr(sgr)
            elif link is not None:
                self._link = link.split(";", 1)[1] if ";" in link else link
            elif line:
                self._y, self._x = self._y + 1, 0
            else:
                for character in text:
                    self._put(character)
        assert at == len(output)

    def _sgr(self, codes: str) -> None:
        parts = iter((codes or "0").split(";"))
        for code in parts:
            if code == "0":
                self._style.clear()
            elif code in ("38", "48"):
                kind = next(parts)
                self._style[code] = ";".join([kind, *(next(parts) for _ in range(3 if kind == "2" else 1))])
            elif code[:-1] in ("3", "9"):
                self._style["38"] = code
            elif code[:-1] in ("4", "10") and len(code) > 1:
                self._style["48"] = code
            else:
                self._style[f"a{code}"] = code

    def _put(self, character: str) -> None:
        width, row = cell_len(character), self.cells[self._y]
        if width == 0:
            before = row[self._x - 1] or row[self._x - 2]
            at = self._x - 1 if row[self._x - 1] is not None else self._x - 2
            row[at] = (before[0] + character, before[1])
            if character == "\ufe0f" and at == self._x - 1 and self._x < self.width:  # as an emoji, it is wide
                if self._x + 1 < self.width and row[self._x + 1] is None:
                    row[self._x + 1] = TORN
                row[self._x] = None
                self._x += 1
            return
        assert self._x + width <= self.width, "written beyond the edge"
        for at in range(self._x, self._x + width):
            if row[at] is None and at == self._x:
                row[at - 1] = TORN
        if self._x + width < self.width and row[self._x + width] is None:
            row[self._x + width] = TORN
        style = (*sorted(f"{name}={value}" for name, value in self._style.items()), self._link)
        row[self._x] = (character, style)
        if width == 2:
            row[self._x + 1] = None
        self._x += width
