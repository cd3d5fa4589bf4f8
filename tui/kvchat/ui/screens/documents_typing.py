"""A dialog that is typed into from the first key on.

The rule: what is typed while it opens is kept, in its order; no key goes to what is behind it.
"""

from __future__ import annotations

from typing import TypeVar

from textual import events
from textual.widgets import Input

from kvchat.ui.screens.modal import ListModal

T = TypeVar("T")


class TypingModal(ListModal[T]):
    """A list below an input: the first one is written into. It has the focus once all that was typed before is in."""

    AUTO_FOCUS = ""

    def on_mount(self) -> None:
        self._lead()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Nothing can be done before there is something to do it with."""
        return bool(self.query(Input)) and super().check_action(action, parameters)

    def _lead(self) -> None:
        if self.message_queue_size:
            self.call_later(self._lead)
        elif self.focused is None and self.query(Input):
            self.set_focus(self.query(Input).first())

    def on_key(self, event: events.Key) -> None:
        if self.focused is None and self.query(Input):
            field = self.query(Input).first()
            if event.is_printable and event.character:
                event.stop()
                field.insert_text_at_cursor(event.character)
            elif event.key == "backspace":
                event.stop()
                field.action_delete_left()

    def on_paste(self, event: events.Paste) -> None:
        if self.focused is None and event.text and self.query(Input):
            event.stop()
            self.query(Input).first().insert_text_at_cursor(event.text.splitlines()[0])
