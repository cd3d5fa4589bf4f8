"""An image in the conversation: two pixels in each cell, one over the other."""

from __future__ import annotations

from itertools import groupby

from kvchat.prompt.images import Thumbnail
from kvchat.ui.runs import Run
from kvchat.ui.widgets.transcript.render.rows import PIXELS, Row

HALF = "▀"


def picture_rows(picture: Thumbnail, width: int) -> list[Row]:
    """An image as rows that a copy leaves out; none where it is wider than `width` cells."""
    if picture.width > width:
        return []
    lines = [picture.rgb[at : at + 3 * picture.width] for at in range(0, len(picture.rgb), 3 * picture.width)]
    if len(lines) % 2:
        lines.append(lines[-1])
    return [_row(upper, lower) for upper, lower in zip(lines[::2], lines[1::2], strict=True)]


def _row(upper: bytes, lower: bytes) -> Row:
    cells = [f"{PIXELS}{upper[at : at + 3].hex()}/{PIXELS}{lower[at : at + 3].hex()}" for at in range(0, len(upper), 3)]
    return Row(tuple(Run(HALF * len(list(same)), style, "") for style, same in groupby(cells)), "")
