"""The server on the screen: how it is, choosing another, what to do while one is off, and what leaves this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from kvchat.chat.errors import ChatError
from kvchat.chat.server.connection_state import Connection, EngineEnded, Failed
from kvchat.text.cache import cost_words, roughly_known, to_prefill
from kvchat.text.engine import fetch_words
from kvchat.text.format import counted, short_count, size
from kvchat.text.servers import fallback_words, place_words
from kvchat.ui.controllers.workspace import Workspace, in_worker
from kvchat.ui.runs import Run
from kvchat.ui.widgets.header_text import HeaderState
from kvchat.ui.widgets.transcript import offline_row

if TYPE_CHECKING:
    from textual.worker import Worker

    from kvchat.cache import Price
    from kvchat.chat.conversations.live import LiveAnswer
    from kvchat.chat.events import FallbackChosen
    from kvchat.chat.server.choice import Fetching, HubModel
    from kvchat.ui.controllers.costs import CostQuestions
    from kvchat.ui.controllers.empty import EmptyConversation
    from kvchat.ui.screens.kit import Choice

GONE = frozenset({"lost", "failed"})


class Fetch(Struct, eq=False):
    """A model that is being fetched."""

    model: HubModel
    worker: Worker[None]
    words: str = "0 %"
    """How far it is."""


class ServerController:
    """Shows the server of the open conversation, and changes it."""

    def __init__(self, workspace: Workspace, costs: CostQuestions, empty: EmptyConversation) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self._servers = service.servers
        self._service = service
        self._costs = costs
        self._empty = empty
        self._header = screen.header
        self._status = screen.status
        self._fetch: Fetch | None = None
        self._told = ""
        """The trouble that was shown already."""

    def show(self) -> None:
        """The header, and whether the status line is ready."""
        server, connection = self._servers.info, self._servers.connection
        self._status.set_ready(connection.phase == "ready")
        self._header.set_state(
            HeaderState(
                model=self.workspace.model(),
                kind=self._servers.title(),
                host_class=self._goes_to(),
                phase=connection.phase,
                sentence=f"{self._place()} is off" if connection.is_awaited else connection.sentence,
                embedded=bool(server and server.embedded),
                context_used=self._header.state.context_used,
                context_is_exact=self._header.state.context_is_exact,
                context_size=self._servers.window(self.workspace.open_id),
                incognito=self._service.incognito,
                title=self._header.state.title,
            )
        )

    def _goes_to(self) -> str:
        """The class of host that the open conversation goes to."""
        server = self._servers.info
        if server is None:
            return "loopback"
        return self._servers.consent.destination(server, self.workspace.open_id).host_class

    def changed(self) -> None:
        """Another server, or it is another way with this one."""
        self.show()
        self._empty.show()
        connection = self._servers.connection
        if connection.phase in GONE and connection.sentence != self._told:
            self._told = connection.sentence
            match connection:
                case Failed(log=log) | EngineEnded(log=log) if log:
                    self._engine_trouble(connection.sentence, log)
                case Connection(is_awaited=True):
                    way = self._way_from_offline()
                    self.workspace.say(f"{self._place()} is off · questions wait · {way}", "warning")
                case _:
                    self.workspace.say(connection.sentence, "error")
        elif connection.phase == "ready":
            self._told = ""

    def fell_back(self, event: FallbackChosen) -> None:
        """A new conversation begins elsewhere than on the server that was used last."""
        self.workspace.say(
            " · ".join(filter(None, [fallback_words(event.off, event.used), self.workspace.key_of("model")]))
        )

    # -- another one

    async def choose(self, at: str = "") -> None:
        """Have the user choose model or server, among the model files at a path if one is given. Raises ChatError."""
        from kvchat.ui.screens.servers import ModelPicker

        if not at and await self._moved_or_waits():
            return
        chooser, key = self._service.chooser, self.workspace.key_of("rows.choose")
        offers = chooser.suggested()
        if self._fetch is not None:
            offers = [(str(self._fetch.model.name), f"fetching · {self._fetch.words} · {key} stops"), *offers]
        chosen = await self.workspace.ask(
            ModelPicker(
                chooser.all(),
                current=self.workspace.model(),
                look=chooser.look,
                files=chooser.model_files,
                at=chooser.files_at,
                offers=offers,
                typed=at,
            )
        )
        if chosen is not None and chosen[0] == "pull":
            await self.pull(chosen[1])
        elif chosen is not None:
            await self.workspace.acts.options.use(chosen)

    @in_worker("dialog")
    async def choose_again(self) -> None:
        """For a server that cannot be used."""
        await self.workspace.attempt(self.choose())

    # -- a model that is fetched

    async def pull(self, name: str) -> None:
        """Fetch a model, once its size and address were agreed to; while one is fetched, ask whether that is to stop.
        Raises ChatError."""
        if (fetch := self._fetch) is not None:
            lines = [f"It is at {fetch.words}.", "What came is kept: choosing it again goes on from there."]
            choices = [("g", "Go on", False), ("s", "Stop", True)]
            if await self.workspace.choose(f"Stop fetching {fetch.model.file}?", lines, choices):
                fetch.worker.cancel()
            return
        with self.workspace.key_queue.coming() as dialog:
            self.workspace.say(f"Asking Hugging Face for {name} …")
            model = await dialog.found(self._service.chooser.to_fetch(name))
        if model is None:
            return
        lines = [f"{model.file}, from", f"{model.address}/{model.name.repo}", f"into {model.folder}."]
        choices = [("y", f"Fetch {size(model.size)}", True), ("n", "Do not fetch it", False)]
        agreed = await self.workspace.choose("Fetch this model?", lines, choices, coming=dialog)
        if agreed and self._fetch is None:
            self._fetch = Fetch(model, self._fetched(model, self.workspace.conversation.id))

    @in_worker("fetch")
    async def _fetched(self, model: HubModel, id: str) -> None:
        """Fetch a model, with how far it is in the status line; where the conversation has not begun, it is used."""

        def report(progress: Fetching) -> None:
            words = fetch_words(progress.done, progress.total, progress.speed, checking=progress.checking)
            if self._fetch is not None:
                self._fetch.words = words
                self._status.set_background(f"fetching {model.name.repo.partition('/')[2]} · {words}")

        chooser, workspace = self._service.chooser, self.workspace
        try:
            path = await chooser.fetched(model, report)
        except ChatError as error:
            workspace.say(str(error), "error")
            return
        finally:
            self._fetch = None
            self._status.set_background("")
        if workspace.shows(id) and not workspace.conversation.record.turns and workspace.conversation.live is None:
            await chooser.use(id, str(path))
        else:
            workspace.say(f"{model.file} is here · {workspace.key_of('model')} chooses it")

    @in_worker("dialog")
    async def doctor(self) -> None:
        from kvchat.ui.screens.doctor import DoctorScreen

        await self.workspace.ask(DoctorScreen(self._service.chooser.examined))

    @in_worker("dialog")
    async def _engine_trouble(self, sentence: str, log: str) -> None:
        from kvchat.ui.screens.servers import EngineTroubleScreen

        match await self.workspace.questions.ask(partial(EngineTroubleScreen, sentence, log)):
            case "restart":
                await self._servers.restart()
            case "models":
                self.choose_again()

    # -- one that is off

    def _place(self) -> str:
        """The server of the open conversation, in a word."""
        return place_words(self._servers.name)

    def _way_from_offline(self) -> str:
        """What can be done while the server is off: `Ctrl+L moves (3.2k to prefill)`."""
        key = self.workspace.key_of("model") or "/model"
        if not self._may_move():
            return f"{key} chooses another"
        tokens = self.workspace.conversation.context_used
        return f"{key} moves ({to_prefill(short_count(tokens))})" if tokens else f"{key} moves"

    def _may_move(self) -> bool:
        """Whether the open conversation waits for a server that is off, with something to take along."""
        current = self.workspace.current
        return self._servers.connection.is_awaited and current is not None and bool(current.record.turns)

    def offline_row(self, live: LiveAnswer) -> Callable[[int], Sequence[Run]] | None:
        """The row below a question whose server is off; None where it is not."""
        if live.waiting is None or live.waiting.phase != "gone":
            return None
        runs = offline_row(self._way_from_offline(), self.workspace.key_of("stop"))
        return lambda _width: runs

    async def _moved_or_waits(self) -> bool:
        """Offer to move the open conversation from a server that is off to one that answers, with its price; return
        whether the user has decided. False: the list is wanted."""
        if not self._may_move():
            return False
        id, off = self.workspace.conversation.id, self._place()
        with self.workspace.key_queue.coming() as dialog:
            name = await self._servers.other(id)
        if dialog.is_given_up:
            return True
        if name is None or not self._may_move() or self.workspace.conversation.id != id:
            return False
        used = place_words(name)
        cost = self._service.prices.moving(id, name)
        lines = [
            "Your question is sent when it returns."
            if self.workspace.conversation.live is not None
            else "Questions here wait until it returns.",
            _moving_words(cost),
        ]
        choices: list[Choice[str]] = [
            ("y", f"Move to {used}", "move"),
            ("l", "Choose another server", "list"),
            ("n", "Wait", "wait"),
        ]
        decision = await self.workspace.choose(f"{off} is off", lines, choices, coming=dialog)
        if decision == "move":
            await self._service.chooser.use(id, name)
        return decision != "list"


def _moving_words(cost: Price) -> str:
    """What a move costs, in a sentence."""
    if cost.tokens is None:
        return "Moving prefills an unknown number of tokens."
    if cost.seconds is None:
        return f"Moving prefills {roughly_known(cost)}{counted(cost.tokens, 'token')} (time not measured yet)."
    return f"Moving prefills {roughly_known(cost)}{cost_words(cost.tokens, cost.seconds)}."
