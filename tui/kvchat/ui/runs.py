"""Text in runs, each in one tone: what every line that kvchat draws itself is made of, measured in terminal cells.

Pure functions decide what to say and return runs; `ui.tones` has the look of a tone in the theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from kvchat.clusters import outside
from kvchat.sanitize import one_line


class Run(NamedTuple):
    """A run of text in one tone."""

    text: str
    """What is drawn. Empty for markup that is in the source but not on the screen."""
    tone: str = ""
    """Names of `ui.tones.TONES` separated by spaces, applied from left to right."""
    source: str | None = None
    """What a copy gives; None: the drawn text."""

    def uncopied(self) -> Run:
        """The same, drawn but not copied."""
        return Run(self.text, self.tone, "")


Runs = Sequence[Run]


def fit(text: str, width: int) -> str:
    """`text` in at most `width` cells; what does not fit ends with …."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return text
    kept = set_cell_size(text, width - 1).rstrip()
    return kept[: outside(text, len(kept))].rstrip() + "…"


def shown(text: str, width: int) -> str:
    """Text from outside on one line of at most `width` cells."""
    return fit(one_line(text, max(1, width)), width)


def ending(text: str, width: int) -> str:
    """`text` in at most `width` cells; of a longer one the end: it tells files from each other."""
    if cell_len(text) <= width:
        return text
    rest = text
    while rest and cell_len(rest) >= width:
        rest = rest[max(1, (cell_len(rest) - width) // 2) :]
    return f"…{text[outside(text, len(text) - len(rest), forward=True) :]}"


def width_of(runs: Iterable[Run]) -> int:
    """Cells that `runs` take."""
    return sum(cell_len(run.text) for run in runs)


def plain(runs: Iterable[Run]) -> str:
    """The text alone."""
    return "".join(run.text for run in runs)


def cut(runs: Runs, width: int) -> list[Run]:
    """`runs` in at most `width` cells; the last one that does not fit ends with …."""
    out: list[Run] = []
    for run in runs:
        room = width - width_of(out)
        if room <= 0:
            break
        text = fit(run.text, room)
        if text == "…" and plain(out).endswith("…"):
            break  # the one before says so
        out.append(Run(text, run.tone))
        if cell_len(run.text) > room:
            break
    return out


def joined(groups: Sequence[Runs], separator: Run) -> list[Run]:
    """The groups in one line with `separator` between them; empty groups are left out."""
    out: list[Run] = []
    for group in groups:
        if group:
            out += [separator, *group] if out else group
    return out
