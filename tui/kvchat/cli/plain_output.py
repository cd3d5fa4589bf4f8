"""Plain output: model text and tables on a terminal or in a pipe, without a screen.

Every text goes through `clean` on its way out. Nothing raises for what the terminal cannot show or for a
reader that has gone; `Printer.gone` says so, and the caller stops.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from typing import TextIO

from kvchat.commands.command import TableColumn as TableColumn
from kvchat.prompt.wire import whole_characters
from kvchat.sanitize import clean, one_line

GAP = "  "
NARROWEST = 8
"""Cells that a column which may shrink keeps while another can still give."""

_SPLIT_AT_END = re.compile("(?:\r|[\ud800-\udbff])\\Z")


class Printer:
    """Writes foreign text to a stream as it comes, safe to show, flushed at every write."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._held = ""
        self._at_line_start = True
        self.gone = False
        """Whether the reader has closed the stream (`kvchat ... | head`): what is written now is dropped."""

    def write(self, text: str) -> None:
        """Write a piece of text. A CRLF or a surrogate pair split over two pieces is joined first."""
        text = self._held + text
        self._held = ""
        if split := _SPLIT_AT_END.search(text):
            text, self._held = text[: split.start()], split[0]
        self._put(clean(whole_characters(text)))

    def line(self, text: str = "") -> None:
        """Write `text` as a line of its own."""
        self.end()
        self._put(clean(whole_characters(text)) + "\n")

    def end(self) -> None:
        """End the text: what was held back comes, and the line is ended if it is not."""
        held, self._held = self._held, ""
        self._put(clean(whole_characters(held)))
        if not self._at_line_start:
            self._put("\n")

    def _put(self, text: str) -> None:
        if self.gone or not text:
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except (BrokenPipeError, ValueError):  # ValueError: the stream is closed
            self.gone = True
            _silence(self._stream)
            return
        self._at_line_start = text.endswith("\n")


def _silence(stream: TextIO) -> None:
    """Point the stream nowhere, or Python complains about the pipe again when it flushes at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):  # no file behind it
        pass


def width_of(stream: TextIO | None = None) -> int | None:
    """The columns of the terminal behind `stream` (standard output); None when it is a file or a pipe."""
    stream = stream or sys.stdout
    try:
        if not stream.isatty():
            return None
    except ValueError:  # closed
        return None
    return shutil.get_terminal_size().columns


def cells(text: str) -> int:
    """How many columns `text`, one line, takes: wide characters two, combining marks and joiners none."""
    if text.isascii():
        return len(text)
    return sum(_cell(char) for char in text)


def _cell(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fitted(text: str, width: int) -> str:
    """`text` cut to at most `width` columns, with … at the end if something is missing."""
    if cells(text) <= width:
        return text
    if width < 1:
        return ""
    kept, used = [], 0
    for char in text:
        used += _cell(char)
        if used > width - 1:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"


def table(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """The lines of a plain table, the titles first if there are any; each at most `width` columns wide.

    Without a width nothing is cut, so that a pipe gets the whole text.
    """
    shown = [[one_line(text) for text in row] for row in rows]
    titles = [column.title for column in columns]
    if any(titles):
        shown.insert(0, titles)
    widths = [max((cells(row[index]) for row in shown), default=0) for index in range(len(columns))]
    if width is not None:
        widths = _squeeze(columns, widths, width)
    lines = [_row(columns, row, widths) for row in shown]
    return lines if width is None else [fitted(line, width) for line in lines]


def print_table(
    rows: Sequence[Sequence[str]], columns: Sequence[TableColumn] = (), stream: TextIO | None = None
) -> None:
    """Print a table to `stream` (standard output), as wide as its terminal. Without `columns` the last one shrinks."""
    stream = stream or sys.stdout
    if rows and not columns:
        columns = [*(TableColumn() for _ in rows[0][1:]), TableColumn(shrinks=True)]
    Printer(stream).write("".join(f"{line}\n" for line in table(columns, rows, width_of(stream))))


def _squeeze(columns: Sequence[TableColumn], widths: list[int], width: int) -> list[int]:
    """`widths` with the columns that shrink made narrower, the widest first, until a row fits."""
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width
    shrinking = [index for index, column in enumerate(columns) if column.shrinks]
    while over > 0:
        widest = max((index for index in shrinking if widths[index] > NARROWEST), key=lambda i: widths[i], default=None)
        if widest is None:
            break
        widths[widest] -= 1
        over -= 1
    return widths


def _row(columns: Sequence[TableColumn], row: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for column, text, width in zip(columns, row, widths, strict=True):
        text = fitted(text, width)
        pad = " " * (width - cells(text))
        parts.append(pad + text if column.right else text + pad)
    return GAP.join(parts).rstrip()
