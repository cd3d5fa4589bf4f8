"""The documents: the folders that are indexed, how far indexing is, and which of them this conversation searches.

The rule: indexing goes on when the screen is closed; only a key that says so ends it.
"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from kvchat.ui.screens.documents_acts import DocumentsActs
from kvchat.ui.screens.documents_source import DocumentsService


class DocumentsScreen(DocumentsActs):
    """All collections. It answers nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(keys, action, words, show=False, priority=True) for keys, action, words in (
            ("j,down,ctrl+down", "move(1)", "Down"),
            ("k,up,ctrl+up", "move(-1)", "Up"),
            ("pageup", "page(-1)", "Page up"),
            ("pagedown", "page(1)", "Page down"),
            ("home,ctrl+home", "move(-1000000000)", "First"),
            ("end,ctrl+end", "move(1000000000)", "Last"),
            ("a", "add", "Add"),
            ("x,delete", "remove", "Remove"),
            ("r", "update", "Look for changes"),
            ("R", "update(True)", "Read everything again"),
            ("c", "stop_indexing", "Stop indexing"),
            ("s,enter", "choose", "Report"),
            ("slash,ctrl+f", "search", "Search"),
            ("space", "cycle", "This conversation"),
            ("o", "folder", "Folder"),
        )
    ]
    """With priority: each key is done with before the next one is read, so a dialog that it opens gets what follows."""

    def __init__(self, service: DocumentsService, conversation: str = "", *, add: str | None = None) -> None:
        """`add`: begin with adding this path."""
        super().__init__(service, conversation)
        self._path = add

    def on_mount(self) -> None:
        if self._path is not None:
            self.action_add(self._path)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Nothing can be done before there is something to do it with."""
        return self._stands and super().check_action(action, parameters)

    def choose(self, index: int) -> None:
        self.action_report()

    def action_move(self, step: int) -> None:
        self.tell("")
        super().action_move(step)

    def action_page(self, direction: int) -> None:
        self.tell("")
        super().action_page(direction)

    def action_report(self) -> None:
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
        self.app.push_screen(ReportScreen(one, status, report))

    def action_search(self) -> None:
        """Try the index."""
        from kvchat.ui.screens.documents_search import DocumentSearchScreen

        if self.collections is not None and not self.collections:
            self.tell("There is nothing to search in yet; a adds a folder.")
        else:
            self.app.push_screen(DocumentSearchScreen(self.service, self.collection))
