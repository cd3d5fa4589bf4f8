"""The way to one server: found, started, lost and won back.

Choosing a server never blocks the screen, and every failure is one sentence that says what to do.
What is tried, in this order: the base URL that was given; the model file that was given; what answers on the usual
ports of this machine; a model file that is at hand for the embedded engine.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from kvchat.backends import kinds
from kvchat.backends.dialect import Backend, BackendError, ServerInfo, Trouble, failure
from kvchat.cache import Held, Shape
from kvchat.chat.cache.states.snapshots import Snapshots
from kvchat.chat.server.access import ServerAccess
from kvchat.chat.server.connection_state import (
    Connecting,
    Connection,
    EngineEnded,
    Failed,
    Idle,
    Lost,
    NotFound,
    Ready,
    Starting,
)
from kvchat.chat.server.embedded import EmbeddedEngine, StartError
from kvchat.chat.server.server_saves import ServerSaves
from kvchat.config import ServerSettings, Settings
from kvchat.text.faults import Fault
from kvchat.text.servers import Reaching, unusable_words

if TYPE_CHECKING:  # the engine and HTTP are imported when they are used: after the first paint
    from kvchat.backends.discovery import FoundServer
    from kvchat.backends.engine.models import ModelFile
    from kvchat.backends.engine.process import EngineExit

UNUSABLE = frozenset({"needs a key", "needs a password", "fails", "answers"})
"""What is found and cannot be talked to: a server that is locked or answers with errors, and something that does not
say what it is."""
AGAIN_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between two looks at a server that was lost; the last one is repeated."""

log = logging.getLogger(__name__)


class _NothingFound(Struct, frozen=True):
    """What answers on this machine, where that is no server with a model."""

    empty: str = ""
    """The address of a server without one (an Ollama just installed): a model file goes before it."""
    unusable: str = ""
    """What cannot be talked to, in words."""


class Connector:
    """Holds the one backend in use. `connection` is the state of the way to it; `changed` is called whenever that, or
    `info`, changed."""

    def __init__(
        self,
        settings: Settings,
        changed: Callable[[], None],
        *,
        server: ServerSettings | None = None,
        model_path: Path | None = None,
        finds: bool = True,
        missing: str = "",
        access: ServerAccess | None = None,
        engine: EmbeddedEngine | None = None,
        engine_turn: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        server_snapshots: Path | None = None,
    ) -> None:
        """`server`: where it is and how it is spoken to. `finds`: look for a server where none is named. `missing`: the
        profile that is asked for and is not in the settings. `engine` is started within `engine_turn`, which ends it
        elsewhere. `server_snapshots`: the folder of `ServerSaves`."""
        self.server = server or settings.server
        self.base_url = self.server.base_url
        self.model_path = model_path
        self._changed = changed
        self._finds = finds
        self._missing = missing
        self._access = access or ServerAccess()
        self._engine = engine or EmbeddedEngine(settings.engine)
        self._engine_turn = engine_turn
        self._saves = ServerSaves(server_snapshots)
        self.connection: Connection = Connecting()
        self.home = ""
        """The address of the server that was found: it stays the one that is talked to until it is left."""
        self._backend: Backend | None = None
        """The server as it was recognised last; None: not yet, or it was left."""
        self._connecting: asyncio.Task[Backend] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._released = asyncio.Event()
        self._leaving: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """The base URL that was given, or found; empty: neither was."""
        return self.base_url or self.home

    @property
    def profile(self) -> str:
        """The name of the profile whose settings these are; empty: none."""
        return self._access.profile

    @property
    def info(self) -> ServerInfo | None:
        return self._backend.info if self._backend is not None else None

    @property
    def runs_engine(self) -> bool:
        """Whether the embedded engine runs here."""
        return self._engine.is_in_use

    @property
    def engine_model(self) -> Path | None:
        """The model file that the embedded engine runs here, or that is to be run."""
        return self._engine.model or self.model_path

    @property
    def snapshots(self) -> Snapshots:
        """Of the server in use; of one that is not the built-in engine they are of use after `with_snapshots`."""
        return self._engine.snapshots if self.runs_engine else self._saves.snapshots

    async def with_snapshots(self, backend: Backend, *, known_only: bool = False) -> Snapshots:
        """The same, with what is to be asked of the server and read from the disk. `known_only`: not of one that was
        not found to save slots before."""
        if self.runs_engine:
            return self._engine.snapshots
        folder = self.server.snapshot_folder if self.base_url else ""
        return await self._saves.of(backend, folder if self.server.snapshots else None, known_only=known_only)

    def has(self, backend: Backend) -> bool:
        return self._backend is backend

    def cache_shape(self) -> Shape | None:
        """The cache of the embedded engine in use; None with another server."""
        return self._engine.shape

    def refilled(self) -> list[tuple[int, Held]]:
        """The slots that were restored when the engine was started."""
        return self._engine.refilled()

    async def ready(self) -> Backend:
        """The connected backend; connects first where needed. Raises BackendError."""
        if self._backend is not None and isinstance(self.connection, Ready):
            return self._backend
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())
        return await asyncio.shield(self._connecting)

    async def answers(self) -> bool:
        """Whether a server is at the base URL now; connected to if so, unless it still loads its model. One that is not
        there is not looked for any longer."""
        if self._backend is not None and isinstance(self.connection, Ready):
            return await self._backend.alive()
        try:
            self._must_be_usable()
            backend = await self._reached(self.address)
        except BackendError as error:
            return error.trouble is Trouble.LOADING
        await self._use(backend)
        return True

    async def restart(self) -> Backend:
        """Let go of the server and connect again. Raises BackendError."""
        await self.let_go()
        return await self.ready()

    def left_alone(self) -> None:
        """It is not connected to before the next question, unless it is already."""
        if self._connecting is None and self._backend is None:
            self._say(Idle())

    def lost(self, sentence: str, *, refuses: bool = False) -> None:
        """A request found no server: show it, and look now and then until the server is back."""
        if self._backend is not None and not self.runs_engine and isinstance(self.connection, Ready):
            self._watch_for(self._backend.info.base_url)
            self._say(Lost(sentence, refuses))

    async def looked_after(self, sentence: str) -> None:
        """A connection broke: look whether the server is still there."""
        if self._backend is not None and not await self._backend.alive():
            self.lost(sentence)

    @property
    def is_awaited(self) -> bool:
        """Whether a server that is gone is looked for."""
        return self._watching is not None and not self._watching.done()

    async def back(self) -> None:
        """Return when a server that was lost, or never there, answers, or `release` is called. At once where none is
        waited for."""
        if self._watching is not None and self.is_awaited:
            released = asyncio.ensure_future(self._released.wait())
            try:
                await asyncio.wait({self._watching, released}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                released.cancel()

    def release(self) -> None:
        """End the wait of all that wait in `back`."""
        self._released.set()
        self._released = asyncio.Event()

    def _watch_for(self, base_url: str) -> None:
        if not self.is_awaited:
            self._watching = asyncio.create_task(self._watch(base_url))

    async def _watch(self, base_url: str) -> None:
        """Look for a server, ever less often, until it answers. It may be another one by then, so it is identified
        from the beginning."""
        for delay in chain(AGAIN_S, repeat(AGAIN_S[-1])):
            await asyncio.sleep(delay)
            if isinstance(self.connection, Ready):
                return
            if self._connecting is not None and not self._connecting.done():
                continue
            try:
                backend = await self._reached(base_url)
            except BackendError as error:
                log.info("still no answer: %s", error.sentence)
                if error.trouble in (Trouble.UNREACHABLE, Trouble.CUT, Trouble.LOADING, Trouble.SERVER_ERROR):
                    continue
                self._say(Failed(error.sentence))  # waiting does not help against this
                return
            await self._use(backend)
            return

    async def _use(self, backend: Backend) -> None:
        before, self._backend = self._backend, backend
        if before is not None and before.info == backend.info and _same_place(before, backend):
            self._backend, before = before, backend  # it is the same as ever: what is known of it stays
        self._say(Ready())
        if before is not None:
            await before.aclose()

    async def find_models(self) -> list[ModelFile]:
        """The model files on this machine's disk."""
        from kvchat.backends.engine.models import find_models

        return await asyncio.to_thread(find_models)

    def folders(self) -> list[tuple[str, Path]]:
        """The folders that are searched for model files, with the program each belongs to."""
        from kvchat.backends.engine.folders import sources

        return sources(os.environ, Path.home())

    async def aclose(self) -> None:
        await self.let_go()

    async def _connect(self) -> Backend:
        try:
            backend = await self._found()
        except BackendError as error:
            self._say(self._failed(error))
            raise
        await self._use(backend)
        return backend

    def _failed(self, error: BackendError) -> Connection:
        """The state after an error: a server that is off is looked for from now on."""
        is_gone = error.trouble in (Trouble.UNREACHABLE, Trouble.CUT) or error.is_behind_proxy
        is_off = is_gone and self.address != ""
        if is_off:
            self._watch_for(self.address)
        if error.trouble is Trouble.UNREACHABLE and not self.base_url and self.model_path is None:
            return NotFound(error.sentence, is_off)
        return Failed(error.sentence, is_off, error.log if isinstance(error, StartError) else "")

    def _must_be_usable(self) -> None:
        """Raises BackendError where the settings name a server, or a way to one, that cannot be used."""
        if self.server.wrong:
            raise failure(Trouble.BAD_ADDRESS, Fault.TOLD, sentence=f"{next(iter(self.server.wrong.values()))}.")

    async def _found(self) -> Backend:
        self._must_be_usable()
        if self._missing:
            raise failure(Trouble.REFUSED, Fault.NO_PROFILE, name=self._missing)
        if self.address:
            return await self._served(self.address)
        if self.model_path is not None:
            return await self._started(self.model_path)
        found = await self._discovered() if self._finds else _NothingFound()
        if not isinstance(found, _NothingFound):
            return found
        path = await asyncio.to_thread(default_model_file)
        if path is not None:
            return await self._started(path)
        if found.empty:
            self.home = found.empty
            return await self._served(self.home)
        raise failure(
            Trouble.UNREACHABLE,
            Fault.NO_SERVER,
            asked=kinds.usual_places() if self._finds else "",
            unusable=found.unusable,
            embedded=find_spec("xllamacpp") is not None,
        )

    async def _discovered(self) -> Backend | _NothingFound:
        """The best of what answers on this machine."""
        self._say(Connecting(Reaching.LOOKING))
        found, empty = await found_here(), ""
        for server in best_first(server for server in found if server.phase not in UNUSABLE):
            try:
                backend = await self._served(server.base_url)
                if backend.info.model or backend.info.listing:
                    self.home = server.base_url
                    return backend
                empty = empty or server.base_url
                await backend.aclose()
            except BackendError as error:
                log.info("%s was found, and did not do: %s", server.base_url, error.sentence)
        unusable = (server for server in found if server.phase in UNUSABLE)
        words = (unusable_words(server.title, server.base_url, server.phase) for server in unusable)
        return _NothingFound(empty, "; ".join(words))

    async def _served(self, base_url: str) -> Backend:
        def loading(seconds: float) -> None:
            self._say(Connecting(Reaching.LOADING.format(url=base_url, seconds=seconds), seconds))

        self._say(Connecting(Reaching.CONNECTING.format(url=base_url)))
        return await self._reached(base_url, loading)

    async def _reached(self, base_url: str, on_loading: Callable[[float], None] | None = None) -> Backend:
        """The server at an address; one that was found has no settings of its own."""
        return await self._access.connect(base_url, self.server if self.base_url else ServerSettings(), on_loading)

    async def _started(self, file: Path) -> Backend:
        async with self._engine_turn():
            self._say(Starting(Reaching.STARTING.format(name=file.name)))
            return await self._engine.start(file, self._engine_ended)

    def _engine_ended(self, exit: EngineExit) -> None:
        self._say(EngineEnded(exit.sentence, "\n".join(exit.log)))

    def _say(self, connection: Connection) -> None:
        self.connection = connection
        self._changed()

    async def let_go(self) -> None:
        """Leave the server; the embedded engine's state is saved, and it ends. However often it is asked for, it is
        done once, and to its end."""
        if self._leaving is None or self._leaving.done():
            self._leaving = asyncio.create_task(self._leave())
        await asyncio.shield(self._leaving)

    async def _leave(self) -> None:
        for task in (self._connecting, self._watching):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        self._connecting = self._watching = None
        backend, self._backend, self.home = self._backend, None, ""
        await self._engine.stop(backend if isinstance(self.connection, Ready) else None)
        if backend is not None:
            await backend.aclose()
        self._say(Idle())


def _same_place(one: Backend, other: Backend) -> bool:
    """Whether both lead to the same addresses."""
    from kvchat.backends.base import HttpBackend

    return isinstance(one, HttpBackend) and isinstance(other, HttpBackend) and one.goal == other.goal


async def found_here() -> list[FoundServer]:
    """The servers that answer on the usual ports of this machine, after 0.3 s at most."""
    # It imports every dialect, which would hold the screen up for longer than the looking does.
    discovery = await asyncio.to_thread(import_module, "kvchat.backends.discovery")
    found: list[FoundServer] = await discovery.discover()
    return found


def best_first(found: Iterable[FoundServer]) -> list[FoundServer]:
    """Servers that were found, in the order in which they are tried."""
    return sorted(found, key=lambda server: (not kinds.kind_of(server.kind).is_tracked, server.phase != "ready"))


def default_model_file() -> Path | None:
    """The model file to start without asking; None where there is none."""
    from kvchat.backends.engine.models import default_model

    return default_model()
