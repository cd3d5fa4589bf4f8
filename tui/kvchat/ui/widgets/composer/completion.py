"""Completes mentions of documents while they are typed.

Typing never waits for it, and a result for earlier text is dropped. Enter sends unless something is marked, and nothing
is offered for what was pasted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.timer import Timer
from textual.widget import Widget

from kvchat.ui.widgets.composer import messages as messages
from kvchat.ui.widgets.composer.mentions import (
    MentionList,
    TypedMention,
    asked_for,
    completed,
    is_folder,
    path_at,
    typed_at,
)
from kvchat.ui.widgets.composer.slash import SlashCommands
from kvchat.ui.widgets.composer.text import ComposerText

if TYPE_CHECKING:
    from kvchat.documents.mentions import Mention

ASK_DELAY = 0.05
"""Seconds without a change after which the completions of a mention are asked for."""


class MentionCompletion:
    """What the mention at the cursor can become, with the list that shows it."""

    def __init__(self, widget: Widget, area: ComposerText, commands: SlashCommands) -> None:
        """`widget`: the one that asks what a mention can become; `area` has the text."""
        self._widget = widget
        self._area = area
        self._commands = commands
        self.list = MentionList()
        self._asking: Timer | None = None
        self._closed_at: tuple[int, int] | None = None
        """Where the mention begins whose list the user closed."""

    def set_completions(self, mentions: Sequence[Mention], beginning: str) -> None:
        """What a mention with this beginning can become; dropped when another one is being typed by now."""
        typed = self._typed
        if typed is None or asked_for(typed) != beginning or self._closed_at == self._place(typed):
            return
        if not (self.list.moved and self.list.typed == typed):
            self.list.offer(typed, mentions)

    @property
    def _typed(self) -> TypedMention | None:
        """The mention at the cursor, while the text has the keys; none that was pasted."""
        area = self._area
        if not area.has_focus or not area.selection.is_empty:
            return None
        row, column = area.cursor_location
        command, _ = self._commands.parsed() if area.text.startswith("/") else (None, "")
        if command is not None:
            return path_at(area.text, column) if row == 0 else None
        typed = typed_at(area.document[row], column)
        return typed if typed is not None and not area.is_pasted(area.offset_of((row, typed.start))) else None

    def _place(self, typed: TypedMention) -> tuple[int, int]:
        return self._area.cursor_location[0], typed.start

    def look(self) -> None:
        """The text was changed: ask what the mention at the cursor can become."""
        if self._asking is not None:
            self._asking.stop()
            self._asking = None
        typed = self._typed
        if typed is None or self._closed_at != self._place(typed):
            self._closed_at = None
            self.list.narrow(typed)
        if typed is not None and self._closed_at is None:
            self._asking = self._widget.set_timer(ASK_DELAY, lambda: self._ask(typed))

    def _ask(self, typed: TypedMention) -> None:
        if typed == self._typed:
            self._widget.post_message(messages.Mentioning(asked_for(typed)))

    def complete(self, mention: Mention) -> None:
        """Put a mention in the place of what was typed of it. A folder goes on."""
        typed, area = self._typed, self._area
        if typed is None:
            return
        row = area.cursor_location[0]
        written, back = completed(typed, mention)
        rest = area.document[row][typed.end :]
        blank = "" if is_folder(mention) or not typed.sign or rest[:1].isspace() else " "
        is_whole = bool(typed.sign) and not is_folder(mention)
        place = (row, typed.start), (row, typed.end)
        end_row, column = area.pick(written + blank, *place, mention=len(written) if is_whole else 0)
        area.move_cursor((end_row, column - back))
        if not is_folder(mention):
            self.list.close()

    def touch(self, clicked: bool = False) -> bool:
        """Make the pasted mention at the cursor one that counts; False: there is none. `clicked`: the one that the
        cursor is in, not behind."""
        area = self._area
        if not area.selection.is_empty or self._commands.parsed().command is not None:
            return False
        from kvchat.documents.mentions import at_place

        mention = at_place(area.text, area.place)
        if mention is None or (clicked and mention.end == area.place) or not area.is_pasted(mention.start):
            return False
        area.touch(mention.start, mention.end_of(mention.names[min(1, len(mention.names) - 1)]))
        return True

    def key(self, key: str) -> bool:
        """Act on a key while the list is open; False when it is not used here. Tab never leaves a mention; it, or a
        click, makes a mention of one that was pasted."""
        shown = self.list
        if key == "click":
            return self.touch(clicked=True)
        if not shown.is_open:
            return key == "tab" and (self._typed is not None or self.touch())
        if key in ("up", "down"):
            shown.move(-1 if key == "up" else 1)
        elif key == "tab":
            self.complete(shown.chosen or shown.items[0])
        elif key == "enter" and shown.chosen is not None:
            self.complete(shown.chosen)
        elif key == "escape":
            typed = self._typed
            self._closed_at = self._place(typed) if typed is not None else None
            shown.close()
        else:
            if key in ("enter", "other", "send"):
                shown.close()
            return False
        return True

    def cursor_moved(self) -> None:
        """The list goes on only with the mention that is at the cursor now."""
        typed = self._typed
        if self.list.is_open and typed != self.list.typed:
            self.list.narrow(typed)
