"""Code blocks: a labelled panel whose lines are copied exactly as they were written.

A line too long for the panel continues in the next row behind a mark; no character is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace
from rich.cells import cell_len

from kvchat.sanitize import one_line
from kvchat.ui.runs import Run
from kvchat.ui.widgets.transcript.render.highlight import highlighted, highlighted_with_sync, language_of
from kvchat.ui.widgets.transcript.render.rows import Row
from kvchat.ui.widgets.transcript.render.wrap import untabbed, wrapped

FILL = "code"
ACTION = "code:"
"""What the action of a panel's first row begins with; the number of the block follows."""
COPY = "copy"
_LABEL = "code code-label"
_EDGE = Run(" ", "code", "")
_EDGE_AND_MARK = (_EDGE, Run("↪ ", _LABEL, ""))
_OPENING = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")


def label_row(info: str, fence: str, number: int, width: int) -> Row:
    """The first row of a panel: the language if one is named, and at the right what a click on it does."""
    does = COPY if width >= 24 else ""
    label = one_line(info, max(4, width - 8 - len(does)))
    gap = max(1, width - 2 - cell_len(label) - len(does))
    runs = (
        _EDGE,
        Run(label, _LABEL, f"{fence}{info}" if fence else ""),
        Run(" " * gap, _LABEL, ""),
        Run(does, _LABEL, ""),
    )
    return Row(runs, "\n" if fence else "", FILL, f"{ACTION}{number}")


def with_key(row: Row) -> Row:
    """The row of a selected message: where it is the first one of a panel it tells the key that copies the block."""
    number = row.action.removeprefix(ACTION)
    if number == row.action or len(number) > 1:
        return row
    *others, gap, does = row.runs
    words = f"press {number} to "
    if not does.text or len(gap.text) <= len(words):
        return row
    keyed = (
        Run(gap.text[len(words) :], _LABEL, ""),
        Run("press ", _LABEL, ""),
        Run(number, "code code-key", ""),
        Run(" to ", _LABEL, ""),
    )
    return replace(row, runs=(*others, *keyed, does))


def line_rows(runs: Sequence[Run], width: int) -> list[Row]:
    """One line of code."""
    if any("\t" in run.text for run in runs):
        runs = [piece for run in runs for piece in untabbed(run.text, run.tone)]
    return wrapped(runs, width, fill=FILL, first=(_EDGE,), rest=_EDGE_AND_MARK)


def code_rows(content: str, info: str, fence: str, number: int, width: int) -> list[Row]:
    """The panel of a whole code block whose `content` ends with a newline. `fence` is its marker, empty for an
    indented block; the end of a fence is not drawn but copied."""
    rows = [label_row(info, fence, number, width)]
    if content:
        for line in highlighted(content.removesuffix("\n"), language_of(info)):
            rows += line_rows(line, width)
    if fence:
        rows[-1] = replace(rows[-1], end=f"\n{fence}\n")
    return rows


class OpenFence:
    """A fence that is still being written: finished lines are coloured once, as far as that is safe."""

    def __init__(self, opening: str, number: int, width: int) -> None:
        match = _OPENING.match(opening)
        self.fence = match[1] if match else "```"
        self.info = match[2].strip() if match else ""
        self._indent = len(opening) - len(opening.lstrip(" "))
        self._closing = re.compile(rf" {{0,3}}{re.escape(self.fence[0])}{{{len(self.fence)},}}[ \t]*")
        self._width = width
        self._language = language_of(self.info)
        self._label = label_row(self.info, self.fence, number, width)
        self._settled: list[Row] = []
        self._settled_code: list[str] = []
        self.settled_lines = 0
        """Lines whose rows will not change any more."""

    def closes(self, lines: Sequence[str]) -> bool:
        """Whether one of `lines` closes the fence."""
        return any(self._closing.fullmatch(line) for line in lines)

    def code(self, lines: Sequence[str]) -> str:
        """The code in `lines`, which come after the opening."""
        return "\n".join([*self._settled_code, *map(self._unindented, lines[self.settled_lines :])])

    def rows(self, lines: Sequence[str]) -> list[Row]:
        """The panel when `lines`, the last of them unfinished, come after the opening. They may only have grown
        since the last call."""
        unsettled = [self._unindented(line) for line in lines[self.settled_lines :]]
        finished, unfinished = unsettled[:-1], unsettled[-1:]
        tail: list[Row] = []
        if finished:
            coloured, sync = highlighted_with_sync("\n".join(finished) + "\n", self._language)
            for number, runs in enumerate(coloured[: len(finished)]):
                (self._settled if number < sync else tail).extend(line_rows(runs, self._width))
            self._settled_code += finished[:sync]
            self.settled_lines += sync
        if unfinished and unfinished[0]:
            tail += line_rows([Run(unfinished[0], FILL)], self._width)
        return [self._label, *self._settled, *tail]

    def _unindented(self, line: str) -> str:
        """A line without the indentation it shares with the opening."""
        blanks = len(line) - len(line.lstrip(" "))
        return line[min(blanks, self._indent) :]
