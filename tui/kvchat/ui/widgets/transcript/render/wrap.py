"""Word wrap by terminal cells.

Nothing is lost. The white space at a break is kept as the row's end, and a word longer than the row is broken between
grapheme clusters.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from rich.cells import cell_len, split_graphemes

from kvchat.clusters import clusters
from kvchat.ui.runs import Run, width_of
from kvchat.ui.widgets.transcript.render.rows import Row, prefixed

_ONE_CELL = re.compile(
    "[ -~\u00a0-\u00ac\u00ae-\u02ff\u0370-\u0377\u0391-\u03a1\u03a3-\u0482\u048a-\u052f\u1e00-\u1eff"
    "\u2010-\u2027\u2030-\u203b\u203d-\u2048\u20a0-\u20bf\u2200-\u22ff\u2500-\u257f]*"
)
"""Text in which every character is one cell, so that positions can be computed instead of measured."""
_NOT_AT_ROW_START = frozenset("、。，．！？：；）」』】〉》〕ーっッゃゅょャュョ々…")
TAB = 4


def one_cell_each(text: str) -> bool:
    """Whether every character of `text` surely takes one cell."""
    return _ONE_CELL.fullmatch(text) is not None


def breaks(text: str, width: int) -> list[tuple[int, int]]:
    """The (start, stop) character positions of the rows that `text`, one line without tabs, wraps to.
    What lies between a stop and the next start is white space."""
    width = max(1, width)
    if len(text) <= width and one_cell_each(text):
        return [(0, len(text))]
    return list(_narrow_breaks(text, width) if one_cell_each(text) else _wide_breaks(text, width))


def _narrow_breaks(text: str, width: int) -> Iterator[tuple[int, int]]:
    start, length = 0, len(text)
    while length - start > width:
        cut = text.rfind(" ", start, start + width + 1)
        stop = len(text[start:cut].rstrip(" ")) + start if cut > start else start
        if stop == start:
            yield start, start + width
            start += width
            continue
        yield start, stop
        start = cut + 1
        while start < length and text[start] == " ":
            start += 1
        if start == length:
            return
    yield start, length


def _wide_breaks(text: str, width: int) -> Iterator[tuple[int, int]]:
    """As above for text with characters of no, one or two cells. A break is possible at a space and next to a character
    of two cells, but not in front of closing punctuation."""
    start, used = 0, 0
    stop = resume = -1
    used_at_resume = 0
    previous_wide = False
    for begin, end, cells in _characters(text):
        character = text[begin]
        wide = cells == 2
        between_wide = (wide or previous_wide) and character != " " and character not in _NOT_AT_ROW_START
        if between_wide and begin > start and resume != begin:
            stop, resume, used_at_resume = begin, begin, used
        if used + cells > width and begin > start and character != " ":
            if stop <= start:
                stop, resume, used_at_resume = begin, begin, used
            yield start, stop
            start, used = resume, used - used_at_resume
            stop = resume = -1
        used += cells
        if character == " " and text[start:begin].strip(" "):
            if resume != begin:
                stop = begin
            resume, used_at_resume = end, used
        previous_wide = wide
    yield start, len(text)


def _characters(text: str) -> Iterator[tuple[int, int, int]]:
    """Start, stop and cells of each character as its reader has it: those of Rich, joined where a cluster has more."""
    joined = iter(clusters(text))
    cluster = next(joined, None)
    first, whole = 0, 0
    for _, end, cells in split_graphemes(text)[0]:
        whole += cells
        while cluster is not None and cluster[1] <= end:
            cluster = next(joined, None)
        if cluster is None or end <= cluster[0]:
            yield first, end, whole
            first, whole = end, 0


def sliced(runs: Sequence[Run], bounds: Iterable[tuple[int, int]]) -> Iterator[tuple[tuple[Run, ...], str]]:
    """The runs of every (start, stop) row, and the source of what was left out after it. A run across an edge is
    cut; a closing marker at the edge stays with the text before it."""
    number = offset = position = 0  # the next run, the next character in it, and in all of them

    def taken(stop: int) -> tuple[Run, ...]:
        nonlocal number, offset, position
        found: list[Run] = []
        while number < len(runs):
            run = runs[number]
            if position >= stop and (run.text or run.tone != "close"):
                break
            end = min(len(run.text), offset + stop - position)
            if end - offset == len(run.text):
                found.append(run)
            else:
                source = "" if offset and run.source is not None else run.source
                found.append(Run(run.text[offset:end], run.tone, source))
            position += end - offset
            number, offset = (number + 1, 0) if end == len(run.text) else (number, end)
        return tuple(found)

    limits = list(bounds)
    for (_, stop), (start, _) in pairwise(limits):
        kept = taken(stop)
        yield kept, "".join(s.text if s.source is None else s.source for s in taken(start))
    yield taken(sys.maxsize), ""


def wrapped(
    runs: Sequence[Run],
    width: int,
    *,
    end: str = "\n",
    fill: str = "",
    first: Sequence[Run] = (),
    rest: Sequence[Run] = (),
) -> list[Row]:
    """The rows of one line of `runs`; `first` and `rest` are put before the first row and the others and take
    their part of `width`."""
    room = max(1, width - max(width_of(first), width_of(rest)))
    text = "".join(run.text for run in runs)
    if len(text) <= room and one_cell_each(text):
        rows = [Row(tuple(runs), end, fill)]
    else:
        parts = list(sliced(runs, breaks(text, room)))
        rows = [Row(kept, skipped, fill) for kept, skipped in parts[:-1]]
        rows.append(Row(parts[-1][0], end, fill))
    return prefixed(rows, first, rest) if first or rest else rows


def untabbed(text: str, style: str = "") -> list[Run]:
    """One line as runs in which a tab is drawn as spaces up to the next stop and copied as a tab."""
    if "\t" not in text:
        return [Run(text, style)] if text else []
    runs: list[Run] = []
    column = 0
    for index, part in enumerate(text.split("\t")):
        if index:
            gap = TAB - column % TAB
            runs.append(Run(" " * gap, style, "\t"))
            column += gap
        if part:
            runs.append(Run(part, style))
            column += cell_len(part)
    return runs


def plain_rows(
    text: str, width: int, style: str = "", *, first: Sequence[Run] = (), rest: Sequence[Run] = ()
) -> list[Row]:
    """The rows of clean `text` exactly as it is: line breaks and indentation stay, long lines are wrapped."""
    rows: list[Row] = []
    head, room = first, 0 if first or rest else width
    for line in text.split("\n"):
        if 0 < len(line) <= room and one_cell_each(line):
            rows.append(Row((Run(line, style),)))
        else:
            rows.extend(wrapped(untabbed(line, style), width, first=head, rest=rest))
        head = rest
    return rows
