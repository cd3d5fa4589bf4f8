"""Markdown as rows, all at once or while it streams in.

Finished blocks are drawn once. Only the last block (of a list its last item, of a table its last line, of a fence the
line being written) is drawn again when text is added, and the result is the same as if the whole text had been drawn at
once. A text that defines what its links refer to is drawn again when it is whole: definitions come last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from kvchat.commonmark import block_tokens, fenced_blocks, references_in
from kvchat.sanitize import clean
from kvchat.ui.widgets.transcript.render.blocks import Block, BlockRenderer, blocks_of, gap, start_line
from kvchat.ui.widgets.transcript.render.code import OpenFence
from kvchat.ui.widgets.transcript.render.rows import Row
from kvchat.ui.widgets.transcript.render.table import Table, TableLayout
from kvchat.ui.widgets.transcript.render.wrap import plain_rows

_RAW_LINE_BREAK = re.compile("\r\n|\n|\u2028|\u2029")
_SURE_START = re.compile(r"[^\s\d*+-]|[*+-][^\s]|\d{1,9}(?:[^\d.)]|[.)][^\s])|\d{10}")
"""A line that begins so can be no list item, whatever follows."""
_ITEM_START = re.compile(r" {0,3}(?:[-+*]|\d{1,9}[.)])[ \t]+\S")
_PIPE_LINE = re.compile(r" {0,3}\|")
_LISTS = ("bullet_list_open", "ordered_list_open")


def _units(text: str) -> list[Block] | None:
    """The blocks of `text` that can be finished one by one: top-level blocks, and the items of top-level lists.
    None when the text cannot be parsed whole."""
    tokens = block_tokens(text)
    if tokens is None:
        return None
    units: list[Block] = []
    for block in blocks_of(tokens):
        units.extend(blocks_of(block[1:-1]) if block[0].type in _LISTS else (block,))
    return units


def _is_sure(lines: Sequence[str], number: int) -> bool:
    """Whether the block that starts at line `number` surely starts there, however the text goes on. The last line
    is unfinished."""
    finished = len(lines) - 1
    if number + 1 < finished or _ITEM_START.match(lines[number]):
        return True
    after_blank = number > 0 and not lines[number - 1].strip()
    return after_blank and (number < finished or _SURE_START.match(lines[number]) is not None)


class MarkdownDocument:
    """The rows of one Markdown text that may grow at its end."""

    def __init__(self, width: int) -> None:
        self.rows: list[Row] = []
        self.codes: list[str] = []
        """The contents of code blocks in the order of their numbers."""
        self._width = width
        self._text = ""
        self._reset()

    def _reset(self) -> None:
        self._tail = 0
        """Where in the raw text the first unfinished unit begins."""
        self._settled_rows = 0
        self._settled_codes = 0
        self._previous: str | None = None
        """The kind of the last finished unit."""
        self._blank = False
        """Whether an empty line is above the first unfinished unit."""
        self._growing: _OpenFenceTail | _OpenTableTail | None = None
        """Set while the unfinished part is one fence or one table."""

    def update(self, text: str, *, final: bool = False) -> int:
        """Draw the raw `text`, which usually begins with the text drawn before; `final`: nothing will follow.
        Returns the index of the first row that changed."""
        if not text.startswith(self._text) or (final and references_in([clean(text)])):
            self._reset()
        self._text = text
        start = self._settled_rows
        lines = clean(text[self._tail :]).split("\n")
        fresh = self._growing.rows(lines, self.codes) if self._growing and not final else None
        if fresh is None:
            fresh = self._parsed(lines, final)
        changed = start + _common(self.rows, start, fresh)
        self.rows[start:] = fresh
        return changed

    def _parsed(self, lines: list[str], final: bool) -> list[Row]:
        """The rows of `lines`, the text from the tail on; units that surely end are counted as finished."""
        self._growing = None
        del self.codes[self._settled_codes :]
        text = "\n".join(lines)
        units = _units(text)
        if units is None:
            self.codes += fenced_blocks(text)
            return plain_rows(text, self._width)
        starts = [start_line(unit) for unit in units]
        sure = 0 if final else next((i for i in range(len(units) - 1, 0, -1) if _is_sure(lines, starts[i])), 0)
        texts = (token.content for unit in units for token in unit if token.type == "inline")
        references = references_in(texts) if final else ()
        renderer = BlockRenderer(lines, self.codes, references)
        rows: list[Row] = []
        previous, settled_rows = self._previous, self._settled_rows
        for index, unit in enumerate(units):
            blank = renderer.blank_above(unit) or (index == 0 and self._blank)
            if index == sure > 0:
                self._settle(settled_rows + len(rows), previous, blank, starts[index])
            kind = unit[0].type
            above = gap(previous, kind, blank)
            rows += above
            if index == len(units) - 1 and not final:
                base = starts[sure] if sure else 0
                rows += self._last(unit, renderer, lines, starts[index] - base, above, alone=index == sure)
            else:
                rows += renderer.block(unit, self._width)
            previous = kind
        return rows

    def _settle(self, rows: int, previous: str | None, blank: bool, line: int) -> None:
        """Mark everything above `line` of the tail as finished."""
        self._settled_rows = rows
        self._settled_codes = len(self.codes)
        self._previous = previous
        self._blank = blank
        if line:
            self._tail = next(islice(_RAW_LINE_BREAK.finditer(self._text, self._tail), line - 1, None)).end()

    def _last(
        self, unit: Block, renderer: BlockRenderer, lines: list[str], offset: int, above: list[Row], *, alone: bool
    ) -> list[Row]:
        """The rows of the last unit. If it is an open fence or a table and `alone` in the tail, `offset` lines
        from its begin, it is drawn by itself from now on."""
        top = start_line(unit)
        if unit[0].type == "fence" and top + 1 < len(lines):
            fence = OpenFence(lines[top], len(self.codes) + 1, self._width)
            if not fence.closes(lines[top + 1 :]):
                self.codes.append(fence.code(lines[top + 1 :]))
                if alone:
                    self._growing = _OpenFenceTail(above, fence, offset + 1)
                return fence.rows(lines[top + 1 :])
        if unit[0].type == "table_open":
            table, layout = renderer.table(unit), TableLayout(self._width)
            if alone and top + 2 < len(lines):  # before that, the line of the alignments may be unfinished
                self._growing = _OpenTableTail(above, table, layout, offset + 2)
            return layout.rows(table)
        return renderer.block(unit, self._width)


class _OpenFenceTail:
    """A fence that is being written, alone in the tail."""

    def __init__(self, above: list[Row], fence: OpenFence, first_line: int) -> None:
        self._above = above
        self._fence = fence
        self._first_line = first_line

    def rows(self, lines: list[str], codes: list[str]) -> list[Row] | None:
        """The rows of the tail; None when the fence has closed, so that the tail must be parsed."""
        body = lines[self._first_line :]
        if self._fence.closes(body[self._fence.settled_lines :]):
            return None
        codes[-1] = self._fence.code(body)
        return self._above + self._fence.rows(body)


class _OpenTableTail:
    """A table that is being written, alone in the tail."""

    def __init__(self, above: list[Row], table: Table, layout: TableLayout, first_line: int) -> None:
        self._above = above
        self._table = table
        self._layout = layout
        self._first_line = first_line
        self._finished = 0
        """Lines of the body that will not change."""

    def rows(self, lines: list[str], _codes: list[str]) -> list[Row] | None:
        """The rows of the tail; None when it may be more than the table, so that it must be parsed."""
        fresh = lines[self._first_line + self._finished :]
        if not fresh or not all(_PIPE_LINE.match(line) for line in fresh[:-1] + fresh[-1:] * bool(fresh[-1])):
            return None
        del self._table.body[self._finished :]
        for line in fresh:
            if line:
                self._table.add(line)
        self._finished += len(fresh) - 1
        return self._above + self._layout.rows(self._table)


def _common(old: Sequence[Row], start: int, fresh: Sequence[Row]) -> int:
    """How many of the `fresh` rows are the same as the `old` ones from `start` on."""
    count = 0
    for before, now in zip(islice(old, start, None), fresh, strict=False):
        if before is not now and before != now:
            break
        count += 1
    return count
