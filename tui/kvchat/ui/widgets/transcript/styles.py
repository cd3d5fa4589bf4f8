"""Turn style names into Rich styles, and rows into strips. Colours come from the theme's variables only.

There is one accent. Everything else is the text's colour, dimmed or not; code has its own few tones.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from kvchat.reports.rail import Where
from kvchat.ui.tones import ThemeStyles
from kvchat.ui.widgets.transcript.render.rows import PIXELS, Row

GUTTER = 2
"""Cells at the left of every row: the rail, and the bar of the selected message."""
RAIL = {
    Where.SLOT: ("┃", "cached"),
    Where.STORED: ("╎", "cached"),
    Where.NOWHERE: ("│", "cold"),
    Where.UNKNOWN: (" ", ""),
}
"""The rail's glyphs and their styles: colour is what is there, without a prefill."""

CSS = """
Transcript {
    width: 1fr;
    height: 1fr;
    color: $foreground;
    overflow-x: hidden;
    overflow-y: scroll;
    scrollbar-size-vertical: 1;
    scrollbar-gutter: stable;
}
"""


class StyleBook:
    """The styles of one theme, computed once per combination of names."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._theme = ThemeStyles(widget)
        self._styles: dict[str, Style] = {}

    def clear(self) -> None:
        """The theme has changed."""
        self._theme.clear()
        self._styles.clear()

    def style(self, names: str) -> Style:
        """The style of names separated by spaces; later ones win."""
        if PIXELS in names:
            return _pixels(names.rpartition(" ")[2])
        style = self._styles.get(names)
        if style is None:
            style = self._styles[names] = self._composed(names)
        return style

    def _composed(self, names: str) -> Style:
        style = self._widget.rich_style
        for name in names.split():
            own, whole = self._theme.own(name), self._theme.style(name).rich_style
            filled = own.background is not None and own.background.a > 0
            style += replace(own, foreground=None, background=None).rich_style
            style += Style.from_color(whole.color if own.foreground else None, whole.bgcolor if filled else None)
        return style

    def strip(
        self, row: Row, width: int, text_width: int, where: Where = Where.UNKNOWN, bar: str = "", tint: str = ""
    ) -> Strip:
        """A row as a strip of `width` cells, the text behind the gutter and `text_width` cells wide. `where`: what the
        rail shows; `bar`: the style of the bar of a selected message; `tint`: the background style of all of it."""
        glyph, rail = RAIL[where]
        segments = [Segment(glyph, self.style(rail)), Segment("▎" if bar else " ", self.style(f"{tint} {bar}"))]
        used = GUTTER
        for text, style, _ in row.runs:
            if text:
                segments.append(Segment(text, self.style(f"{tint} {style}" if tint else style)))
                used += cell_len(text)
        panel, fill = min(width, text_width + GUTTER), row.fill or tint
        if fill and used < panel:
            segments.append(Segment(" " * (panel - used), self.style(fill)))
            used = panel
        if used < width:
            segments.append(Segment(" " * (width - used), self.style("")))
        strip = Strip(segments, max(used, width))
        return strip if used <= width else strip.crop(0, width)


@lru_cache(maxsize=8192)
def _pixels(name: str) -> Style:
    """Two pixels, one over the other."""
    upper, _, lower = name.partition("/")
    return Style(color=upper, bgcolor=lower)


def restyled(strip: Strip, start: int, stop: int | None, style: Style) -> Strip:
    """The strip with the characters from `start` to `stop` (None: the end) in another style on top."""
    segments: list[Segment] = []
    position = 0
    for segment in strip:
        text, own, control = segment
        begin, position = position, position + len(text)
        low = max(start - begin, 0)
        high = len(text) if stop is None else min(stop - begin, len(text))
        if low >= high:
            segments.append(segment)
            continue
        if low:
            segments.append(Segment(text[:low], own, control))
        segments.append(Segment(text[low:high], own + style if own else style, control))
        if high < len(text):
            segments.append(Segment(text[high:], own, control))
    return Strip(segments, strip.cell_length)
