"""Asking before an act, with its price in words.

The rule: a price that is not known is said to be unknown, and one from few measurements is said as a range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from textual.content import Content
from textual.events import Key
from textual.widget import Widget
from textual.widgets import Static

from kvchat.cache.accounting import NOISE
from kvchat.cache.price import Act, Price
from kvchat.sanitize import clean, one_line
from kvchat.text.format import about, counted
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import RowList
from kvchat.ui.screens.tones import ACCENT, content, with_glyphs

R = TypeVar("R")
Choice = tuple[str, str, R]
"""A key (one letter or digit), what it does, and the result."""

_READ: dict[Act | None, str] = {
    "edit": "The edited message is read again",
    "delete": "Everything after it is read again",
    "system": "The whole conversation is read again",
    "template": "The whole conversation is read again",
    "model": "The other model reads the whole conversation",
    "regenerate": "The question is read again",
}
_KEEPS: frozenset[Act] = frozenset({"edit", "regenerate", "delete", "system"})


def price_lines(price: Price, act: Act | None = None) -> list[str]:
    """The price of an act in one or two sentences; glyphs as on every screen."""
    lines = [_price_line(price, _READ.get(act, "Read again"))]
    if act in _KEEPS:
        lines.append("The branch you leave stays.")
    return lines


def _price_line(price: Price, subject: str) -> str:
    if price.tokens is None:
        return f"{subject}: how many tokens is unknown, the server has not reported it."
    if price.tokens <= NOISE:
        return "Nothing is read again."
    tokens = f"{subject}:  ░ {counted(price.tokens, 'token')}"
    time = about(price.seconds)
    return f"{tokens}, {time}" if time else f"{tokens}; how long that takes is not measured yet"


class ConfirmScreen(ListModal[R], Generic[R]):
    """A question with its consequences and a few answers, each with a key. Escape answers None."""

    DEFAULT_CSS = "ConfirmScreen .words { margin-bottom: 1; }"

    def __init__(self, title: str, lines: Sequence[str], choices: Sequence[Choice[R]]) -> None:
        super().__init__(classes="-small")
        self.heading = title
        self.hints = (("rows.choose", "choose"), ("dialog.close", "cancel"))
        self._lines = lines
        self._choices = choices

    def body(self) -> Iterable[Widget]:
        lines = [with_glyphs(clean(line)) for line in self._lines]
        if lines:
            yield Static(Content("\n").join(lines), classes="words")
        yield RowList(self._draw, classes="-fits")

    def on_mount(self) -> None:
        self.rows.show(len(self._choices))

    def _draw(self, index: int, width: int) -> Content:
        key, label, _ = self._choices[index]
        cells = max(len(one_line(key, 8)) for key, _, _ in self._choices)
        return content((one_line(key, 8).ljust(cells), ACCENT), "  ", one_line(label, width))

    def on_key(self, event: Key) -> None:
        for key, _, result in self._choices:
            if event.character and event.character.casefold() == key.casefold():
                event.stop()
                self.finish(result)
                return

    def choose(self, index: int) -> None:
        self.finish(self._choices[index][2])
