"""One-line bars: text in pieces, each with a tone, measured in terminal cells, and the widget that draws them at both
ends of a line.

Pure functions decide what to say and return pieces; colours come from the theme by tone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from rich.cells import cell_len, set_cell_size
from textual.content import Content
from textual.widget import Widget

from kvchat.clusters import outside
from kvchat.ui.widgets.theme_styles import StyleTable, ThemeStyles

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"


def fit(text: str, width: int) -> str:
    """`text` in at most `width` cells; what does not fit ends with …."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return text
    kept = set_cell_size(text, width - 1).rstrip()
    return kept[: outside(text, len(kept))].rstrip() + "…"


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


Tone = Literal[
    "plain", "quiet", "strong", "accent", "cached", "new", "other", "evaluated", "wasted", "warning", "error", "badge"
]


class Piece(NamedTuple):
    """A run of text in one tone."""

    text: str
    tone: Tone = "plain"


Pieces = Sequence[Piece]

TONES: StyleTable = {
    "plain": ("$foreground 85%", "ansi_default"),
    "quiet": ("$text-muted", "dim ansi_default"),
    "strong": ("bold $foreground", "bold ansi_default"),
    "accent": "$text-accent",
    "cached": "$cache-cached",
    "new": ("$foreground", "ansi_default"),
    "other": ("$foreground 45%", "dim ansi_default"),
    "evaluated": "$cache-evaluated",
    "wasted": "$cache-wasted",
    "warning": ("bold $text-warning", "bold $warning"),
    "error": ("bold $text-error", "bold $error"),
    "badge": ("bold $background on $warning", "bold $block-cursor-foreground on $block-cursor-background"),
}


def width_of(pieces: Pieces) -> int:
    """Cells that `pieces` take."""
    return sum(cell_len(piece.text) for piece in pieces)


def plain(pieces: Pieces) -> str:
    """The text alone."""
    return "".join(piece.text for piece in pieces)


def cut(pieces: Pieces, width: int) -> list[Piece]:
    """`pieces` in at most `width` cells; the last one that does not fit ends with …."""
    out: list[Piece] = []
    for piece in pieces:
        room = width - width_of(out)
        if room <= 0:
            break
        out.append(Piece(fit(piece.text, room), piece.tone))
        if cell_len(piece.text) > room:
            break
    return out


def joined(groups: Sequence[Pieces], separator: Piece) -> list[Piece]:
    """The groups in one line with `separator` between them; empty groups are left out."""
    out: list[Piece] = []
    for group in groups:
        if group:
            out += [separator, *group] if out else group
    return out


class PieceLine(Widget):
    """A line with pieces at its left and its right end. The right end is whole; the left one is cut to fit."""

    DEFAULT_CSS = """
    PieceLine {
        height: 1; width: 1fr; padding: 0 1; background: transparent; color: $foreground;
    }
    """
    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._tones = ThemeStyles(self, TONES)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._tones.clear()

    def pieces(self, width: int) -> tuple[Pieces, Pieces]:
        """The pieces at the left and at the right of a line of `width` cells."""
        return (), ()

    def render(self) -> Content:
        width = self.content_size.width
        left, right = self.pieces(width)
        right = cut(right, width)
        left = cut(left, width - width_of(right) - (2 if right else 0))
        gap = width - width_of(left) - width_of(right)
        return Content.assemble(
            *((piece.text, self._tones.style(piece.tone)) for piece in (*left, Piece(" " * gap), *right) if piece.text)
        )
