"""One-line bars: the widget that draws runs at both ends of a line, and figures drawn as blocks."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget

from kvchat.ui.runs import Run, Runs, cut, width_of
from kvchat.ui.tones import ThemeStyles

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"


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


def split_cells(tokens: Sequence[int], scale: int, width: int) -> list[int]:
    """How many cells of a bar, `width` cells wide for `scale` tokens, each part gets: at least one if it is not 0."""
    parts = [max(1, min(width, round(part / max(1, scale) * width))) if part > 0 else 0 for part in tokens]
    while sum(parts) > width and max(parts) > 1:
        parts[parts.index(max(parts))] -= 1
    return parts


class BarLine(Widget):
    """A line with runs at its left and its right end. The right end is whole; the left one is cut to fit."""

    DEFAULT_CSS = """
    BarLine {
        height: 1; width: 1fr; padding: 0 1; background: transparent; color: $foreground;
    }
    """
    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._tones = ThemeStyles(self)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._tones.clear()

    def runs(self, width: int) -> tuple[Runs, Runs]:
        """The runs at the left and at the right of a line of `width` cells."""
        return (), ()

    def render(self) -> Content:
        width = self.content_size.width
        left, right = self.runs(width)
        right = cut(right, width)
        left = cut(left, width - width_of(right) - (2 if right else 0))
        gap = width - width_of(left) - width_of(right)
        return self._tones.content([*left, Run(" " * gap, "plain"), *right])
