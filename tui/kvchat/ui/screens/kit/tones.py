"""The few tones every modal screen is painted with, and text from outside made safe for them.

A widget gets `Content`, never a bare string, and colours come from the theme through these tones.
"""

from __future__ import annotations

import os
from pathlib import Path

from textual.content import Content

from kvchat.prompt.context import removed
from kvchat.sanitize import one_line
from kvchat.text.format import counted
from kvchat.ui.runs import fit
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


def shown(text: str, width: int) -> str:
    """Text from outside on one line of at most `width` cells."""
    return fit(one_line(text, max(1, width)), width)


def home_path(path: Path | str) -> str:
    """A path as it is shown: below the home folder with ~."""
    text, home = str(path), str(Path.home())
    return one_line(f"~{text[len(home) :]}" if text.startswith(home + os.sep) else text)


def removed_words(text: str) -> str:
    """`3 invisible characters removed`: what is not shown, and not sent, of a foreign text; empty where it has none."""
    gone = removed(text)
    return f"{counted(gone, 'invisible character')} removed" if gone else ""


def joined(left: Content, right: Content, width: int) -> Content:
    """`left` and `right` at the two ends of a line of `width` cells; `left` gives way when both do not fit."""
    right = right.truncate(width, ellipsis=True)
    gap = 2 if right.cell_length else 0
    room = max(0, width - right.cell_length - gap)
    left = left.truncate(room, ellipsis=True, pad=True)
    return Content.assemble(left, " " * (width - room - right.cell_length), right)
