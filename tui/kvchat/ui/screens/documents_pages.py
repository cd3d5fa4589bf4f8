"""What the documents screen shows: the collections, counted in the background, and what is being indexed.

The rule: what is told ten times a second is drawn a few times a second, and the cursor stays on its collection.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from textual import work
from textual.timer import Timer

from kvchat.chat.errors import ChatError
from kvchat.chat.events import DocumentsChanged, IndexingProgressed, ServiceEvent
from kvchat.documents.collection import Status
from kvchat.sanitize import one_line
from kvchat.ui.screens.documents_frame import DocumentsFrame
from kvchat.ui.screens.documents_source import AT_ONCE, Library, counted_up, is_elsewhere, stale_key

PATIENCE = 0.25
"""Seconds between two drawings of what is told."""
RENEWAL = 5.0
"""Seconds between two looks at what other programs may have changed."""


class DocumentsPages(DocumentsFrame):
    """The list, without what can be done with it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._keys: dict[str, object] = {}
        """Of what state of a collection the count is."""
        self._soon: Timer | None = None
        self._stop_listening: Callable[[], None] = lambda: None

    def on_mount(self) -> None:
        self._stop_listening = self.service.subscribe(self._heard)
        self.rows.empty = "looking …"
        self.rows.show(0)
        self.tell("")
        self.look_soon()
        self.set_interval(RENEWAL, self._renew)

    def on_unmount(self) -> None:
        self._stop_listening()

    def on_resize(self) -> None:
        self.call_after_refresh(self.fill)

    @work(exclusive=True, group="renew")
    async def _renew(self) -> None:
        """Ages and counts as they are now; what another kvchat indexes is tried again, for nobody tells of its end."""
        self.looked_into &= self.service.indexing.keys()
        for name, report in dict(self.service.reports).items():
            if is_elsewhere(report) and name not in self.service.indexing:
                self.looked_into.add(name)
                with suppress(ChatError):
                    await self.service.index_documents(name)
        self.look_soon()

    def _heard(self, event: ServiceEvent) -> None:
        if isinstance(event, DocumentsChanged):
            self.look_soon()
        elif isinstance(event, IndexingProgressed) and self._soon is None:
            self._soon = self.set_timer(PATIENCE, self._progressed)

    def _progressed(self) -> None:
        self._soon = None
        if self.service.indexing.keys() <= {one.name for one in self.collections or ()}:
            self.fill()
        else:
            self.look_soon()

    @work(exclusive=True, group="look")
    async def look_soon(self) -> None:
        """Look again, in the background."""
        await self.look_again()

    async def look_again(self, *, at: str = "") -> None:
        """The collections as they are now, and then what is in them; the cursor goes to `at`, else it stays."""
        if await self.list_again(at):
            await self._count()

    async def list_again(self, at: str = "") -> bool:
        """The collections as they are now, without what is in them; whether they can be had."""
        found = await self.tried(self.service.with_documents(lambda library: list(library.collections())))
        if not self._stands:
            return False
        if found is None:
            self.rows.empty = one_line(self.told, 400)
            self.rows.refresh()
            return False
        before, place = self.collection, self.rows.cursor or 0
        wanted = at or (before.name if before is not None else "")
        changed = [one.name for one in found] != [one.name for one in self.collections or ()]
        self.collections = found
        if changed or at:
            cursor = next((i for i, one in enumerate(found) if one.name == wanted), min(place, max(0, len(found) - 1)))
            self.rows.show(len(found), cursor=cursor)
        self.fill()
        return True

    async def _count(self) -> None:
        """Count what was not counted yet, or has changed: first what is under the cursor."""
        keys = {one.name: stale_key(one, self.service.reports) for one in self.collections or ()}
        names = [name for name in keys if self._keys.get(name) != keys[name] or name not in self.telling.statuses]
        at = self.collection
        names.sort(key=lambda name: at is None or name != at.name)
        while names:
            now, names = names[:AT_ONCE], names[AT_ONCE:]

            def work(library: Library, now: list[str] = now) -> dict[str, Status]:
                return counted_up(library, now)

            statuses = await self.tried(self.service.with_documents(work))
            if statuses is None:
                return
            self._keys |= {name: keys[name] for name in statuses}
            self.telling = replace(self.telling, statuses={**self.telling.statuses, **statuses})
            self.fill()
