"""The colours of the app: those of the theme that the user wants, or of the one that the terminal's background asks
for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.config.themes import AUTOMATIC, load_themes, own_theme, plain_theme
from kvchat.paths import is_missing, own_themes
from kvchat.sanitize import one_line
from kvchat.ui.terminal import QUERY, is_light

if TYPE_CHECKING:
    from textual.app import App

DARK_THEME, LIGHT_THEME = "kvchat-night", "kvchat-day"
"""Where the user chose none: by the terminal's background."""


class Themes:
    """The themes of one app. Without colours (`App.no_color`) it has a plain one, and keeps it."""

    def __init__(self, app: App[int], folder: Path, tell_terminal: Callable[[str], None]) -> None:
        """`folder`: the user's own themes. `tell_terminal` writes a control sequence."""
        self._app = app
        self._folder = folder
        self._tell_terminal = tell_terminal
        self.follows_terminal = False
        """Whether the theme is a light or a dark one as the terminal is."""
        self._is_loaded = False
        """Whether all themes are registered, or just the one that is wanted."""

    def begin(self, wanted: str) -> list[str]:
        """Wear the wanted theme before anything is drawn. Where the user has no theme files, the others are loaded
        after that. Returns what is wrong."""
        app, problems = self._app, list[str]()
        only = own_theme(DARK_THEME if wanted == AUTOMATIC else wanted) if is_missing(self._folder) else None
        if only is None:
            problems = self.load()
        else:
            app.register_theme(only)
        if app.no_color:
            app.register_theme(theme := plain_theme())
            app.theme = theme.name
            return problems
        self.follows_terminal = wanted == AUTOMATIC
        if self.follows_terminal:
            wanted = DARK_THEME
        elif wanted not in app.available_themes:
            problems.append(f"There is no theme {one_line(wanted, 40)}. /theme shows them all.")
            wanted = DARK_THEME
        app.theme = wanted if wanted in app.available_themes else app.theme
        return problems

    def load(self) -> list[str]:
        """Register all themes, once. Returns what is wrong with some."""
        if self._is_loaded:
            return []
        self._is_loaded = True
        themes, problems = load_themes([own_themes(), self._folder])
        for theme in themes.values():
            self._app.register_theme(theme)
        return list(map(str, problems))

    def wear(self, theme: str) -> None:
        """Have the colours of a theme that there is from now on; `auto`: those that the terminal's background asks
        for."""
        app = self._app
        if app.no_color:
            return
        self.follows_terminal = theme == AUTOMATIC
        if self.follows_terminal:
            if app.theme not in (DARK_THEME, LIGHT_THEME):
                app.theme = DARK_THEME  # until the terminal answers, if it does
            self.ask_terminal()
        elif theme in app.available_themes:
            app.theme = theme

    def ask_terminal(self) -> None:
        """Where its background decides, ask the terminal whether it is light or dark. The answer comes any time, or
        never."""
        from kvchat.ui.terminal import is_bare

        if self.follows_terminal and not is_bare(os.environ):
            self._tell_terminal(QUERY)

    def answered(self, colour: str) -> None:
        """What the terminal said its background is."""
        if (light := is_light(colour)) is None or not self.follows_terminal:
            return
        name = LIGHT_THEME if light else DARK_THEME
        if name != self._app.theme and name in self._app.available_themes:
            self._app.theme = name
