"""The line of memories: what will be recalled with the message that is being written, and what is left out of it.

The rule: it is drawn on the rule above the composer, so that nothing moves when it comes, changes or goes; and what
the person left out stays out until the message is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from kvchat.display import one_line
from kvchat.memory.entry import Entry
from kvchat.ui.widgets.cells import fit
from kvchat.ui.widgets.theme_styles import StyleTable, ThemeStyles

STYLES: StyleTable = {
    "line": "$rule",
    "mark": "$text-accent",
    "quiet": ("$text-muted", "dim ansi_default"),
    "out": ("strike $text-muted", "dim strike ansi_default"),
    "cursor": "bold $block-cursor-foreground on $block-cursor-background",
}
MEMORIES, NO_MEMORIES = "◆", "◇"
NARROWEST = 14
"""Cells of a memory; where there is less for each, only the first ones are named."""
_BETWEEN = " · "


class Part(NamedTuple):
    """A run of text in one style; `entry`: the place of the memory that it names, from 0; -1: none."""

    text: str
    style: str
    entry: int = -1


class MemoryLine(Widget):
    """One line over the text. It has the focus only while memories are being chosen by keys."""

    DEFAULT_CSS = """
    MemoryLine {
        overlay: screen; display: none; offset: 0 -1;
        height: 1; width: 1fr; background: $background;
        &:ansi { background: ansi_default; }
    }
    """
    ALLOW_SELECT = False

    class Left(Message):
        """The keys belong to the text again. `character`: one that was typed and belongs there."""

        def __init__(self, character: str = "") -> None:
            super().__init__()
            self.character = character

    def __init__(self) -> None:
        super().__init__()
        self.key_shown = ""
        """The key that chooses, as a person reads it; empty: none is shown."""
        self._entries: tuple[Entry, ...] = ()
        self._dropped: set[str] = set()
        self._none = False
        self._cursor = 0
        self._choosing = False
        """Whether the keys are its own; the focus follows a little later."""
        self._tones = ThemeStyles(self, STYLES)

    # What is recalled.

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All that were found, with those that are left out."""
        return self._entries

    @property
    def kept(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self._entries if not self._is_out(entry))

    @property
    def dropped(self) -> frozenset[str]:
        """The ids of the memories that must not go with this message."""
        return frozenset(self._dropped)

    @property
    def none_at_all(self) -> bool:
        """Whether no memory is to go with this message, whatever is found for it."""
        return self._none

    def _is_out(self, entry: Entry) -> bool:
        return self._none or entry.id in self._dropped

    def show(self, entries: Sequence[Entry]) -> None:
        """Show these. Those that were left out stay so."""
        found = tuple(entries)
        if found == self._entries:
            return
        self._entries = found
        self._cursor = min(self._cursor, max(0, len(found) - 1))
        if not found:
            self.leave()
        self._drawn_anew()

    def reset(self, dropped: frozenset[str] = frozenset(), none_at_all: bool = False) -> None:
        """Another message: nothing is found for it yet, and left out is only what is given."""
        self._dropped, self._none = set(dropped), none_at_all
        self.show(())

    def toggle(self, place: int) -> None:
        """Leave out the memory at this place, or take it along again."""
        if not 0 <= place < len(self._entries):
            return
        id = self._entries[place].id
        if self._none:
            self._none = False
            self._dropped |= {entry.id for entry in self._entries}
        self._dropped ^= {id}
        self._drawn_anew()

    def toggle_all(self) -> None:
        """Leave out all, also those that would be found while one goes on writing, or take all along again."""
        self._none = bool(self.kept)
        if not self._none:
            self._dropped.clear()
        self._drawn_anew()

    def _drawn_anew(self) -> None:
        self.display = bool(self._entries)
        self.refresh()

    # Choosing by keys.

    def choose(self) -> bool:
        """Take the keys: arrows choose, Delete leaves out. A second time: leave out all. False: there is nothing."""
        if not self._entries:
            return False
        if self._choosing:
            self.toggle_all()
            self.leave()
        else:
            self._cursor, self._choosing = 0, True
            self.can_focus = True  # only now: otherwise Tab would stop here
            self.screen.set_focus(self)
            self.refresh()
        return True

    def leave(self, character: str = "") -> None:
        """Give the keys back, and a character that was typed meanwhile."""
        if self._choosing or character:
            self._choosing = False
            self.post_message(self.Left(character))
            self.refresh()

    def on_blur(self) -> None:
        self.can_focus = self._choosing = False
        self.refresh()

    def on_key(self, event: events.Key) -> None:
        match event.key:
            case "left" | "right":
                step = 1 if event.key == "right" else -1
                self._cursor = (self._cursor + step) % max(1, len(self._entries))
                self.refresh()
            case "delete" | "backspace" | "space":
                self.toggle(self._cursor)
            case "escape" | "enter" | "up" | "down" | "tab" | "shift+tab":
                self.leave()
            case _ if event.is_printable and event.character:
                self.leave(event.character)
            case _:
                return  # a key of the app
        event.stop()
        event.prevent_default()

    def on_click(self, event: events.Click) -> None:
        event.stop()
        offset = event.get_content_offset(self)
        at = 0
        for part in self._parts(self.content_size.width):
            at += cell_len(part.text)
            if offset is not None and offset.x < at:
                if part.entry >= 0:
                    self.toggle(part.entry)
                elif part.style == "mark":
                    self.toggle_all()
                return

    # Drawing.

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._tones.clear()

    def render(self) -> Content:
        return Content.assemble(*((part.text, self._tones.style(part.style))
                                  for part in self._parts(self.content_size.width)))

    def _parts(self, width: int) -> list[Part]:
        """The line in exactly `width` cells, the rule's own sign where nothing stands."""
        choosing = self._choosing
        head = self._head()
        keys = self.key_shown
        if choosing:
            keys = f"←→ Del{f' · {keys} all' if keys else ''} · Esc"
        elif cell_len(keys) > width // 4:
            keys = ""
        room = width - cell_len(head) - (cell_len(keys) + 3 if keys else 0) - 2
        parts = [Part(head, "mark"), *self._names(room, choosing), Part(" ", "quiet")]
        used = sum(cell_len(part.text) for part in parts)
        tail = f" {keys} " if keys and used + cell_len(keys) + 3 <= width else ""
        gap = max(0, width - used - cell_len(tail))
        filled = gap - 1 if tail and gap else gap
        return [*parts, Part("─" * filled, "line"), Part(tail, "quiet"), Part("─" * (gap - filled), "line")]

    def _head(self) -> str:
        total, kept = len(self._entries), len(self.kept)
        if not kept:
            return f" {NO_MEMORIES} no memories"
        number = str(kept) if kept == total else f"{kept} of {total}"
        return f" {MEMORIES} {number} {'memory' if total == 1 else 'memories'}"

    def _names(self, room: int, choosing: bool) -> list[Part]:
        """The memories in at most `room` cells. Those that are left out are named only while one chooses."""
        shown = [place for place, entry in enumerate(self._entries) if choosing or not self._is_out(entry)]
        labels = {place: one_line(self._entries[place].text, 200) for place in shown}
        while len(shown) > 1 and (room - 2) // len(shown) - len(_BETWEEN) < NARROWEST:
            shown.pop(0 if choosing and self._cursor == shown[-1] else -1)
        parts: list[Part] = []
        for number, place in enumerate(shown):
            before = _BETWEEN if parts else ": "
            share = room // (len(shown) - number) - len(before) - 2
            label = fit(labels[place], share)
            if not label:
                break
            style = "cursor" if choosing and place == self._cursor else "quiet"
            out = self._is_out(self._entries[place])
            parts += [Part(before, "quiet"), Part(label, "out" if out and style != "cursor" else style, place),
                      Part(" +" if out else " ×", "quiet", place)]
            room -= len(before) + cell_len(label) + 2
        return parts
