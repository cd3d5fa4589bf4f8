"""The server on the screen: how it is, what to do when there is none, and what leaves this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from textual import work

from kvchat.cache.price import Price
from kvchat.numbers import counted, short_count
from kvchat.server_words import fallback_words, place_words
from kvchat.text.cache import cost_words
from kvchat.ui.chat.options import OptionActs
from kvchat.ui.render.progress import offline_row
from kvchat.ui.render.rows import Span
from kvchat.ui.widgets.header_text import HeaderState

if TYPE_CHECKING:
    from kvchat.chat.events import FallbackChosen
    from kvchat.chat.live import LiveAnswer
    from kvchat.ui.screens.servers import WelcomePanel

HOSTS: dict[str, str] = {"lan": "another machine of this network", "tailnet": "a machine of your tailnet",
         "cloud": "a server on the internet"}
GONE = frozenset({"lost", "failed"})


class ServerActs(OptionActs):
    """What the main screen does about the server."""

    _told = ""
    """The trouble that was shown already."""

    def show_server(self) -> None:
        """The header."""
        server, connection = self.service.servers.info, self.service.servers.connection
        state = self.header.state
        self.header.set_state(HeaderState(
            model=self.model(), kind=self.service.servers.title(),
            host_class=self.goes_to(),
            phase=connection.phase,
            sentence=f"{self.place()} is off" if connection.is_awaited else connection.sentence,
            embedded=bool(server and server.embedded),
            context_used=state.context_used,
            context_size=server.window(self.current.record.model if self.current else "") if server else None,
            incognito=self.service.incognito,
        ))

    def goes_to(self) -> str:
        """The class of host that the open conversation goes to."""
        server = self.service.servers.info
        if server is None:
            return "loopback"
        return self.service.servers.consent.destination(server, self.current.id if self.current else "").host_class

    def server_changed(self) -> None:
        self.show_server()
        self.show_welcome()
        if self.current is not None:
            self.show_hello()
        connection = self.service.servers.connection
        if connection.phase in GONE and connection.sentence != self._told:
            self._told = connection.sentence
            if connection.log:
                self._engine_trouble(connection.sentence, connection.log)
            elif connection.is_awaited:
                self.say(f"{self.place()} is off · questions wait · {self.way_from_offline()}", "warning")
            else:
                self.say(connection.sentence, "error")
        elif connection.phase == "ready":
            self._told = ""

    def fallback_chosen(self, event: FallbackChosen) -> None:
        """A new conversation begins elsewhere than on the server that was used last."""
        self.say(" · ".join(filter(None, [fallback_words(event.off, event.used), self.app.key_of("model")])))

    # -- a server that is off

    def place(self) -> str:
        """The server of the open conversation, in a word."""
        return place_words(self.service.servers.name)

    def way_from_offline(self) -> str:
        """What can be done while the server is off: `Ctrl+L moves (3.2k to prefill)`."""
        key = self.app.key_of("model") or "/model"
        if not self.may_move():
            return f"{key} chooses another"
        tokens = self.conversation.context_used
        return f"{key} moves ({short_count(tokens)} to prefill)" if tokens else f"{key} moves"

    def may_move(self) -> bool:
        """Whether the open conversation waits for a server that is off, with something to take along."""
        is_awaited = self.service.servers.connection.is_awaited
        return is_awaited and self.current is not None and bool(self.current.record.turns)

    def offline_row(self, live: LiveAnswer, now: float) -> Callable[[int], Sequence[Span]] | None:
        """The row below a question whose server is off; None where it is not."""
        if live.waiting is None or live.waiting.phase != "gone":
            return None
        spans = offline_row(now - live.sent_at, self.way_from_offline())
        return lambda _width: spans

    async def moved_or_waits(self) -> bool:
        """Offer to move the open conversation from a server that is off to one that answers, with its price; whether
        the person has decided. False: the list is wanted."""
        if not self.may_move():
            return False
        from kvchat.ui.screens.confirm import Choice, ConfirmScreen

        id, off = self.conversation.id, self.place()
        with self.app.key_queue.coming() as dialog:
            name = await self.service.servers.other(id)
        if dialog.is_given_up:
            return True
        if name is None or not self.may_move() or self.conversation.id != id:
            return False
        used = place_words(name)
        cost = self.service.prices.moving(id, name)
        lines = ["The question waits and is sent when it returns." if self.conversation.live is not None else
                 "Questions in this conversation wait until it returns.",
                 _moving_words(cost)]
        choices: list[Choice[str]] = [("y", f"Move to {used}", "move"), ("l", "Choose another server", "list"),
                                      ("n", "Wait", "wait")]
        decision = await self.ask(ConfirmScreen(f"{off} is off", lines, choices))
        if decision == "move":
            await self.service.chooser.use(id, name)
        return decision != "list"

    def show_hello(self) -> None:
        raise NotImplementedError

    def show_welcome(self) -> None:
        """The first-run panel stands in for an empty conversation while there is nothing to talk to."""
        nothing_there = self.service.servers.connection.phase == "none"
        wanted = nothing_there and self.current is not None and not self.current.record.turns
        panels = self.query("WelcomePanel")
        if wanted and not panels:
            self._mount_welcome()
        elif not wanted and panels:
            panels.remove()
            self.show_hello()

    @work(exclusive=True, group="welcome")
    async def _mount_welcome(self) -> None:
        from kvchat.ui.screens.servers import WelcomePanel

        models = await self.service.chooser.model_files()
        if self.service.servers.connection.phase == "none":
            self.transcript.display = False
            engine = find_spec("xllamacpp") is not None
            panel = WelcomePanel(self.service.servers.usual_places().split(", "), models=models, engine=engine,
                                 folders=self.service.chooser.model_folders())
            with self.app.key_queue.hold():  # what was typed so far decides who has the next key
                await self.query_one("#conversation").mount(panel, before=0)
                await self.composer.written()
                if not self.composer.text:
                    self.set_focus(panel)

    def on_welcome_panel_chosen(self, event: WelcomePanel.Chosen) -> None:
        if event.way in (1, 2):
            self.action_model()

    @work(group="dialog")
    async def _engine_trouble(self, sentence: str, log: str) -> None:
        from kvchat.ui.screens.servers import EngineTroubleScreen

        match await self.ask(EngineTroubleScreen(sentence, log)):
            case "restart":
                await self.service.servers.restart()
            case "models":
                self.action_model()

    async def may_leave_this_machine(self) -> bool:
        """Whether what is written may go to the server: asked once for every server that is not on this machine."""
        server = self.service.servers.info
        id = self.conversation.id
        if server is None or self.service.servers.consent.may_send_to(server, id):
            return True
        from kvchat.ui.screens.confirm import ConfirmScreen

        goes = self.service.servers.consent.destination(server, id)
        passed_on = f"{server.base_url} passes what is written to this model on to {goes.base_url}."
        lines = [f"{goes.base_url} is {HOSTS[goes.host_class]}." if goes is server else passed_on,
                 "This conversation leaves this machine: every message, with its context."]
        if self.service.servers.consent.was_begun_nearer(id, server):
            lines.append("It was begun on another server, and what was said there goes along.")
        choices = [("y", "Send, and do not ask again", True), ("n", "Do not send", False)]
        agreed = bool(await self.ask(ConfirmScreen("Send to another machine?", lines, choices)))
        if agreed:
            await self.service.servers.consent.allow_sending_to(server, id)
        return agreed


def _moving_words(cost: Price) -> str:
    """What a move costs, in a sentence."""
    if cost.tokens is None:
        return "How much moving prefills is unknown."
    if cost.seconds is None:
        return f"Moving prefills {counted(cost.tokens, 'token')}; how long that takes is not measured yet."
    return f"Moving prefills {cost_words(cost.tokens, cost.seconds)}."
