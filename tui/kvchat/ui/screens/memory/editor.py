"""Change the words of a memory: on the spot, below the list, or in the user's own editor at its line.

A text that was only looked at is not changed, and nothing is stored before it is saved.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import Static, TextArea

from kvchat.chat.conversations.drafts import MEMORY_TYPED
from kvchat.memory.entry import Entry, Kind
from kvchat.ui.bindings import bindings
from kvchat.ui.screens.kit import ACCENT, MUTED, STRONG, LongText, content
from kvchat.ui.screens.memory.rows import KIND_MARKS

if TYPE_CHECKING:
    from kvchat.chat.conversations.drafts import Drafts

LARGEST = 1 << 22
"""Bytes of a page that are looked through for a line."""

"""In front of the id of a memory, or of nothing for a new one: the key of what is written and not saved."""
Save = Callable[[Entry | None, str, Kind], Awaitable[None]]
"""Stores the text of a memory, or a new one (None) of this kind; an empty text: nothing was changed."""


class EntryEditor(Vertical):
    """A field for the text of one memory, under a line that tells of which kind it is."""

    DEFAULT_CSS = """
    EntryEditor {
        display: none; height: 5; margin-top: 1; border-top: solid $accent; padding: 0 1 0 2;
        &.-open { display: block; }
        & > .words { height: 1; }
        & > LongText { height: 3; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("entry", priority=True)]

    def __init__(self, save: Save, drafts: Drafts) -> None:
        super().__init__(id="editor")
        self._store = save
        self._entry: Entry | None = None
        self._kind = Kind.FACT
        self._field = LongText(drafts, placeholder="A sentence that is true for longer than today")

    def compose(self) -> ComposeResult:
        yield Static(classes="words")
        yield self._field

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    @property
    def adds(self) -> bool:
        """Whether a new memory is written."""
        return self._entry is None

    @property
    def is_empty(self) -> bool:
        return not self._field.text.strip()

    def open(self, entry: Entry | None) -> None:
        """Edit `entry`, or begin a new one."""
        self._entry, self._kind = entry, entry.kind if entry else Kind.FACT
        self._field.begin(MEMORY_TYPED + (entry.id if entry else ""), entry.text if entry else "")
        self.add_class("-open")
        self._tell()
        self._field.focus()

    def close(self) -> None:
        self.remove_class("-open")
        self._field.end()

    def next_kind(self, step: int) -> None:
        """Another kind for a new memory; that of an existing one stays."""
        if self._entry is None:
            kinds = list(Kind)
            self._kind = kinds[(kinds.index(self._kind) + step) % len(kinds)]
            self._tell()

    @on(TextArea.Changed)
    def _tell(self) -> None:
        what = "Edit   " if self._entry else "Something to remember   "
        kind, notice = (KIND_MARKS[self._kind], ACCENT), self._field.notice
        self.query_one(".words", Static).update(
            content((what, STRONG), kind, (f" {self._kind}{notice and f'   {notice}'}", MUTED))
        )

    async def action_save(self) -> None:
        """Store what was written; a text that is as it was is left alone."""
        await self._store(self._entry, self._field.unsaved.strip(), self._kind)

    def saved(self) -> None:
        """What was written is remembered."""
        self._field.saved()

    def action_new_line(self) -> None:
        self._field.insert("\n")


def line_of(folder: Path, entry: Entry) -> tuple[Path, int]:
    """The page of an entry and the number of its line there, from 1; 1 where it cannot be found. Reads the file."""
    path = folder / entry.page
    try:
        with path.open("rb") as file:
            lines = file.read(LARGEST).decode("utf-8", "replace").splitlines()
    except OSError:
        return path, 1
    mark, first = f"<!-- {entry.id} ", (entry.text.splitlines() or [""])[0].strip()
    return path, next((n for n, line in enumerate(lines, 1) if mark in line), None) or next(
        (n for n, line in enumerate(lines, 1) if first and line.lstrip("-*+ ").strip().startswith(first)), 1
    )
