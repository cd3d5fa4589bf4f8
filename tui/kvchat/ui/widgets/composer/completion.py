"""The part of the composer that completes mentions of documents while they are typed.

Typing never waits for it, and a result for earlier text is dropped. Enter sends unless something is marked, and nothing
is offered for what was pasted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.timer import Timer
from textual.widgets import TextArea

from kvchat.commands.slash import Parsed, parse
from kvchat.ui.widgets.composer import messages as messages
from kvchat.ui.widgets.composer import slash
from kvchat.ui.widgets.composer.context import Accompanied
from kvchat.ui.widgets.composer.mentions import MentionList, Typed, asked_for, completed, is_folder, path_at, typed_at

if TYPE_CHECKING:
    from kvchat.documents.mentions import Mention

ASK_DELAY = 0.05
"""Seconds without a change after which the completions of a mention are asked for."""


class Completing(Accompanied):
    """The list of what the mention at the cursor can become."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.commands: Sequence[slash.Command] = ()
        self._mentions = MentionList()
        self._asking: Timer | None = None
        self._closed_at: tuple[int, int] | None = None
        """Where the mention begins whose list the user closed."""

    def set_completions(self, mentions: Sequence[Mention], beginning: str) -> None:
        """What a mention with this beginning can become; dropped when another one is being typed by now."""
        typed = self._typed
        if typed is None or asked_for(typed) != beginning or self._closed_at == self._place(typed):
            return
        if not (self._mentions.moved and self._mentions.typed == typed):
            self._mentions.offer(typed, mentions)

    def _parsed(self) -> Parsed:
        """What the text means. What was pasted is text, as a log is, but for a line that is one of our commands."""
        found, pasted = parse(self._area.text), self._area.pasted_first
        is_ours = found.command is not None and self._known(found.command) is not None
        if "\n" in pasted.strip() or (len(pasted) > len(found.command or "") and not is_ours):
            return Parsed(None, self._area.text)
        return found

    def _known(self, command: str) -> str | None:
        """The command on offer that this is, in any case."""
        return next((known.name for known in self.commands if known.name.casefold() == command.casefold()), None)

    @property
    def _typed(self) -> Typed | None:
        """The mention at the cursor, while the text has the keys; none that was pasted."""
        area = self._area
        if not area.has_focus or not area.selection.is_empty:
            return None
        row, column = area.cursor_location
        command, _ = self._parsed() if area.text.startswith("/") else (None, "")
        if command is not None:
            return path_at(area.text, column) if row == 0 else None
        typed = typed_at(area.document[row], column)
        return typed if typed is not None and not area.is_pasted(area.offset_of((row, typed.start))) else None

    def _place(self, typed: Typed) -> tuple[int, int]:
        return self._area.cursor_location[0], typed.start

    def _look_for_mention(self) -> None:
        """The text was changed: ask what the mention at the cursor can become."""
        if self._asking is not None:
            self._asking.stop()
            self._asking = None
        typed = self._typed
        if typed is None or self._closed_at != self._place(typed):
            self._closed_at = None
            self._mentions.narrow(typed)
        if typed is not None and self._closed_at is None:
            self._asking = self.set_timer(ASK_DELAY, lambda: self._ask(typed))

    def _ask(self, typed: Typed) -> None:
        if typed == self._typed:
            self.post_message(messages.Mentioning(asked_for(typed)))

    def _complete(self, mention: Mention) -> None:
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
            self._mentions.close()

    def _touched(self, clicked: bool = False) -> bool:
        """Make the pasted mention at the cursor one that counts; False: there is none. `clicked`: the one that the
        cursor is in, not behind."""
        area = self._area
        if not area.selection.is_empty or self._parsed().command is not None:
            return False
        from kvchat.documents.mentions import at_place

        mention = at_place(area.text, area.place)
        if mention is None or (clicked and mention.end == area.place) or not area.is_pasted(mention.start):
            return False
        area.touch(mention.start, mention.end_of(mention.names[min(1, len(mention.names) - 1)]))
        return True

    def _mention_key(self, key: str) -> bool:
        """Act on a key while the list is open; False when it is not used here. Tab never leaves a mention; it, or a
        click, makes a mention of one that was pasted."""
        mentions = self._mentions
        if key == "click":
            return self._touched(clicked=True)
        if not mentions.is_open:
            return key == "tab" and (self._typed is not None or self._touched())
        if key in ("up", "down"):
            mentions.move(-1 if key == "up" else 1)
        elif key == "tab":
            self._complete(mentions.chosen or mentions.items[0])
        elif key == "enter" and mentions.chosen is not None:
            self._complete(mentions.chosen)
        elif key == "escape":
            typed = self._typed
            self._closed_at = self._place(typed) if typed is not None else None
            mentions.close()
        else:
            if key in ("enter", "other", "send"):
                mentions.close()
            return False
        return True

    def on_mention_list_chosen(self, event: MentionList.Chosen) -> None:
        event.stop()
        self._complete(event.mention)

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        event.stop()
        typed = self._typed
        if self._mentions.is_open and typed != self._mentions.typed:
            self._mentions.narrow(typed)
