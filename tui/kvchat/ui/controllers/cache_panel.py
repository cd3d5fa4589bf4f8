"""The panel with the server's cache: whether there is room for it, and what it shows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kvchat.ui.controllers.workspace import Workspace

if TYPE_CHECKING:
    from kvchat.ui.widgets.cache_panel import CachePanel

WIDE = 150
"""Columns from which on there is room for it."""


class CachePanelController:
    """Makes the panel when it is first shown: most terminals are narrower."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self.wanted = service.settings.cache_panel
        self._service = service
        self._around = screen.columns
        self._panel: CachePanel | None = None

    @property
    def has_room(self) -> bool:
        return self.workspace.screen.size.width >= WIDE

    def fit(self) -> None:
        """Fit the panel to the terminal's width and the user's wish."""
        shown = self.wanted and self.has_room
        if shown and self._panel is None:
            from kvchat.ui.widgets.cache_panel import CachePanel

            self._panel = CachePanel()
            self._around.mount(self._panel)
        if self._panel is not None:
            self._panel.display = shown
        self.show()

    def toggle(self) -> None:
        if not self.has_room:
            self.workspace.say(f"The cache panel needs {WIDE} columns (now {self.workspace.screen.size.width})")
            return
        self.wanted = not self.wanted
        self.fit()

    def show(self) -> None:
        """What is held now, and the running answer."""
        panel, conversation = self._panel, self.workspace.current
        if panel is None or not panel.display or conversation is None:
            return
        from kvchat.ui.widgets.panel_text import panel_lines
        from kvchat.ui.widgets.statusline import live_of

        live = live_of(conversation.live, time.monotonic()) if conversation.live is not None else None
        held = self._service.cache_reports.holdings(conversation.id)
        panel.show(
            panel_lines(held, conversation.id, live, panel.content_size.width or 37, self._service.clock().timestamp())
        )
