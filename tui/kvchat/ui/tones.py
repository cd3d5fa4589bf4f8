"""The tones of text and their styles in the theme, for widgets that draw their lines themselves.

Colours come from the theme's variables only. The table replaces one component class per name: Textual applies the whole
style sheet to every component class of every widget, which is most of the time to the first paint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from kvchat.ui.runs import Runs

TONES: Mapping[str, str | tuple[str, str]] = {
    # any text
    "plain": ("$foreground 85%", "ansi_default"),
    "quiet": ("$text-muted", "dim ansi_default"),
    "bright": ("bold $foreground", "bold ansi_default"),
    "accent": "$text-accent",
    "warning": "$text-warning",
    "error": "$text-error",
    "cached": "$cache-cached",
    "evaluated": "$cache-evaluated",
    "wasted": "$cache-wasted",
    # the bars at the edges of the screen, and the panel
    "new": ("$foreground", "ansi_default"),
    "other": ("$foreground 45%", "dim ansi_default"),
    "alert": ("bold $text-warning", "bold $warning"),
    "failure": ("bold $text-error", "bold $error"),
    "badge": ("bold $background on $warning", "bold $block-cursor-foreground on $block-cursor-background"),
    # the line over the composer
    "line": "$rule",
    "problem": ("$text-warning", "ansi_yellow"),
    # the list of conversations
    "dot": "bold $text-accent",
    "unknown": ("$foreground 40%", "dim ansi_default"),
    "shown": ("on $foreground 10%", "bold on ansi_default"),
    "hover": ("on $foreground 5%", "underline on ansi_default"),
    "cursor": ("on $primary 35%", "$block-cursor-foreground on $block-cursor-background"),
    # the dialogs
    "dialog-muted": ("$foreground 60%", "dim ansi_default"),
    "dialog-accent": ("$accent", "ansi_cyan"),
    "dialog-cached": ("$cache-cached", "ansi_green"),
    "dialog-evaluated": ("$cache-evaluated", "ansi_default"),
    "dialog-wasted": ("$cache-wasted", "ansi_magenta"),
    "match": ("bold underline $accent", "bold underline ansi_cyan"),
    "bad": ("$text-error", "ansi_red"),
    "user": ("$role-user", "ansi_cyan"),
    # the transcript
    "bar": "$accent",
    "bar-blurred": ("$text-disabled", "dim $text-disabled"),
    "title-user": ("bold", "bold $text-accent"),
    "title-model": "bold",
    "question": ("on $surface", ""),
    "versions": ("$text-muted", "dim $text-muted"),
    "key": "$text-accent",
    "muted": ("$text-muted", "dim $text-muted"),
    "error-text": "$foreground",
    "fold": ("$text-muted", "dim $text-muted"),
    "fold-mark": ("$text-muted", "dim $text-muted"),
    "reasoning": ("$text-muted", "dim $text-muted"),
    "cold": ("$text-disabled", "dim $text-disabled"),
    "strong": "bold",
    "em": "italic",
    "s": "strike",
    "u": "underline",
    "sub": "",
    "sup": "",
    "code-inline": ("$text-secondary on $surface", "bold $text-accent on $surface"),
    "link": "underline",
    "cite": "$text-accent",
    "url": ("$text-muted", "dim $text-muted"),
    "heading": "bold $text-accent",
    "h1": "bold underline",
    "h2": "",
    "h3": "",
    "h4": "",
    "h5": "$text-muted",
    "h6": "$text-muted",
    "bullet": ("$text-muted", "dim $text-muted"),
    "quote": ("$text-muted", "dim $text-muted"),
    "quote-bar": ("$text-disabled", "dim $text-disabled"),
    "rule": ("$text-disabled", "dim $text-disabled"),
    "border": ("$text-disabled", "dim $text-disabled"),
    "th": "bold",
    "code": "on $surface",
    "code-label": ("$text-muted", "dim $text-muted"),
    "code-key": "$text-accent",
    "comment": ("italic $text-muted", "dim $text-muted"),
    "keyword": "bold $text-primary",
    "string": "$text-success",
    "number": "$text-secondary",
    "name": "$text-accent",
    "builtin": "$text-primary",
    "deleted": "$text-error",
    "inserted": "$text-success",
    "find": ("$text on $accent-muted", "ansi_black on ansi_yellow"),
    "find-current": ("bold $background on $accent", "bold ansi_black on ansi_bright_yellow"),
    "jump": ("bold $background on $accent", "bold ansi_black on $accent"),
    "more": ("$background on $accent", "ansi_black on $accent"),
}
"""Styles by name as Textual writes them: `bold $text-muted on $surface`. Of a pair, the second is for ANSI themes."""
_ATTRIBUTES = {"bold", "dim", "italic", "underline"}
_VARIABLE = re.compile(r"\$([a-z0-9-]+)")


def component_rules(names: Iterable[str]) -> str:
    """The rules of a widget's style sheet that give its component classes `tone--NAME` the look of these tones: for
    widgets whose text Textual draws."""
    rules: list[str] = []
    for name in names:
        looks = TONES[name]
        ordinary, ansi = (looks, "") if isinstance(looks, str) else looks
        rules.append(f"& > .tone--{name} {{ {_declarations(ordinary)} }}")
        if ansi:
            rules.append(f"&:ansi > .tone--{name} {{ {_declarations(ansi)} }}")
    return "\n".join(rules)


def _declarations(style: str) -> str:
    """A style as declarations of CSS."""
    words = style.split()
    colour = " ".join(word for word in words if word not in _ATTRIBUTES)
    attributes = " ".join(word for word in words if word in _ATTRIBUTES)
    found = {"color": colour, "text-style": attributes}
    return " ".join(f"{name}: {value};" for name, value in found.items() if value)


class ThemeStyles:
    """The styles of the tones on one widget. The widget calls `clear` when its own style was updated."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._known: dict[tuple[str, ...], Style] = {}

    def clear(self) -> None:
        """The theme has changed."""
        self._known.clear()

    def own(self, name: str) -> Style:
        """What a name sets in this theme; nothing for an unknown name."""
        written = TONES.get(name, "")
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

    def content(self, runs: Runs) -> Content:
        """The runs in their styles."""
        return Content.assemble(*((run.text, self.style(*run.tone.split())) for run in runs if run.text))


def _over(base: Style, own: Style) -> Style:
    """`own` on `base`. A colour such as `auto 60%` becomes the one that can be read on the background."""
    style = base + own
    colour = style.foreground
    if colour is not None and colour.auto and style.background is not None:
        style += Style(foreground=style.background.get_contrast_text(colour.a))
    return style
