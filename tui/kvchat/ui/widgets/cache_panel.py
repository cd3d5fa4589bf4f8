"""The panel next to the conversation, on a wide terminal: the server's cache, live."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget

from kvchat.ui.runs import cut
from kvchat.ui.tones import ThemeStyles
from kvchat.ui.widgets.panel_text import Line


class CachePanel(Widget):
    """Draws the lines it is given, and nothing when they are those it shows."""

    DEFAULT_CSS = """
    CachePanel {
        width: 40; height: 1fr; padding: 0 1; border-left: solid $rule; background: transparent; color: $foreground;
    }
    """
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._tones = ThemeStyles(self)
        self._lines: Sequence[Line] = ()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._tones.clear()

    def show(self, lines: Sequence[Line]) -> None:
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def render(self) -> Content:
        width = self.content_size.width
        return Content("\n").join(self._tones.content(cut(line, width)) for line in self._lines)
