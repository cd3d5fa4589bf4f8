"""The documents: the folders that are indexed, how far indexing is, and which of them this conversation searches.

The rule: indexing goes on when the screen is closed; only a key that says so ends it.
"""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType

from kvchat.ui.screens.documents_acts import DocumentsActs
from kvchat.ui.screens.documents_source import DocumentsService


class DocumentsScreen(DocumentsActs):
    """All collections. It answers nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "move(1)", "Down", show=False),
        Binding("k", "move(-1)", "Up", show=False),
        Binding("a", "add", "Add", show=False),
        Binding("x,d,delete", "remove", "Remove", show=False),
        Binding("r", "update", "Look for changes", show=False),
        Binding("R", "update(True)", "Read everything again", show=False),
        Binding("c", "stop_indexing", "Stop indexing", show=False),
        Binding("s", "choose", "Report", show=False),
        Binding("slash,ctrl+f", "search", "Search", show=False),
        Binding("space", "cycle", "This conversation", show=False),
        Binding("o", "folder", "Folder", show=False),
    ]

    def __init__(self, service: DocumentsService, conversation: str = "", *, query: str = "",
                 add: str | None = None) -> None:
        """`query`: begin with a search for it; `add`: begin with adding this path."""
        super().__init__(service, conversation)
        self._query = query
        self._path = add

    def on_mount(self) -> None:
        if self._path is not None:
            self.action_add(self._path)
        elif self._query:
            self.action_search()

    def choose(self, index: int) -> None:
        self.action_report()

    def action_move(self, step: int) -> None:
        self.tell("")
        super().action_move(step)

    def action_page(self, direction: int) -> None:
        self.tell("")
        super().action_page(direction)

    @work(group="dialog")
    async def action_report(self) -> None:
        """What was skipped and why, and what the last indexing did."""
        from kvchat.ui.screens.documents_report import ReportScreen

        one = self.collection
        if one is None:
            return
        status = self.telling.statuses.get(one.name)
        report = self.service.reports.get(one.name)
        if status is None and report is None:
            self.tell("It is still being counted.")
            return
        await self.app.push_screen_wait(ReportScreen(one, status, report))

    @work(group="dialog")
    async def action_search(self) -> None:
        """Try the index."""
        from kvchat.ui.screens.documents_search import DocumentSearchScreen

        if self.collections is None:
            await self.list_again()
        if not self.collections:
            self.tell("There is nothing to search in yet; a adds a folder.")
            return
        query, self._query = self._query, ""
        await self.app.push_screen_wait(DocumentSearchScreen(self.service, self.collection, query=query))
