"""A choice among a few words on one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from kvchat.ui.actions import bindings
from kvchat.ui.screens.tones import content


class ChoiceLine(Widget, can_focus=True):
    """Words side by side, the chosen one in brackets; left and right (or space) change it, and so does a click."""

    DEFAULT_CSS = """
    ChoiceLine {
        height: 1; width: 1fr;
        & > .choice--other { color: $foreground 60%; }
        & > .choice--chosen { text-style: bold; }
        & > .choice--focused { color: $accent; text-style: bold; }
        &:ansi > .choice--other { color: ansi_default; text-style: dim; }
        &:ansi > .choice--focused { color: ansi_cyan; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"choice--other", "choice--chosen", "choice--focused"}
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("choice")]
    chosen: reactive[int] = reactive(0)

    class Changed(Message):
        """Another word was chosen."""

        def __init__(self, choice: ChoiceLine) -> None:
            super().__init__()
            self.choice = choice

        @property
        def control(self) -> ChoiceLine:
            return self.choice

    def __init__(self, options: Sequence[str], chosen: int = 0, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._options = options
        self.set_reactive(ChoiceLine.chosen, chosen)

    def render(self) -> Content:
        chosen = ".choice--focused" if self.has_focus else ".choice--chosen"
        return Content("  ").join(
            content((f"[{word}]", chosen) if index == self.chosen else (f" {word} ", ".choice--other"))
            for index, word in enumerate(self._options))

    def action_step(self, step: int) -> None:
        self.chosen = (self.chosen + step) % len(self._options)

    def watch_chosen(self) -> None:
        self.post_message(self.Changed(self))

    def on_click(self, event: events.Click) -> None:
        start = 0
        for index, word in enumerate(self._options):
            end = start + len(word) + 2
            if start <= event.x < end:
                self.chosen = index
            start = end + 2
