"""Add a folder or a file: its path, completed from the disk while it is typed, and the name it gets.

Tab completes, and so does Enter on an entry that was reached in the list; else Enter adds what is written. What cannot
be added is reported here, and the text stays.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from kvchat.chat.errors import ChatError
from kvchat.documents.collection import Collection, is_name, named, unused
from kvchat.sanitize import one_line
from kvchat.ui.bindings import bindings
from kvchat.ui.runs import shown
from kvchat.ui.screens.kit import BAD, MUTED, FilterInput, ListModal, RowList, content

MOST = 500
"""Folders that are offered."""
LOOKED_AT = 20_000
"""Entries of a folder that are looked at for them."""
EMPTY: Mapping[str, str] = MappingProxyType({})
_HELLO = "Its files are read and indexed here, and never changed. @name in a message searches in it."

Add = Callable[[str, str], Awaitable[Collection]]
"""Adds a path under a name: `DocumentService.add`. Raises ChatError."""


def unquoted(text: str) -> str:
    """A path as it is meant: without the quotes around it, and the backslashes before blanks, of a pasted one."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text.replace("\\ ", " ") if os.sep == "/" else text


def folders(written: str) -> list[str]:
    """What a path can become: the folders that begin like it, as they are written, each with a slash at its end."""
    text = unquoted(written)
    if text in ("~", ".", ".."):
        text += "/"
    above, _, last = text.rpartition("/")
    folder = f"{above}/" if "/" in text else ""
    try:
        with os.scandir(Path(folder or ".").expanduser()) as entries:
            found = sorted(
                (entry.name for entry in itertools.islice(entries, LOOKED_AT) if _fits(entry, last)), key=str.casefold
            )
    except (OSError, RuntimeError, ValueError):
        return []
    return [f"{folder}{name}/" for name in found[:MOST]]


def _fits(entry: os.DirEntry[str], beginning: str) -> bool:
    hidden = entry.name.startswith(".") and not beginning.startswith(".")
    try:
        return (
            not hidden
            and entry.name.isprintable()
            and entry.name.casefold().startswith(beginning.casefold())
            and entry.is_dir()
        )
    except OSError:
        return False


def name_of(written: str, known: Mapping[str, str]) -> tuple[str, bool]:
    """The name of what is at this path, and whether it is a collection already; `known`: names by root. Otherwise the
    name is a proposal, empty where nothing is written. Looks at the disk."""
    text = unquoted(written)
    if not text:
        return "", False
    try:
        root = Path(os.path.normpath(Path.cwd() / Path(text).expanduser()))
    except (OSError, RuntimeError, ValueError):
        return "", False
    if str(root) in known:
        return known[str(root)], True
    return unused(named(root), {name.casefold() for name in known.values()}), False


class Field(Horizontal):
    """An input behind its name."""

    def __init__(self, name: str, placeholder: str, value: str = "") -> None:
        super().__init__(classes="line", id=name)
        self._placeholder = placeholder
        self._value = value

    def compose(self) -> ComposeResult:
        yield Label(Content(f"{self.id} › "))
        yield FilterInput(self._value, placeholder=self._placeholder)


class AddDocumentsScreen(ListModal[Collection]):
    """Result: what was added."""

    DEFAULT_CSS = """
    AddDocumentsScreen {
        & RowList { height: 1fr; }
        & #note { height: auto; max-height: 3; margin-top: 1; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("add")]

    def __init__(self, add: Add, known: Mapping[str, str] = EMPTY, *, path: str = "") -> None:
        """`known`: the names of the collections there are, by their roots; `path`: what is written at first."""
        super().__init__(classes="-list -small")
        self.heading = "Add a folder or a file"
        self.hints = (
            ("add.complete", "complete"),
            ("rows.choose", "add"),
            ("add.other_field", "name"),
            ("dialog.close", "cancel"),
        )
        self._add = add
        self._known = known
        self._begin = path
        self._offers: Sequence[str] = ()
        self._proposed = ""
        self._is_known = False
        """Whether the path is a collection already: its name is fixed then."""
        self._moved = False
        """Whether the user went into the list: Enter takes what is there then."""

    def body(self) -> Iterable[Widget]:
        yield Field("path", "such as ~/notes", self._begin)
        yield Field("name", "made of the path's own")
        yield RowList(self._draw)
        yield Static(classes="words", id="note")

    def on_mount(self) -> None:
        self.path.focus()
        self.rows.empty = "No folder begins like this."
        self.rows.show(0)
        self.tell(_HELLO)
        self._offer(self.path.value)

    @property
    def path(self) -> Input:
        return self.query_one("#path Input", Input)

    @property
    def name_field(self) -> Input:
        return self.query_one("#name Input", Input)

    def tell(self, text: str, *, bad: bool = False) -> None:
        self.query_one("#note", Static).update(content((one_line(text, 400), BAD if bad else MUTED)))

    def _draw(self, index: int, width: int) -> Content:
        return content(shown(Path(self._offers[index]).name + "/", width))

    # -- writing

    @on(Input.Changed, "#path Input")
    def _written(self, event: Input.Changed) -> None:
        self._offer(event.value)

    @work(exclusive=True, group="offer", exit_on_error=False)
    async def _offer(self, written: str) -> None:
        """The folders that begin like what is written, and a name for it."""
        offers, (name, known) = await asyncio.to_thread(lambda: (folders(written), name_of(written, self._known)))
        if written != self.path.value:
            return
        self._offers, self._moved = offers, False
        self.rows.show(len(offers))
        if known or self._is_known or self.name_field.value in ("", self._proposed):
            self.name_field.value = name
        self._proposed = name
        if known or self._is_known:
            self.tell(
                f"This is the collection {one_line(name, 40)} already; Enter looks for changes in it."
                if known
                else _HELLO
            )
        self._is_known = self.name_field.disabled = known

    def action_complete(self) -> None:
        """Take the folder under the cursor into the path."""
        at = self.rows.cursor
        if self.focused is self.name_field:
            self.path.focus()
        elif at is not None and at < len(self._offers):
            self.path.value = self._offers[at]
            self.path.cursor_position = len(self.path.value)

    def action_other_field(self) -> None:
        if self.focused is self.name_field:
            self.path.focus()
        elif not self._is_known:
            self.name_field.focus()

    def action_move(self, step: int) -> None:
        self._moved = True
        super().action_move(step)

    def choose(self, index: int) -> None:
        """A click on a folder completes."""
        self.action_complete()

    def action_choose(self) -> None:
        if self._moved and self._offers:
            self.path.focus()
            self.action_complete()
        else:
            self._finish(self.path.value, self.name_field.value.strip())

    @work(exclusive=True, group="add", exit_on_error=False)
    async def _finish(self, written: str, name: str) -> None:
        path = unquoted(written)
        if not path:
            self.tell("Write the path of a folder or a file.", bad=True)
        elif name and not is_name(name):
            self.tell("A name has letters, digits, - _ and ., and at most 40 of them.", bad=True)
        else:
            try:
                added = await self._add(path, "" if name == self._proposed or self._is_known else name)
            except ChatError as error:
                self.tell(str(error), bad=True)
                return
            self.finish(added)
