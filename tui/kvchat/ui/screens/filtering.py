"""The filter line on top of a list, and what it keeps.

The rule: every word of the filter must occur in a row's text, in any order and case; only when no row has them all
do the filter's letters, in order, decide.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, Label

from kvchat.ui.screens.tones import MATCH


def kept(texts: Sequence[str], query: str) -> list[int]:
    """The indices of the `texts` (already case-folded) that the query keeps, in their order."""
    words = query.casefold().split()
    if not words:
        return list(range(len(texts)))
    found = [i for i, text in enumerate(texts) if all(word in text for word in words)]
    return found or [i for i, text in enumerate(texts) if _in_order("".join(words), text)]


def _in_order(letters: str, text: str) -> bool:
    rest = iter(text)
    return all(letter in rest for letter in letters)


def highlighted(text: Content, query: str) -> Content:
    """`text` with the words of the query marked where they occur."""
    words = query.split()
    if not words:
        return text
    return text.highlight_regex(re.compile("|".join(map(re.escape, words)), re.IGNORECASE), style=MATCH)


class FilterInput(Input):
    """An input that leaves the delete key to the screen when there is nothing to delete to its right."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "delete_right" and self.cursor_position >= len(self.value):
            return False
        return super().check_action(action, parameters)


class FilterLine(Horizontal):
    """A filter input behind its prompt sign."""

    def __init__(self, placeholder: str, value: str = "") -> None:
        super().__init__(classes="line")
        self._placeholder = placeholder
        self._value = value

    def compose(self) -> ComposeResult:
        yield Label(Content("› "))
        yield FilterInput(self._value, placeholder=self._placeholder)
