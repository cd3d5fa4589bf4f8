"""The few tones every modal screen is painted with, and lines made of text in them.

A widget gets `Content`, never a bare string, and colours come from the theme through these tones.
"""

from __future__ import annotations

from textual.content import Content

from kvchat.ui.tones import component_rules
from kvchat.ui.widgets.sidebar_rows import Mark

MUTED = ".tone--dialog-muted"
STRONG = ".tone--strong"
ACCENT = ".tone--dialog-accent"
MATCH = ".tone--match"
BAD = ".tone--bad"
CACHED = ".tone--dialog-cached"
EVALUATED = ".tone--dialog-evaluated"
WASTED = ".tone--dialog-wasted"
WARNING = ".tone--problem"
USER = ".tone--user"

TONE_CLASSES = frozenset(
    tone[1:] for tone in (MUTED, STRONG, ACCENT, MATCH, BAD, CACHED, EVALUATED, WASTED, WARNING, USER)
)
TONE_CSS = component_rules(sorted(name.removeprefix("tone--") for name in TONE_CLASSES))

GLYPHS = {"█": CACHED, "▒": EVALUATED, "░": WASTED}
"""The three glyphs of the cache: what came from it, what was new, what need not have been evaluated."""

MARK_TONES: dict[Mark, str] = {
    "warm": CACHED,
    "parked": CACHED,
    "cold": MUTED,
    "unknown": MUTED,
    "streaming": ACCENT,
}

Part = str | tuple[str, str]


def content(*parts: Part) -> Content:
    """Safe parts, each a text or a (text, tone), as one `Content`."""
    return Content.assemble(*parts)


def joined(left: Content, right: Content, width: int) -> Content:
    """`left` and `right` at the two ends of a line of `width` cells; `left` gives way when both do not fit."""
    right = right.truncate(width, ellipsis=True)
    gap = 2 if right.cell_length else 0
    room = max(0, width - right.cell_length - gap)
    left = left.truncate(room, ellipsis=True, pad=True)
    return Content.assemble(left, " " * (width - room - right.cell_length), right)
