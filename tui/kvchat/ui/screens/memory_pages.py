"""What the memory screen shows: one look at the memory, narrowed by what is searched and chosen.

The rule: a look is taken again when the memory may have changed, and the cursor stays on its row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from textual import on, work
from textual.timer import Timer
from textual.widgets import Input

from kvchat.chat.events import JobsChanged, MemoriesChanged, MemoriesNoted, ServiceEvent
from kvchat.sanitize import one_line
from kvchat.ui.screens import memory_rows as words
from kvchat.ui.screens import memory_work as work_words
from kvchat.ui.screens.memory_frame import MemoryFrame
from kvchat.ui.screens.memory_keys import View
from kvchat.ui.screens.memory_list import Texts, kinds_in, listed
from kvchat.ui.screens.memory_source import QueueLine, found, look, queue_lines

PATIENCE = 0.3
"""Seconds between two looks while the memory changes."""
PAUSE_SECONDS = 0.12
"""After the last letter of a search."""


class MemoryPages(MemoryFrame):
    """The views, without what can be done in them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.opened_at = 0
        """The number of the newest change when the screen was opened."""
        self._texts = Texts()
        self._soon: Timer | None = None
        self._typing: Timer | None = None
        self._stop_listening: Callable[[], None] = lambda: None

    def on_mount(self) -> None:
        self._stop_listening = self.service.subscribe(self._heard)
        self.rows.empty = "looking …"
        self.rows.show(0)
        self.refresh_soon()

    def on_unmount(self) -> None:
        self._stop_listening()

    def on_resize(self) -> None:
        self.call_after_refresh(self.fill)

    # -- looking

    def _heard(self, event: ServiceEvent) -> None:
        if isinstance(event, MemoriesChanged | MemoriesNoted | JobsChanged) and self._soon is None:
            self._soon = self.set_timer(PATIENCE, self.refresh_soon)

    @work(exclusive=True, group="look")
    async def refresh_soon(self) -> None:
        """Look again, in the background."""
        self._soon = None
        await self.look_again()

    async def look_again(self) -> None:
        """Everything as it is now."""
        query = self.filter.query
        taken = await self.tried(self.service.with_memories(lambda book: look(book, query)))
        if not self._stands:
            return
        if taken is None:
            self.rows.empty = one_line(self.told, 400)
            self.rows.refresh()
            return
        queue = await self.tried(self._queue())
        if self.looked is None:
            self.opened_at = taken.newest_seq
        self.looked, self.queue = taken, self.queue if queue is None else queue
        self.filter = replace(self.filter, found=taken.found if query == self.filter.query else self.filter.found)
        self._texts = Texts((*taken.proposals, *taken.entries))
        self.by_id = {entry.id: entry.text for entry in (*taken.proposals, *taken.entries)}
        titles = {known.id: known.title for known in self.service.conversations()}
        self.telling = replace(self.telling, now=self.service.now(), titles=titles, why=taken.asked_because())
        self.show_rows(keep=True)

    async def _queue(self) -> list[QueueLine]:
        return queue_lines(await self.service.memory_queue(), self.service.jobs())

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if event.value != self.filter.query:
            self.filter = replace(self.filter, query=event.value)
            if self._typing is not None:
                self._typing.stop()
            self._typing = self.set_timer(PAUSE_SECONDS, self._search)

    @work(exclusive=True, group="search")
    async def _search(self) -> None:
        query = self.filter.query
        ids = await self.tried(self.service.with_memories(lambda book: found(book, query)))
        if query == self.filter.query:
            self.filter = replace(self.filter, found=ids or ())
            self.show_rows()

    # -- showing

    def show_view(self, view: View) -> None:
        """Go to another view."""
        self.view = view
        self.set_class(view != "memories", "-other")
        self.tell("")
        self.show_rows()

    def show_rows(self, *, keep: bool = False, at: str = "") -> None:
        """The rows of the view, with the cursor on the memory `at`; with `keep` it stays on its row, or near where that
        was when it is gone."""
        if self.looked is None or not self._stands:
            return
        rows, place = self.rows, self.rows.cursor or 0
        self.telling = replace(self.telling, query=self.filter.query)
        headings: Collection[int] = ()
        if self.view == "memories":
            wanted = at or (self.entry.id if keep and self.entry is not None else "")
            old, self.listing = self.listing, listed(self.looked, self.filter, self._texts)
            size, headings = len(self.listing.rows), self.listing.headings
            cursor = self.listing.place_like(old, place, wanted) if wanted else 0
            narrow = self.filter.kind is not None or self.filter.conversation
            rows.empty = words.FILTERED if narrow and not self.filter.query.strip() else words.NOT_FOUND
        else:
            keys = self._keys()
            size, cursor = len(keys), min(place, max(0, len(keys) - 1)) if keep else 0
            if keep and self.key in keys:
                cursor = keys.index(self.key)
            rows.empty = work_words.NO_QUEUE if self.view == "queue" else work_words.NO_HISTORY
        self.set_class(self.view == "memories" and not (self.looked.entries or self.looked.proposals), "-empty")
        rows.show(size, cursor=cursor, headings=headings)
        self.fill()

    def _keys(self) -> list[object]:
        """What tells the rows of the queue and of the history from each other, whatever came since."""
        if self.view == "queue":
            return [(line.kind, line.subject) for line in self.queue]
        return [change.seq for change in self.looked.changes] if self.looked is not None else []

    def next_kind(self, step: int) -> None:
        """Show another kind, or all of them again."""
        if self.looked is not None:
            kinds = [None, *kinds_in(self.looked)]
            at = kinds.index(self.filter.kind) if self.filter.kind in kinds else 0
            self.filter = replace(self.filter, kind=kinds[(at + step) % len(kinds)])
            self.show_rows()
