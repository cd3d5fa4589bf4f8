"""Show what goes with a message, each item as it is sent, and attach a file.

It shows the text that the server will get, made safe to show, and changes nothing but whether it goes. Look-ups on the
disk never delay the typing, and what cannot be attached is reported here, where it can be corrected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.chat.errors import ChatError
from kvchat.documents.kept_out import SECRET, looks_secret
from kvchat.paths import pasted_path
from kvchat.prompt.context import ContextBlock, guarded
from kvchat.sanitize import clean, one_line
from kvchat.text.format import size
from kvchat.text.messages import removed_words
from kvchat.ui.bindings import binding, bindings
from kvchat.ui.runs import shown
from kvchat.ui.screens.kit import (
    ACCENT,
    BAD,
    MUTED,
    STRONG,
    FilterLine,
    Hint,
    ListModal,
    Modal,
    Part,
    RowList,
    content,
    joined,
)
from kvchat.ui.widgets.composer.context_items import FILE, MEMORY, PASSAGE, ContextItems, Item
from kvchat.ui.widgets.composer.context_line import GLYPHS
from kvchat.ui.widgets.composer.mentions import is_folder, on_disk

if TYPE_CHECKING:
    from kvchat.documents.mentions import Mention

MOST = 40_000
"""Characters of a text that are shown."""
_WORDS = {MEMORY: "Memory", FILE: "File", PASSAGE: "Passage"}


class ContextScreen(Modal[None]):
    """Shows the items one by one, and has them left out, taken along or agreed to; the first that needs a yes is in
    front."""

    DEFAULT_CSS = """
    ContextScreen {
        & VerticalScroll { height: auto; max-height: 100%; background: transparent; }
        & #text { width: 1fr; height: auto; margin-top: 1; }
        & VerticalScroll:focus { background-tint: transparent; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("context"), binding("memories", "none")]

    def __init__(self, context: ContextItems, price: Callable[[Item], str], decided: Callable[[], None]) -> None:
        """`price`: the prefill of an item, in words; empty: not known. `decided` is called after each change."""
        super().__init__()
        self._goes = context
        self._items = context.all
        self._at = next((at for at, item in enumerate(self._items) if context.needs_yes(item)), 0)
        self._price = price
        self._decided = decided

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
        frame, out = self.query_one("#frame"), self._goes.is_out(item)
        frame.border_title = content(_WORDS[item.kind], (place, MUTED))
        hints: list[Hint] = [("↑↓", "scroll"), ("dialog.close", "close")]
        if many > 1:
            if any(one.kind != FILE for one in self._items):
                some = any(self._goes.kept(kind) for kind in (MEMORY, PASSAGE))
                hints.insert(1, ("memories", "none" if some else "all"))
            hints.insert(0, ("context.previous context.next", "next"))
        if not item.is_fixed:
            hints.insert(0, ("context.leave_out", "take along" if out else "leave out"))
        elif out:
            hints.insert(0, ("context.agree", "send it"))
        self.show_hints(hints)
        state: Part = "goes with the message"
        if item.outside and out:
            secret = looks_secret(item.outside, item.text)
            why = SECRET if secret else "outside the working folder and the collections"
            state = (f"{why}: needs your {self.key('context.agree')}", BAD)
        elif item.kind == FILE:
            state = "goes with the message as long as it is mentioned"
        elif out:
            state = ("left out", BAD)
        lines = [content((f"{GLYPHS[item.kind]} ", ACCENT), (one_line(item.title, 300), STRONG))]
        if item.head:
            lines.append(content((one_line(item.head, 300), MUTED)))
        price = self._price(item)
        lines.append(content((f"{price} · " if price else "", MUTED), state))
        if item.kind != MEMORY and (words := removed_words(item.text)):
            lines.append(content((words, BAD)))
        self.query_one("#about", Static).update(Content("\n").join(lines))

    def action_leave_out(self) -> None:
        """Leave the item out, or take it along again."""
        self._goes.toggle(self._items[self._at])
        self._tell()
        self._decided()

    def action_agree(self) -> None:
        """Let a file from outside go with the message."""
        item = self._items[self._at]
        if self._goes.needs_yes(item):
            self._goes.agreed.add(item.outside)
            self._tell()
            self._decided()

    def action_step(self, step: int) -> None:
        self._at = (self._at + step) % len(self._items)
        self._show()

    def action_none(self) -> None:
        """Leave out all memories and passages, also those that would be found later, or take all along again."""
        self._goes.toggle_all()
        self._decided()
        self.finish(None)


ABOUT = "It goes with the message as it is now."


class AttachScreen(ListModal[ContextBlock]):
    """Asks for a path; the result is the file that was captured."""

    DEFAULT_CSS = """
    AttachScreen #frame { height: 60vh; max-height: 24; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("attach")]

    def __init__(
        self, complete: Callable[[str], Awaitable[Sequence[Mention]]], attach: Callable[[str], Awaitable[ContextBlock]]
    ) -> None:
        super().__init__(classes="-small")
        self.heading = "Attach a file"
        self.hints = (
            ("attach.complete", "complete"),
            ("rows.up rows.down", "choose"),
            ("rows.choose", "attach"),
            ("dialog.close", "cancel"),
        )
        self._complete = complete
        self._take = attach
        self._found: Sequence[Mention] = ()
        self._tried = ""
        """The path, as it was written, that was to be attached last."""

    def body(self) -> Iterable[Widget]:
        yield FilterLine("a path, for instance ~/notes/setup.md")
        yield RowList(self._drawn)
        yield Static(classes="words")

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._tell("")
        self._look("")

    def _drawn(self, index: int, width: int) -> Content:
        one = self._found[index]
        name = one.text.rstrip("/").rpartition("/")[2] + "/" * is_folder(one)
        return joined(
            content((shown(name, width), ACCENT) if is_folder(one) else shown(name, width)),
            content(("folder", MUTED)) if is_folder(one) else content(),
            width,
        )

    def _tell(self, trouble: str) -> None:
        self.query_one(Static).update(content((clean(trouble), BAD) if trouble else (ABOUT, MUTED)))

    @property
    def _path(self) -> str:
        return self.query_one(Input).value.strip()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        if event.value.strip() != self._tried:
            self._tell("")
        self._look(event.value.strip())

    @work(exclusive=True, group="look")
    async def _look(self, path: str) -> None:
        """Show what the path can become."""
        found = [one for one in await self._complete(on_disk(path)) if clean(one.text) == one.text]
        if self.is_up and path == self._path:
            exact = next((at for at, one in enumerate(found) if one.text == on_disk(path)), 0)
            self._found = found
            self.rows.empty = "Nothing begins like this." if path else "There is nothing here."
            self.rows.show(len(found), cursor=exact)

    def _put(self, one: Mention) -> None:
        """Write a path in full."""
        written = self._path
        path = self.query_one(Input)
        path.value = one.text if written.startswith("./") else one.text.removeprefix("./")
        path.cursor_position = len(path.value)

    def action_complete(self) -> None:
        if self.rows.cursor is not None and self.rows.cursor < len(self._found):
            self._put(self._found[self.rows.cursor])

    def choose(self, index: int) -> None:
        """Go into a folder, or attach a file."""
        if index < len(self._found):
            self._put(self._found[index])
            if not is_folder(self._found[index]):
                self._capture(self._found[index].text)

    def action_choose(self) -> None:
        if self.rows.cursor is not None and self._found:
            self.choose(self.rows.cursor)
        elif self._path:
            self._capture(pasted_path(self._path) or self._path)

    @work(exclusive=True, group="capture")
    async def _capture(self, path: str) -> None:
        self._tried = self._path
        self._tell("")
        try:
            self.finish(await self._take(path))
        except ChatError as error:
            if self.is_up:
                self._tell(str(error))
