"""Show the settings and change them: in the file, and in the running app.

`take` is the one place that knows what a changed setting does at once on the screen; what it does behind the screen is
in `ChatService.take_settings`, and which are read only at the start in `config.layers.running`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.config import ConfigError
from kvchat.config.edit import save_setting
from kvchat.config.themes import AUTOMATIC
from kvchat.ui.controllers.cache_panel import CachePanelController
from kvchat.ui.controllers.workspace import Workspace, in_worker

if TYPE_CHECKING:
    from kvchat.commands.setting_rows import SettingRow
    from kvchat.config import Settings


class SettingsController:
    """What the settings screen shows, and does."""

    def __init__(self, workspace: Workspace, panel: CachePanelController) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self._service = service
        self._panel = panel
        self._transcript = screen.transcript
        self._composer = screen.composer

    @in_worker("dialog")
    async def open(self, query: str = "") -> None:
        from kvchat.ui.screens.settings import SettingsScreen

        try:
            self.take(self.workspace.host.layers().settings)  # another window may have changed the file
        except ConfigError as error:
            self.workspace.say(str(error), "warning")
            return
        await self.workspace.ask(SettingsScreen(self.rows, self.change, self._service.drafts, query))

    def rows(self) -> list[SettingRow]:
        """Every setting as it is now, whoever changed it. Raises ConfigError."""
        from kvchat.commands.setting_rows import rows

        return rows(self.workspace.host.layers(), [AUTOMATIC, *sorted(self.workspace.app.available_themes)])

    def change(self, row: SettingRow, text: str | None) -> None:
        """Save what the user wrote for a setting, and apply it where that is possible; None: back to the default.
        Raises ConfigError."""
        from kvchat.commands.setting_rows import checked

        host = self.workspace.host
        save_setting(host.paths.config, row.path, None if text is None else checked(host.layers(), row, text))
        self.take(host.layers().settings)

    def take(self, wanted: Settings) -> None:
        """Have these settings in force from now on, but for those that are read when kvchat starts."""
        host, screen, before = self.workspace.host, self.workspace.screen, self._service.settings
        self._service.take_settings(wanted)
        now = self._service.settings
        if now.theme != before.theme:
            host.themes.wear(now.theme)
        if (now.keys, now.vi_keys) != (before.keys, before.vi_keys):
            host.keys.take(now, host.paths.config)
            screen.show_keys()
        if now.keyboard_protocol != before.keyboard_protocol:
            from kvchat.ui.terminal import keyboard

            host.tell_terminal(keyboard(now.keyboard_protocol))
        if now.enter_sends != before.enter_sends:
            self._composer.enter_sends = now.enter_sends
        if now.show_reasoning != before.show_reasoning:
            self._transcript.unfold_reasoning(now.show_reasoning)
        if now.sidebar != before.sidebar:
            screen.want_sidebar(now.sidebar)
        if now.cache_panel != before.cache_panel:
            self._panel.wanted = now.cache_panel
            self._panel.fit()
