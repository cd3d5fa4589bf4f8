"""The colour behind a terminal's text, as the terminal says itself (OSC 11)."""

from __future__ import annotations

import re

QUERY = "\x1b]11;?\x1b\\"

_RGB = re.compile(r"rgba?:([0-9A-Fa-f]{1,4})/([0-9A-Fa-f]{1,4})/([0-9A-Fa-f]{1,4})(?:/[0-9A-Fa-f]{1,4})?")


def is_light(colour: str) -> bool | None:
    """Whether a colour as X11 writes it, `rgb:ffff/ffff/dddd`, is a light one; None for what is no such colour."""
    found = _RGB.fullmatch(colour)
    if found is None:
        return None
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
    brightness: float = 0.299 * red + 0.587 * green + 0.114 * blue
    return brightness > 0.5
