"""The screen without colours, for NO_COLOR (https://no-color.org): bold, dim, underlined, reversed.

No colour reaches the terminal. Textual's own way with NO_COLOR is shades of grey, which are colours. What a theme of
the terminal's own colours marks by a background (a cursor, a selection, a match) is reversed instead.
"""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

_DEFAULT = Style(color=RichColor.default(), bgcolor=RichColor.default())


class Colourless(LineFilter):
    """Takes the colours out. The only filter of colours in `App.get_line_filters`."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments in the terminal's own two colours."""
        return [
            Segment(text, None if style is None else _colourless(style), control) for text, style, control in segments
        ]


@lru_cache(4096)
def _colourless(style: Style) -> Style:
    marked = style.bgcolor is not None and not style.bgcolor.is_default
    return style + _DEFAULT + Style(reverse=not style.reverse) if marked else style + _DEFAULT


COLOURLESS = Colourless()
