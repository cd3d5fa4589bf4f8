"""What goes with a message, item by item, as it is sent: a passage, a file, a memory.

The rule: it shows the text that the server will get, made safe to show, and changes nothing but whether it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from kvchat.prompt.context import guarded
from kvchat.sanitize import clean, one_line
from kvchat.text.format import size
from kvchat.ui.screens.modal import Modal, hint_line
from kvchat.ui.screens.tones import ACCENT, BAD, MUTED, STRONG, Part, content, removed_words
from kvchat.ui.widgets.composer.context_items import FILE, MEMORY, PASSAGE, Item
from kvchat.ui.widgets.composer.context_line import GLYPHS

MOST = 40_000
"""Characters of a text that are shown."""
_WORDS = {MEMORY: "Memory", FILE: "File", PASSAGE: "Passage"}


class ContextScreen(Modal[frozenset[str]]):
    """Shows the items one by one. The result is the ids of those that are left out."""

    DEFAULT_CSS = """
    ContextScreen {
        & VerticalScroll { height: auto; max-height: 100%; background: transparent; }
        & #text { width: 1fr; height: auto; margin-top: 1; }
        & VerticalScroll:focus { background-tint: transparent; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,delete,backspace", "leave_out", "Leave out", show=False),
        Binding("left", "step(-1)", "Previous", show=False),
        Binding("right", "step(1)", "Next", show=False),
        Binding("y", "agree", "Send it", show=False),
        Binding("enter", "close", "Close", show=False),
    ]

    def __init__(self, items: Sequence[Item], at: int, out: Iterable[str], price: Callable[[Item], str],
                 agree: Callable[[str], None]) -> None:
        """`price`: what the server has to read for an item, in words; empty: not known. `agree` takes the person's yes
        to a file from outside, by where it really is."""
        super().__init__()
        self._items = items
        self._at = at
        self._out = set(out)
        self._price = price
        self._agree = agree

    def body(self) -> Iterable[Widget]:
        with VerticalScroll():
            yield Static(classes="words", id="about")
            yield Static(id="text", markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
        self._show()

    def _show(self) -> None:
        item = self._items[self._at]
        self._tell()
        text = guarded(item.text).strip("\n") if item.kind != MEMORY else item.text
        more = content(("\n\n… and more: " + size(len(text.encode(errors="replace"))) + " in all", MUTED))
        shown = Content(clean(text[:MOST]))
        self.query_one("#text", Static).update(shown + more if len(text) > MOST else shown)
        self.query_one(VerticalScroll).scroll_to(y=0, animate=False)

    def _tell(self) -> None:
        item, many = self._items[self._at], len(self._items)
        place = f"   {self._at + 1} of {many}" if many > 1 else ""
        frame, out = self.query_one("#frame"), item.id in self._out
        frame.border_title = content(_WORDS[item.kind], (place, MUTED))
        change = (("space", "take along" if out else "leave out"),) if not item.is_fixed else (
            (("y", "send it"),) if out else ())
        frame.border_subtitle = hint_line((
            *change, *((("←→", "next"),) if many > 1 else ()), ("↑↓", "scroll"), ("esc", "close")))
        state: Part = "goes with the message"
        if item.outside and out:
            state = ("outside the working folder and the collections: needs your y", BAD)
        elif item.kind == FILE:
            state = "goes with the message as long as it is mentioned"
        elif out:
            state = ("left out", BAD)
        lines = [content((f"{GLYPHS[item.kind]} ", ACCENT), (one_line(item.title or item.label, 300), STRONG))]
        if item.head:
            lines.append(content((one_line(item.head, 300), MUTED)))
        price = self._price(item)
        lines.append(content((f"{price} · " if price else "", MUTED), state))
        if item.kind != MEMORY and (words := removed_words(item.text)):
            lines.append(content((words, BAD)))
        self.query_one("#about", Static).update(Content("\n").join(lines))

    def action_leave_out(self) -> None:
        """Leave the item out, or take it along again."""
        item = self._items[self._at]
        if not item.is_fixed:
            self._out ^= {item.id}
            self._tell()

    def action_agree(self) -> None:
        """Let a file from outside go with the message."""
        item = self._items[self._at]
        if item.outside and item.id in self._out:
            self._agree(item.outside)
            self._out.discard(item.id)
            self._tell()

    def action_step(self, step: int) -> None:
        self._at = (self._at + step) % len(self._items)
        self._show()

    def action_close(self) -> None:
        self.finish(frozenset(self._out))
