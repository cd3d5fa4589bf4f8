"""How the memory screen looks: three views over one list, with the row under the cursor told below it.

The rule: it only draws what it was given; the keys that it tells of are those that work now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from textual import on
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.chat.background.extraction import QUEUE_PAGE
from kvchat.memory.entry import Change, Entry, Status
from kvchat.sanitize import one_line
from kvchat.text.format import count
from kvchat.ui.screens import memory_keys as heads
from kvchat.ui.screens import memory_rows as words
from kvchat.ui.screens import memory_work as work_words
from kvchat.ui.screens.filtering import FilterLine
from kvchat.ui.screens.memory_edit import EntryEditor
from kvchat.ui.screens.memory_keys import CHANGING, ENTRY_KEYS, HINTS, PROPOSAL_KEYS, SEARCHING, WRITING, View, fitting
from kvchat.ui.screens.memory_list import Filter, Listing
from kvchat.ui.screens.memory_rows import Telling
from kvchat.ui.screens.memory_source import Look, MemoryService, QueueLine
from kvchat.ui.screens.modal import Hint, ListModal, hint_line
from kvchat.ui.screens.rows import FocusRows, RowList
from kvchat.ui.screens.tones import ACCENT, BAD, STRONG, content
from kvchat.ui.screens.trying import Trying


class Jump(NamedTuple):
    """The message that the person wants to see."""

    conversation: str
    node: str | None


class MemoryFrame(Trying, ListModal[Jump]):
    """What stands on the screen, and where."""

    DEFAULT_CSS = """
    MemoryFrame {
        & > #frame { height: 96%; max-height: 50; padding: 0 2; }
        & #views { height: 1; margin-bottom: 1; }
        & #search { height: 2; border-bottom: solid $foreground 20%; }
        & #search FilterLine { height: 1; border: none; width: 1fr; }
        & #filters { width: auto; height: 1; margin-left: 2; }
        & #problems { display: none; }
        & #rows { height: 1fr; min-height: 3; scrollbar-gutter: stable; }
        & #empty { display: none; height: 1fr; padding: 1 2; }
        & #detail { height: 4; margin-top: 1; padding: 0 1 0 2; }
        & #keys, & #note { height: 1; padding: 0 1 0 2; }
        &.-told-long #note { height: 2; }
        &.-told-long #keys { display: none; }
        &.-troubled #problems { display: block; }
        &.-empty #rows, &.-empty #detail, &.-empty #keys { display: none; }
        &.-empty #empty { display: block; }
        &.-other #search { display: none; }
        &.-editing #detail, &.-editing #keys { display: none; }
        &:ansi #search { border-bottom: solid ansi_bright_black; }
    }
    """
    AUTO_FOCUS: ClassVar[str | None] = "#rows"

    def __init__(self, service: MemoryService, conversation: str = "", *, query: str = "",
                 fresh: Collection[str] = (), view: View = "memories") -> None:
        """`conversation`: the open one; `fresh`: the ids of what was noted since the person looked last."""
        super().__init__(classes="-list -wide")
        self.heading = "Memory"
        self.hints = HINTS[view]
        self.service = service
        self.conversation = conversation
        self.view = view
        self.looked: Look | None = None
        self.queue: Sequence[QueueLine] = ()
        self.filter = Filter(query)
        self.listing = Listing()
        self.telling = Telling(service.now(), fresh=fresh)
        self.by_id: Mapping[str, str] = {}
        self._told = ("", False)
        self.key: object = None
        """Which row of the queue or the history is under the cursor."""

    def body(self) -> Iterable[Widget]:
        yield Static(classes="words", id="views")
        with Horizontal(id="search"):
            yield FilterLine("search", self.filter.query)
            yield Static(id="filters")
        yield Static(classes="words", id="problems")
        rows = FocusRows(self._draw)
        rows.id = "rows"
        yield rows
        yield Static(Content("\n".join(words.EMPTY)), classes="words", id="empty")
        yield Static(classes="words", id="detail")
        yield EntryEditor()
        yield Static(classes="words", id="keys")
        yield Static(classes="words", id="note")

    @property
    def editor(self) -> EntryEditor:
        return self.query_one(EntryEditor)

    @property
    def entry(self) -> Entry | None:
        """The memory under the cursor."""
        return self.listing.at(self.rows.cursor) if self.view == "memories" else None

    @property
    def change(self) -> Change | None:
        """The change under the cursor."""
        at = self.rows.cursor
        there = self.looked.changes if self.looked is not None and self.view == "history" else ()
        return there[at] if at is not None and at < len(there) else None

    @property
    def queued(self) -> QueueLine | None:
        """The line of the queue under the cursor."""
        at = self.rows.cursor
        return self.queue[at] if self.view == "queue" and at is not None and at < len(self.queue) else None

    # -- drawing

    @property
    def _stands(self) -> bool:
        """Whether there is something to draw on: what was waited for may come when the screen is being closed."""
        return self.is_running and bool(self.query("#note"))

    def fill(self) -> None:
        """All that depends on the width."""
        if not self._stands:
            return
        taken, width = self.looked, self.query_one("#note", Static).content_size.width
        if taken is None or not width:
            return
        many: dict[View, str] = {}
        if taken.entries or taken.proposals:
            many["memories"] = count(len(taken.entries) + len(taken.proposals))
        if self.queue:
            many["queue"] = count(QUEUE_PAGE) + "+" if len(self.queue) > QUEUE_PAGE else count(len(self.queue))
        on = self.service.memory_on(self.conversation) if self.conversation else None
        self.query_one("#views", Static).update(content("  ") + heads.views_line(self.view, many, on, width))
        self.query_one("#filters", Static).update(heads.filters_line(self.filter))
        problems = words.problems_words(taken.problems, width)
        self.set_class(bool(problems), "-troubled")
        self.query_one("#problems", Static).update(Content("\n").join([content("  ") + line for line in problems]))
        self.tell(self._told[0], bad=self._told[1])
        self.tell_row()
        self.hint()

    def tell(self, text: str, *, bad: bool = False) -> None:
        """A sentence in the last line until the cursor moves; without one it says where the files are."""
        self._told = (text, bad)
        if not self._stands:
            return
        note = self.query_one("#note", Static)
        width = note.content_size.width or self.size.width
        self.set_class(cell_len(text) > width, "-told-long")
        if text:
            note.update(content((one_line(text, 2 * width), BAD if bad else ACCENT)))
        elif self.looked is not None:
            note.update(words.folder_words(self.looked.folder, Path.home(), width))

    @property
    def told(self) -> str:
        """The sentence in the last line; empty: none."""
        return self._told[0]

    @on(RowList.Moved)
    def tell_row(self) -> None:
        """The row under the cursor in sentences, and what can be done with it."""
        width = self.query_one("#note", Static).content_size.width  # that one is always there
        lines: Sequence[Content] = ()
        keys: Sequence[Hint] = ()
        if (entry := self.entry) is not None:
            lines = words.entry_words(entry, self.telling, width)
            keys = PROPOSAL_KEYS if entry.status is Status.PROPOSED else ENTRY_KEYS
        elif (change := self.change) is not None:
            self.key = change.seq
            lines = work_words.change_words(change, self.by_id, self.telling, width)
        elif (line := self.queued) is not None:
            self.key = line.kind, line.subject
            lines = work_words.queue_words(line, self.telling, width)
        self.query_one("#detail", Static).update(Content("\n").join(lines))
        self.query_one("#keys", Static).update(hint_line(keys))

    def hint(self) -> None:
        """The keys that work now, in the bottom edge; those in the middle give way when there is no room."""
        frame = self.query_one("#frame")
        if self.editor.is_open:
            hints = WRITING if self.editor.adds else CHANGING
        else:
            hints = SEARCHING if isinstance(self.focused, Input) else HINTS[self.view]
        frame.border_subtitle = hint_line(fitting(hints, frame.size.width - 4))

    def on_descendant_focus(self) -> None:
        self.hint()

    def _draw(self, index: int, width: int) -> Content:
        if self.looked is None:
            return content()
        if self.view == "queue":
            return work_words.queue_row(self.queue[index], self.telling, width)
        if self.view == "history":
            return work_words.change_row(self.looked.changes[index], self.telling, width)
        row = self.listing.rows[index]
        if isinstance(row, str):
            return content((row, STRONG))
        return words.entry_row(row, self.telling, width)
