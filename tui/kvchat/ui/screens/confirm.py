"""Ask the user before an act."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from time import monotonic
from typing import Generic, TypeVar

from textual.content import Content
from textual.events import Key
from textual.widget import Widget
from textual.widgets import Static

from kvchat.sanitize import clean, one_line
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import RowList
from kvchat.ui.screens.tones import ACCENT, content

R = TypeVar("R")
Choice = tuple[str, str, R]
"""A key (one letter or digit), what it does, and the result."""


class ConfirmScreen(ListModal[R], Generic[R]):
    """A question with its consequences and a few answers, each with a key. Escape answers None. What was typed
    before the question was on the screen answers nothing."""

    DEFAULT_CSS = "ConfirmScreen .words { margin-bottom: 1; }"

    def __init__(self, title: str, lines: Sequence[str], choices: Sequence[Choice[R]]) -> None:
        super().__init__(classes="-small")
        self.heading = title
        self.hints = (("rows.choose", "choose"), ("dialog.close", "cancel"))
        self._lines = lines
        self._choices = choices
        self._since = inf
        """Monotonic seconds of the first key that may answer: one typed before the question was there did not mean it.
        """

    def body(self) -> Iterable[Widget]:
        lines = [content(clean(line)) for line in self._lines]
        if lines:
            yield Static(Content("\n").join(lines), classes="words")
        yield RowList(self._draw, classes="-fits")

    def on_mount(self) -> None:
        self.rows.show(len(self._choices))

    @property
    def can_be_answered(self) -> bool:
        """Whether the question is on the screen."""
        return self._since < inf

    def _draw(self, index: int, width: int) -> Content:
        if self._since == inf:  # the answers are drawn: what is typed from now on may be one
            self._since = monotonic()
        key, label, _ = self._choices[index]
        cells = max(len(one_line(key, 8)) for key, _, _ in self._choices)
        return content((one_line(key, 8).ljust(cells), ACCENT), "  ", one_line(label, width))

    def on_key(self, event: Key) -> None:
        if event.time <= self._since and event.key != "escape":
            event.stop()
            event.prevent_default()
            return
        for key, _, result in self._choices:
            if event.character and event.character.casefold() == key.casefold():
                event.stop()
                self.finish(result)
                return

    def choose(self, index: int) -> None:
        self.finish(self._choices[index][2])
