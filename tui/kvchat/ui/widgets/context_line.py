"""The line over the composer: what goes with the message that is being written, and what is left out of it.

The rule: it is drawn on the rule above the composer, so that nothing moves when it comes, changes or goes; and what
the person left out stays out until the message is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from kvchat.ui.widgets.context_items import ContextItems, Item
from kvchat.ui.widgets.context_parts import Part, Shown, parts
from kvchat.ui.widgets.theme_styles import StyleTable, ThemeStyles

STYLES: StyleTable = {
    "line": "$rule",
    "mark": "$text-accent",
    "problem": ("$text-warning", "ansi_yellow"),
    "quiet": ("$text-muted", "dim ansi_default"),
    "out": ("strike $text-muted", "dim strike ansi_default"),
    "cursor": "bold $block-cursor-foreground on $block-cursor-background",
}


class ContextLine(Widget):
    """One line over the text. It has the focus only while items are being chosen by keys."""

    DEFAULT_CSS = """
    ContextLine {
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

    class Looked(Message):
        """The person wants to see an item whole."""

        def __init__(self, id: str) -> None:
            super().__init__()
            self.id = id

    class Changed(Message):
        """Something was left out or taken along."""

    def __init__(self) -> None:
        super().__init__()
        self.key_shown = ""
        """The key that chooses, as a person reads it; empty: none is shown."""
        self.items = ContextItems()
        self.searching = False
        """Whether the documents are being searched for so long that it is worth a word."""
        self.sending = False
        """Whether they still are for a message that is on its way."""
        self.problems: Sequence[str] = ()
        """What is wrong with mentions."""
        self.pasted: Sequence[str] = ()
        """What is no mention because it was pasted."""
        self._cursor = 0
        self._choosing = False
        """Whether the keys are its own; the focus follows a little later."""
        self._tones = ThemeStyles(self, STYLES)

    # What goes along.

    def put(self, kind: str, items: Sequence[Item]) -> None:
        """Show these of a kind. Those that were left out stay so."""
        if self.items.put(kind, items):
            self._cursor = min(self._cursor, max(0, len(self.items.all) - 1))
            self.draw_anew()

    def draw_anew(self) -> None:
        """What it shows has changed."""
        if not self.items.all:
            self.leave()
        self.display = bool(self.items.all or self.problems or self.pasted or self.searching or self.sending)
        self.refresh()

    def toggle(self, at: int) -> None:
        """Leave out the item at this place, or take it along again."""
        if 0 <= at < len(self.items.all):
            self.items.toggle(self.items.all[at])
            self._decided()

    def agree(self, path: str) -> None:
        """The file from outside at this path goes along."""
        self.items.agreed.add(path)
        self._decided()

    def _decided(self) -> None:
        self.draw_anew()
        self.post_message(self.Changed())

    # Choosing by keys.

    def choose(self) -> bool:
        """Take what is offered; else take the keys: arrows choose, Delete leaves out, Enter shows. A second time: leave
        out all. False: there is nothing."""
        if not self.items.all:
            return False
        if self._choosing:
            self.items.toggle_all()
            self.leave()
            self._decided()
        elif self.items.is_offer:
            self.items.take_all()
            self._decided()
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
        every = self.items.all
        match event.key:
            case "left" | "right":
                step = 1 if event.key == "right" else -1
                self._cursor = (self._cursor + step) % max(1, len(every))
                self.refresh()
            case "y" if self._cursor < len(every) and self.items.needs_yes(every[self._cursor]):
                self.agree(every[self._cursor].outside)
            case "delete" | "backspace" | "space":
                self.toggle(self._cursor)
            case "enter":
                self.leave()
                if self._cursor < len(every):
                    self.post_message(self.Looked(every[self._cursor].id))
            case "escape" | "up" | "down" | "tab" | "shift+tab":
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
                if part.at >= 0:
                    self.toggle(part.at)
                elif part.kind:
                    self.items.toggle_all((part.kind,))
                    self._decided()
                return

    # Drawing.

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._tones.clear()

    def render(self) -> Content:
        return Content.assemble(*((part.text, self._tones.style(part.style))
                                  for part in self._parts(self.content_size.width) if part.text))

    def _parts(self, width: int) -> list[Part]:
        cursor = self._cursor if self._choosing else None
        searching = self.searching or self.sending
        return parts(Shown(self.items, cursor, self.key_shown, searching, self.problems, self.pasted), width)
