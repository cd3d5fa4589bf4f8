"""Giving a conversation a title."""

from __future__ import annotations

from collections.abc import Iterable

from textual import on
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.sanitize import one_line
from kvchat.ui.screens.filtering import FilterLine
from kvchat.ui.screens.modal import Modal
from kvchat.ui.screens.tones import BAD, content

TITLE_LIMIT = 200


class RenameScreen(Modal[str]):
    """Asks for a title; the result is the new one, None when it was left as it is."""

    def __init__(self, title: str) -> None:
        super().__init__(classes="-small")
        self.heading = "Rename conversation"
        self.hints = (("enter", "rename"), ("esc", "cancel"))
        self._title = one_line(title, TITLE_LIMIT)

    def body(self) -> Iterable[Widget]:
        yield FilterLine("a title", self._title)
        yield Static(classes="words")

    def on_mount(self) -> None:
        title = self.query_one(Input)
        title.max_length = TITLE_LIMIT
        title.focus()
        title.action_select_all()

    @on(Input.Changed)
    def _changed(self) -> None:
        self.query_one(Static).update("")

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        title = " ".join(event.value.split())
        if not title:
            self.query_one(Static).update(content(("Write a title, or press Esc to keep the old one.", BAD)))
        else:
            self.finish(title if title != self._title else None)
