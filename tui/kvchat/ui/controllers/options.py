"""Set what only a screen can: parameters, colours."""

from __future__ import annotations

from kvchat.config import ConfigError
from kvchat.config.edit import save_setting
from kvchat.config.themes import AUTOMATIC
from kvchat.ui.controllers.workspace import Workspace, in_worker


class OptionController:
    """Shows the dialogs of parameters and colours."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._options = workspace.service.options

    @in_worker("dialog")
    async def parameters(self) -> None:
        from kvchat.ui.screens.options import ParametersScreen

        conversation = self.workspace.conversation
        chosen = await self.workspace.ask(ParametersScreen(conversation.record.parameters))
        if chosen is not None:
            await self._options.set_parameters(conversation.id, chosen)

    @in_worker("dialog")
    async def theme(self, name: str = "") -> None:
        from kvchat.ui.screens.themes import ThemeScreen

        app, host = self.workspace.app, self.workspace.host
        if app.no_color:
            self.workspace.say("NO_COLOR is set: no theme has colours.")
            return
        if not name:
            names = sorted(app.available_themes, key=lambda one: (not one.startswith("kvchat"), one))
            used = AUTOMATIC if host.themes.follows_terminal else app.theme
            name = await self.workspace.ask(ThemeScreen([AUTOMATIC, *names], used, app.theme)) or ""
        if name == AUTOMATIC or name in app.available_themes:
            host.themes.wear(name)
            try:
                save_setting(host.paths.config, "theme", name)
            except ConfigError as error:
                self.workspace.say(str(error), "warning")
        elif name:
            self.workspace.say(f"There is no theme {name}. /theme shows them all.", "warning")
