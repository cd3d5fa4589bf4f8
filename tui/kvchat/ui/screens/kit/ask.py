"""Ask the user for a line of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.sanitize import one_line
from kvchat.ui.screens.kit.modal import Modal
from kvchat.ui.screens.kit.rows import FilterLine
from kvchat.ui.screens.kit.tones import BAD, MUTED, content

R = TypeVar("R")


class LineError(Exception):
    """A line that cannot be taken; its text is the sentence that says why."""


class AskScreen(Modal[R], Generic[R]):
    """A field of one line. The result is what `check` makes of it; what it refuses is said below the field."""

    def __init__(
        self,
        title: str,
        hint: str,
        value: str,
        check: Callable[[str], R | None],
        *,
        enter: str,
        close: str = "cancel",
        above: str = "",
        below: str = "",
        limit: int | None = None,
    ) -> None:
        """`hint` is shown in the empty field. `value` is written there at first: one that ends in a blank is
        continued, any other is replaced. `check` raises LineError. `enter` and `close`: what these keys do, in a word
        or two. `below` gives way to what is refused. `limit`: characters."""
        super().__init__(classes="-small")
        self.heading = title
        self.hints = (("enter", enter), ("dialog.close", close))
        self._hint, self._value, self._check = hint, value, check
        self._above, self._below, self._limit = above, content((below, MUTED)), limit

    def body(self) -> Iterable[Widget]:
        if self._above:
            yield Static(Content(self._above), classes="words")
        yield FilterLine(self._hint, self._value)
        yield Static(self._below, classes="words", id="below")

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.max_length = self._limit
        field.select_on_focus = not self._value.endswith(" ")
        field.focus()
        if field.select_on_focus:
            field.action_select_all()
        else:
            field.cursor_position = len(self._value)

    @on(Input.Changed)
    def _changed(self) -> None:
        self.query_one("#below", Static).update(self._below)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        try:
            result = self._check(event.value)
        except LineError as error:
            self.refuse(str(error))
            return
        if result is None:
            self.finish(None)
        else:
            self.take(result)

    def take(self, result: R) -> None:
        """Answer with what was made of the line."""
        self.finish(result)

    def refuse(self, sentence: str) -> None:
        """Say what is wrong with what is written."""
        self.query_one("#below", Static).update(content((one_line(sentence, 300), BAD)))
