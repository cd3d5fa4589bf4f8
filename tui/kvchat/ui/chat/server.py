"""The server on the screen: how it is, what to do when there is none, and what leaves this machine."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from textual import work

from kvchat.ui.chat.options import OptionActs
from kvchat.ui.widgets.header_text import HeaderState

if TYPE_CHECKING:  # a screen of the first run only: imported when it is shown
    from kvchat.ui.screens.welcome import WelcomePanel

HOSTS: dict[str, str] = {"lan": "another machine of this network", "tailnet": "a machine of your tailnet",
         "cloud": "a server on the internet"}
GONE = frozenset({"lost", "failed"})


class ServerActs(OptionActs):
    """What the main screen does about the server."""

    _told = ""
    """The trouble that was shown already."""

    def show_server(self) -> None:
        """The header."""
        server, connection = self.service.server, self.service.connection
        state = self.header.state
        self.header.set_state(HeaderState(
            model=self.model(), kind=self.service.server_title(),
            host_class=self.goes_to(),
            phase=connection.phase, sentence=connection.sentence, embedded=bool(server and server.embedded),
            context_used=state.context_used,
            context_size=server.window(self.current.record.model if self.current else "") if server else None,
            incognito=self.service.incognito,
        ))

    def goes_to(self) -> str:
        """The class of host that the open conversation goes to."""
        server = self.service.server
        if server is None:
            return "loopback"
        return self.service.destination(server, self.current.id if self.current else "").host_class

    def server_changed(self) -> None:
        self.show_server()
        self.show_welcome()
        if self.current is not None:
            self.show_hello()
        connection = self.service.connection
        if connection.phase in GONE and connection.sentence != self._told:
            self._told = connection.sentence
            if connection.log:
                self._engine_trouble(connection.sentence, connection.log)
            else:
                self.say(connection.sentence, "error")
        elif connection.phase == "ready":
            self._told = ""

    def show_hello(self) -> None:
        raise NotImplementedError

    def show_welcome(self) -> None:
        """The first-run panel stands in for an empty conversation while there is nothing to talk to."""
        wanted = self.service.connection.phase == "none" and self.current is not None and not self.current.record.turns
        panels = self.query("WelcomePanel")
        if wanted and not panels:
            self._mount_welcome()
        elif not wanted and panels:
            panels.remove()
            self.show_hello()

    @work(exclusive=True, group="welcome")
    async def _mount_welcome(self) -> None:
        from kvchat.ui.screens.welcome import WelcomePanel

        models = await self.service.model_files()
        if self.service.connection.phase == "none":
            self.transcript.display = False
            engine = find_spec("xllamacpp") is not None
            panel = WelcomePanel(self.service.usual_places().split(", "), models=models, engine=engine,
                                 folders=self.service.model_folders())
            await self.query_one("#conversation").mount(panel, before=0)
            if not self.composer.text:
                panel.focus()

    def on_welcome_panel_chosen(self, event: WelcomePanel.Chosen) -> None:
        if event.way in (1, 2):
            self.action_model()

    @work(group="dialog")
    async def _engine_trouble(self, sentence: str, log: str) -> None:
        from kvchat.ui.screens.trouble import EngineTroubleScreen

        match await self.ask(EngineTroubleScreen(sentence, log)):
            case "restart":
                await self.service.restart_server()
            case "models":
                self.action_model()

    async def may_leave_this_machine(self) -> bool:
        """Whether what is written may go to the server: asked once for every server that is not on this machine."""
        server = self.service.server
        id = self.conversation.id
        if server is None or self.service.may_send_to(server, id):
            return True
        from kvchat.ui.screens.confirm import ConfirmScreen

        goes = self.service.destination(server, id)
        passed_on = f"{server.base_url} passes what is written to this model on to {goes.base_url}."
        lines = [f"{goes.base_url} is {HOSTS[goes.host_class]}." if goes is server else passed_on,
                 "This conversation leaves this machine: every message, with its context."]
        if self.service.was_begun_nearer(id, server):
            lines.append("It was begun on another server, and what was said there goes along.")
        choices = [("y", "Send, and do not ask again", True), ("n", "Do not send", False)]
        agreed = bool(await self.ask(ConfirmScreen("Send to another machine?", lines, choices)))
        if agreed:
            await self.service.allow_sending_to(server, id)
        return agreed
