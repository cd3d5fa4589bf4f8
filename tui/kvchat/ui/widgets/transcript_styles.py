"""Style names become Rich styles, rows become strips. Colours come from the theme's variables only.

The rule: one accent. Everything else is the text's colour, dimmed or not; code has its own few tones.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from kvchat.ui.render.rows import Row

GUTTER = 2
"""Cells at the left of every row: the bar of the selected message, and a space."""

NAMES = (
    "bar", "bar-blurred", "title-user", "title-model", "versions", "key", "muted", "accent", "warning", "error",
    "error-text", "fold", "fold-mark", "reasoning", "reused", "evaluated", "avoidable", "strong", "em", "s",
    "code-inline", "link", "url", "heading", "h1", "h2", "h3", "h4", "h5", "h6", "bullet", "quote", "quote-bar", "rule",
    "border", "th", "code", "code-label", "code-edge", "code-key", "comment", "keyword", "string", "number", "name",
    "builtin", "deleted", "inserted", "find", "find-current", "more",
)
"""The style names that rows may use, as component classes `transcript--NAME`."""

COMPONENTS = frozenset(f"transcript--{name}" for name in NAMES)

CSS = """
TranscriptView {
    width: 1fr;
    height: 1fr;
    color: $foreground;
    overflow-x: hidden;
    overflow-y: scroll;
    scrollbar-size-vertical: 1;
    scrollbar-gutter: stable;

    & > .transcript--bar { color: $accent; }
    & > .transcript--bar-blurred { color: $text-disabled; }
    & > .transcript--title-user { text-style: bold; }
    & > .transcript--title-model { color: $text-accent; text-style: bold; }
    & > .transcript--versions { color: $text-muted; }
    & > .transcript--key { color: $text-accent; }
    & > .transcript--muted { color: $text-muted; }
    & > .transcript--accent { color: $text-accent; }
    & > .transcript--warning { color: $text-warning; }
    & > .transcript--error { color: $text-error; }
    & > .transcript--error-text { color: $foreground; }
    & > .transcript--fold { color: $text-muted; }
    & > .transcript--fold-mark { color: $text-muted; }
    & > .transcript--reasoning { color: $text-muted; }
    & > .transcript--reused { color: $text-success; }
    & > .transcript--evaluated { color: $text-accent; }
    & > .transcript--avoidable { color: $text-warning; }
    & > .transcript--strong { text-style: bold; }
    & > .transcript--em { text-style: italic; }
    & > .transcript--s { text-style: strike; }
    & > .transcript--code-inline { background: $surface; }
    & > .transcript--link { text-style: underline; }
    & > .transcript--url { color: $text-muted; }
    & > .transcript--heading { text-style: bold; }
    & > .transcript--h1 { text-style: bold underline; }
    & > .transcript--h5 { color: $text-muted; }
    & > .transcript--h6 { color: $text-muted; }
    & > .transcript--bullet { color: $text-muted; }
    & > .transcript--quote { color: $text-muted; }
    & > .transcript--quote-bar { color: $text-disabled; }
    & > .transcript--rule { color: $text-disabled; }
    & > .transcript--border { color: $text-disabled; }
    & > .transcript--th { text-style: bold; }
    & > .transcript--code { background: $surface; }
    & > .transcript--code-label { color: $text-muted; }
    & > .transcript--code-edge { color: $text-disabled; }
    & > .transcript--code-key { color: $text-accent; }
    & > .transcript--comment { color: $text-muted; text-style: italic; }
    & > .transcript--keyword { color: $text-primary; text-style: bold; }
    & > .transcript--string { color: $text-success; }
    & > .transcript--number { color: $text-warning; }
    & > .transcript--name { color: $text-accent; }
    & > .transcript--builtin { color: $text-primary; }
    & > .transcript--deleted { color: $text-error; }
    & > .transcript--inserted { color: $text-success; }
    & > .transcript--find { background: $warning-muted; color: $text; }
    & > .transcript--find-current { background: $warning; color: $background; text-style: bold; }
    & > .transcript--more { background: $accent; color: $background; }

    &:ansi {
        & > .transcript--bar-blurred, & > .transcript--muted, & > .transcript--versions, & > .transcript--fold,
        & > .transcript--fold-mark, & > .transcript--reasoning, & > .transcript--url, & > .transcript--bullet,
        & > .transcript--quote, & > .transcript--quote-bar, & > .transcript--rule, & > .transcript--border,
        & > .transcript--code-label, & > .transcript--code-edge, & > .transcript--comment { text-style: dim; }
        & > .transcript--code-inline { color: $text-accent; }
        & > .transcript--find { background: ansi_yellow; color: ansi_black; }
        & > .transcript--find-current { background: ansi_bright_yellow; color: ansi_black; }
        & > .transcript--more { color: ansi_black; }
    }
}
"""


class StyleBook:
    """The styles of one theme, computed once per combination of names."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._styles: dict[str, Style] = {}

    def clear(self) -> None:
        """The theme has changed."""
        self._styles.clear()

    def style(self, names: str) -> Style:
        """The style of names separated by spaces; later ones win."""
        style = self._styles.get(names)
        if style is None:
            style = self._styles[names] = self._composed(names)
        return style

    def _composed(self, names: str) -> Style:
        style = self._widget.rich_style
        for name in names.split():
            component = f"transcript--{name}"
            if component not in COMPONENTS:
                continue
            rules = self._widget.get_component_styles(component)
            whole = self._widget.get_component_rich_style(component)
            coloured = rules.has_rule("color") or rules.has_rule("auto_color")
            filled = rules.has_rule("background") and rules.background.a > 0
            style += Style.from_color(whole.color if coloured else None, whole.bgcolor if filled else None)
            style += rules.text_style
        return style

    def strip(self, row: Row, width: int, text_width: int, bar: str = "") -> Strip:
        """A row as a strip of `width` cells, the text behind the gutter and `text_width` cells wide; `bar` is the style
        of the bar of a selected message."""
        segments = [Segment("▎ ", self.style(bar)) if bar else Segment("  ", self.style(""))]
        used = GUTTER
        for text, style, _ in row.spans:
            if text:
                segments.append(Segment(text, self.style(style)))
                used += cell_len(text)
        panel = min(width, text_width + GUTTER)
        if row.fill and used < panel:
            segments.append(Segment(" " * (panel - used), self.style(row.fill)))
            used = panel
        if used < width:
            segments.append(Segment(" " * (width - used), self.style("")))
        strip = Strip(segments, max(used, width))
        return strip if used <= width else strip.crop(0, width)


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
