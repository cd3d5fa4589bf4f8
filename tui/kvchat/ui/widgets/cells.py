"""Text measured in terminal cells: cut to a width, and the small drawings made of block characters."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"


def fit(text: str, width: int) -> str:
    """`text` in at most `width` cells; what does not fit ends with …."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…"


def bar(fraction: float, width: int) -> str:
    """A bar of exactly `width` cells, filled from the left in steps of an eighth of a cell. Anything above 0 shows."""
    eighths = round(min(1.0, max(0.0, fraction)) * width * 8)
    if fraction > 0:
        eighths = max(1, eighths)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[rest] if rest else "")).ljust(width)


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The last `width` values between 0 and 1 as ▁ to █, an unknown one as ·, right-aligned in `width` cells."""
    marks = ["·" if v is None else LEVELS[min(7, int(max(0.0, v) * 8))] for v in values[-width:]]
    return "".join(marks).rjust(width)
