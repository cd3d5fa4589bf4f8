"""How the documents screen looks: one list, the collection under the cursor told below it, and the keys that work.

The rule: it only draws what it was given; the keys that it tells of are those that work now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.cells import cell_len
from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from kvchat.documents.collection import Collection
from kvchat.sanitize import one_line
from kvchat.ui.screens import documents_rows as words
from kvchat.ui.screens.documents_rows import Telling
from kvchat.ui.screens.documents_source import DocumentsService, Searching, searching_of
from kvchat.ui.screens.modal import Hint, ListModal, hint_line
from kvchat.ui.screens.rows import GUTTER, FocusRows, RowList
from kvchat.ui.screens.tones import ACCENT, BAD, content
from kvchat.ui.screens.trying import Trying

FIRST: Sequence[Hint] = (("a", "add"), ("esc", "close"))
HINTS: Sequence[Hint] = (("a", "add"), ("/", "search"), ("space", "this conversation"), ("esc", "close"))
KEYS: Sequence[Hint] = (("enter", "report"), ("r", "update"), ("R", "read anew"), ("x", "remove"), ("o", "folder"))
RUNNING: Sequence[Hint] = (("c", "stop indexing"), ("enter", "report"), ("x", "remove"), ("o", "folder"))


class DocumentsFrame(Trying, ListModal[str]):
    """What stands on the screen, and where."""

    DEFAULT_CSS = """
    DocumentsFrame {
        & #heads { height: 1; padding-left: 2; }
        & #rows { height: 1fr; min-height: 3; scrollbar-gutter: stable; }
        & #empty { display: none; height: 1fr; padding: 0 2; }
        & #detail { height: 4; margin-top: 1; padding: 0 1 0 2; }
        & #keys { height: 1; padding: 0 1 0 2; }
        & #note { height: auto; max-height: 2; padding: 0 1 0 2; }
        &.-told #keys { display: none; }
        &.-empty #rows, &.-empty #detail, &.-empty #heads, &.-empty #keys { display: none; }
        &.-empty #empty { display: block; }
    }
    """
    AUTO_FOCUS: ClassVar[str | None] = "#rows"

    def __init__(self, service: DocumentsService, conversation: str = "") -> None:
        """`conversation`: the open one."""
        super().__init__(classes="-list -wide")
        self.heading = "Documents"
        self.hints = FIRST
        self.service = service
        self.conversation = conversation
        self.collections: Sequence[Collection] | None = None
        """None: they are being read."""
        self.telling = Telling(service.now(), has_conversation=bool(conversation))
        self._told = ("", False)
        self._told_of = ""
        """The collection whose indexing the sentence is about: it stands until that ends."""
        self.looked_into: set[str] = set()
        """The collections for which it is tried, without a word, whether another kvchat still indexes them."""

    def body(self) -> Iterable[Widget]:
        yield Static(classes="words", id="heads")
        rows = FocusRows(self._draw)
        rows.id = "rows"
        yield rows
        yield Static(Content("\n".join(words.EMPTY)), classes="words", id="empty")
        yield Static(classes="words", id="detail")
        yield Static(classes="words", id="keys")
        yield Static(classes="words", id="note")

    @property
    def collection(self) -> Collection | None:
        """The one under the cursor."""
        at, there = self.rows.cursor, self.collections or ()
        return there[at] if at is not None and at < len(there) else None

    @property
    def searching(self) -> Searching:
        """What the open conversation searches by itself."""
        return searching_of(self.service, self.conversation)

    # -- drawing

    @property
    def _stands(self) -> bool:
        """Whether there is something to draw on: what was waited for may come when the screen is being closed."""
        return self.is_running and bool(self.query("#note"))

    def fill(self) -> None:
        """All that depends on what goes on, and on the width."""
        indexing = {name: progress for name, progress in self.service.indexing.items()
                    if progress.all_files or name not in self.looked_into}
        self.telling = replace(self.telling, now=self.service.now(), indexing=indexing,
                               reports=dict(self.service.reports), searching=self.searching,
                               longest=max((cell_len(one_line(c.name)) for c in self.collections or ()), default=8))
        if not self._stands:
            return
        if self._told_of and self._told_of not in self.service.indexing:
            self.tell("")
        empty = self.collections is not None and not self.collections
        self.set_class(empty, "-empty")
        self.query_one("#heads", Static).update(words.heading_row(self.telling, max(1, self.rows.room)))
        frame = self.query_one("#frame")
        frame.border_subtitle = hint_line(FIRST if empty else HINTS)
        many = len(self.collections or ())
        frame.border_title = Content(self.heading + (f" · {many:,}" if many > 1 else ""))
        self.rows.refresh()
        self.tell_row()

    def tell(self, text: str, *, bad: bool = False) -> None:
        """A sentence below the list until the cursor moves."""
        self._told, self._told_of = (text, bad), ""
        if not self._stands:
            return
        note = self.query_one("#note", Static)
        width = max(20, note.content_size.width or self.size.width - 12)
        self.set_class(bool(text), "-told")
        note.display = bool(text)
        line = one_line(text, 2 * width)
        note.update(content((line if cell_len(line) <= 2 * width else line[:width], BAD if bad else ACCENT)))

    def tell_while_indexing(self, name: str, text: str) -> None:
        """A sentence below the list until the cursor moves or the indexing of this collection ends."""
        self.tell(text)
        self._told_of = name
        self.fill()

    @property
    def told(self) -> str:
        """The sentence below the list; empty: none."""
        return self._told[0]

    @on(RowList.Moved)
    def tell_row(self) -> None:
        """The collection under the cursor in sentences, and what can be done with it."""
        if not self._stands:
            return
        width = max(1, self.rows.size.width - GUTTER - 1)
        one = self.collection
        lines = words.about(one, self.telling, width) if one is not None else []
        self.query_one("#detail", Static).update(Content("\n").join(lines))
        keys = RUNNING if one is not None and one.name in self.telling.indexing else KEYS
        self.query_one("#keys", Static).update(hint_line(keys if one is not None else ()))

    def _draw(self, index: int, width: int) -> Content:
        there = self.collections or ()
        return words.row(there[index], self.telling, width) if index < len(there) else content()
