"""Turn style names into styles of the theme, for widgets that draw their lines themselves.

Colours come from the theme's variables only. A table replaces one component class per name: Textual applies the whole
style sheet to every component class of every widget, which is most of the time to the first paint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from textual.style import Style
from textual.widget import Widget

StyleTable = Mapping[str, str | tuple[str, str]]
"""Styles by name as Textual writes them: `bold $text-muted on $surface`. Of a pair, the second is for ANSI themes."""
_VARIABLE = re.compile(r"\$([a-z0-9-]+)")


class ThemeStyles:
    """The styles of a table on one widget. The widget calls `clear` when its own style was updated."""

    def __init__(self, widget: Widget, table: StyleTable) -> None:
        self._widget = widget
        self._table = table
        self._known: dict[tuple[str, ...], Style] = {}

    def clear(self) -> None:
        """The theme has changed."""
        self._known.clear()

    def own(self, name: str) -> Style:
        """What a name sets in this theme; nothing for an unknown name."""
        written = self._table.get(name, "")
        if not isinstance(written, str):
            written = written[self._widget.app.native_ansi_color]
        app = self._widget.app
        # Textual would drop the percentage inside a variable, as in `auto 60%`, so its text is put in first.
        text = _VARIABLE.sub(lambda variable: app.theme_variables[variable[1]], written)
        return app.stylesheet.parse_style(text)

    def style(self, *names: str) -> Style:
        """The widget's style with these names on top of it; later ones win."""
        style = self._known.get(names)
        if style is None:
            style = self._widget.visual_style
            for name in names:
                style = _over(style, self.own(name))
            self._known[names] = style
        return style


def _over(base: Style, own: Style) -> Style:
    """`own` on `base`. A colour such as `auto 60%` becomes the one that can be read on the background."""
    style = base + own
    colour = style.foreground
    if colour is not None and colour.auto and style.background is not None:
        style += Style(foreground=style.background.get_contrast_text(colour.a))
    return style
