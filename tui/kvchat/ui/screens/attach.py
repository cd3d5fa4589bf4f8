"""Attaching a file: its path, completed from what is on the disk.

The rule: the disk is looked at beside the typing, and what cannot be attached is said here, where it can be mended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.chat.errors import ChatError
from kvchat.prompt.context import ContextBlock
from kvchat.sanitize import clean
from kvchat.ui.screens.filtering import FilterLine
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import RowList
from kvchat.ui.screens.tones import ACCENT, BAD, MUTED, content, joined, shown
from kvchat.ui.widgets.composer.chips import pasted_path
from kvchat.ui.widgets.composer.mentions import is_folder, on_disk

if TYPE_CHECKING:
    from kvchat.documents.mentions import Mention

ABOUT = "It goes with the message as it is now."


class AttachScreen(ListModal[ContextBlock]):
    """Asks for a path; the result is the file that was captured."""

    DEFAULT_CSS = """
    AttachScreen > #frame { height: 60%; max-height: 24; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "complete", "Complete", show=False, priority=True)]

    def __init__(self, complete: Callable[[str], Awaitable[Sequence[Mention]]],
                 attach: Callable[[str], Awaitable[ContextBlock]]) -> None:
        super().__init__(classes="-small")
        self.heading = "Attach a file"
        self.hints = (("tab", "complete"), ("↑↓", "choose"), ("enter", "attach"), ("esc", "cancel"))
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
        return joined(content((shown(name, width), ACCENT) if is_folder(one) else shown(name, width)),
                      content(("folder", MUTED)) if is_folder(one) else content(), width)

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
        if self.query(Input) and path == self._path:  # it may have been closed meanwhile
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
            if self.query(Static):
                self._tell(str(error))
