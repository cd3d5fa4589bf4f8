"""One-line bars: text in pieces, each with a tone, and the widget that draws them at both ends of a line.

The rule: what to say is decided by pure functions that return pieces; colours come from the theme by tone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget

from kvchat.ui.widgets.cells import fit

Tone = Literal["plain", "quiet", "strong", "accent", "reused", "spark", "new", "warning", "error", "badge"]


class Piece(NamedTuple):
    """A run of text in one tone."""

    text: str
    tone: Tone = "plain"


Pieces = Sequence[Piece]


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
        & .tone--plain { color: $foreground 85%; }
        & .tone--quiet { color: $text-muted; }
        & .tone--strong { color: $foreground; text-style: bold; }
        & .tone--accent { color: $text-accent; }
        & .tone--reused { color: $text-success; }
        & .tone--spark { color: $text-success; }
        & .tone--new { color: $foreground; }
        & .tone--warning { color: $text-warning; text-style: bold; }
        & .tone--error { color: $text-error; text-style: bold; }
        & .tone--badge { color: $background; background: $warning; text-style: bold; }
        &:ansi .tone--plain { color: ansi_default; }
        &:ansi .tone--quiet { color: ansi_default; text-style: dim; }
        &:ansi .tone--strong { color: ansi_default; text-style: bold; }
        &:ansi .tone--spark { color: $success; }
        &:ansi .tone--new { color: ansi_default; }
        &:ansi .tone--warning { color: $warning; text-style: bold; }
        &:ansi .tone--error { color: $error; text-style: bold; }
        &:ansi .tone--badge { color: $block-cursor-foreground; background: $block-cursor-background; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "tone--plain", "tone--quiet", "tone--strong", "tone--accent", "tone--reused", "tone--spark", "tone--new",
        "tone--warning", "tone--error", "tone--badge",
    }
    ALLOW_SELECT = False

    def pieces(self, width: int) -> tuple[Pieces, Pieces]:
        """What stands left and right in a line of `width` cells."""
        return (), ()

    def render(self) -> Content:
        width = self.content_size.width
        left, right = self.pieces(width)
        right = cut(right, width)
        left = cut(left, width - width_of(right) - (2 if right else 0))
        gap = width - width_of(left) - width_of(right)
        return Content.assemble(*(
            (piece.text, self.get_visual_style(f"tone--{piece.tone}"))
            for piece in (*left, Piece(" " * gap), *right) if piece.text))
