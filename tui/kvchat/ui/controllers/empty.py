"""What stands in an empty conversation: a few words, or the first-run panel while there is no server."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from kvchat.ui.controllers.workspace import Workspace, in_worker

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService
    from kvchat.ui.widgets.composer.widget import Composer
    from kvchat.ui.widgets.transcript.widget import Transcript


class EmptyConversation:
    """Shows it in place of the transcript. `around`: the widget that holds all of the conversation."""

    def __init__(self, workspace: Workspace, service: ChatService, around: Vertical, hello: Static,
                 transcript: Transcript, composer: Composer) -> None:
        self.workspace = workspace
        self._servers = service.servers
        self._service = service
        self._around = around
        self._hello = hello
        self._transcript = transcript
        self._composer = composer

    def show(self) -> None:
        """The panel while there is nothing to talk to; else what to do, and where the keys are."""
        current = self.workspace.current
        if current is None:
            return
        nothing_there = self._servers.connection.phase == "none"
        panels = self._around.query("WelcomePanel")
        if nothing_there and not current.record.turns:
            if not panels:
                self._mount_panel()
        else:
            panels.remove()
        empty = len(current.path()) < 2
        self._hello.display = empty and not nothing_there
        self._transcript.display = not empty
        if self._hello.display:
            self._hello.update(Content("\n").join(map(Content, self._lines())))

    def _lines(self) -> list[str]:
        keys, server = self.workspace.app.key_of, self._servers.info
        lines = ["Write below. Enter sends, Esc stops, Tab goes to the conversation.",
                 f"{keys('help')} shows every key, {keys('palette')} finds any action.",
                 f"{keys('model')} chooses the model and the server."]
        if server and server.embedded and "SmolLM2-135M" in server.model:
            lines.append("This small model came along for a first look.")
        return lines

    @in_worker("welcome", exclusive=True)
    async def _mount_panel(self) -> None:
        from kvchat.ui.screens.servers import WelcomePanel

        models = await self._service.chooser.model_files()
        if self._servers.connection.phase == "none":
            self._transcript.display = False
            engine = find_spec("xllamacpp") is not None
            panel = WelcomePanel(self._servers.usual_places().split(", "), models=models, engine=engine,
                                 folders=self._service.chooser.model_folders())
            with self.workspace.app.key_queue.hold():  # what was typed so far decides who has the next key
                await self._around.mount(panel, before=0)
                await self._composer.written()
                if not self._composer.text:
                    self.workspace.screen.set_focus(panel)
