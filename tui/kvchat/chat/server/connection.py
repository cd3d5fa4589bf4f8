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
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from kvchat import logs
from kvchat.backends import kinds
from kvchat.backends.dialect import Backend, BackendError, HostClass, ServerInfo, Trouble, failure
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.chat.cache.states.snapshots import Snapshots
from kvchat.config import ConfigError, ServerSettings, Settings, api_key
from kvchat.text.faults import Fault
from kvchat.text.servers import Reaching, unusable_words

if TYPE_CHECKING:  # the engine and HTTP are imported when they are used: after the first paint
    from kvchat.backends.dialect import ServerOptions
    from kvchat.backends.discovery import FoundServer
    from kvchat.backends.engine.models import ModelFile
    from kvchat.backends.engine.options import EngineOptions
    from kvchat.backends.engine.process import Engine, EngineExit
    from kvchat.chat.server.known_servers import KnownServers

UNUSABLE = frozenset({"needs a key", "needs a password", "fails", "answers"})
"""What is found and cannot be talked to: a server that is locked or answers with errors, and something that does not
say what it is."""
AGAIN_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between two looks at a server that was lost; the last one is repeated."""

log = logging.getLogger(__name__)

Phase = Literal["none", "idle", "connecting", "starting", "ready", "lost", "failed"]


class Connection(Struct, frozen=True):
    """How things stand with the server. `none`: nothing to talk to was found; `idle`: it is not in use now, the next
    question connects to it."""

    phase: Phase = "connecting"
    sentence: str = ""
    log: str = ""
    """The end of the embedded engine's log, when it failed."""
    is_awaited: bool = False
    """Whether the server is off, and is looked for until it is back."""
    loading_s: float | None = None
    """How long a server that loads its model was waited for; None: it does not."""
    refuses: bool = False
    """Whether nothing listens at its address any more: its process has ended."""


class Connector:
    """Holds the one backend in use. `changed` is called whenever `connection` or `info` changed."""

    def __init__(
        self,
        settings: Settings,
        changed: Callable[[], None],
        *,
        snapshot_folder: Path | None = None,
        server_snapshots: Path | None = None,
        snapshots: Snapshots | None = None,
        server: ServerSettings | None = None,
        model_path: Path | None = None,
        finds: bool = True,
        missing: str = "",
        engine_turn: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        images: Callable[[str], bytes | None] = lambda _: None,
        names_model: Callable[[], bool] = lambda: False,
        wait_seconds: Callable[[], float | None] = lambda: None,
        known: KnownServers | None = None,
    ) -> None:
        """`server`: where it is and how it is spoken to. `finds`: look for a server where none is named. `missing`: the
        profile that is asked for and is not in the settings. The embedded engine is started within `engine_turn`,
        which ends it elsewhere. `images`: gives the images that messages name. `names_model`: whether the settings, or
        a conversation, name a model for it. `wait_seconds`: how long a server that loads its model is waited for.
        `known`: what is kept of servers over restarts."""
        self._settings = settings
        self.server = server or settings.server
        self.profile = next(
            (name for name, own in settings.profiles.items() if own.base_url and own == self.server), ""
        )
        """The name of the profile whose settings these are; empty: none."""
        self._changed = changed
        self._finds = finds
        self._missing = missing
        self._engine_turn = engine_turn
        self._images = images
        self._names_model = names_model
        self._wait_seconds = wait_seconds
        self._known = known
        self._leaving: asyncio.Task[None] | None = None
        self.home = ""
        """The address of the server that was found: it stays the one that is talked to until it is left."""
        self._released = asyncio.Event()
        self._snapshot_folder = snapshot_folder if settings.engine.snapshots else None
        self._engine_snapshots = snapshots or Snapshots(self._snapshot_folder)
        self._server_snapshots = Snapshots(None)
        self._server_folder = server_snapshots
        self._saves_for: ServerInfo | None = None
        """The server that `_server_snapshots` are of."""
        self._backend: Backend | None = None
        self._engine: Engine | None = None
        self._options: EngineOptions | None = None
        self._log = ""
        self._shape: Shape | None = None
        self._connecting: asyncio.Task[Backend] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.connection = Connection()
        self._empty = ""
        """The address of a server that was found and has no model (an Ollama just installed): a model file goes before
        it."""
        self._unusable = ""
        """What was found on this machine and cannot be talked to, in words."""
        self.base_url = self.server.base_url
        self.model_path = model_path

    @property
    def info(self) -> ServerInfo | None:
        return self._backend.info if self._backend is not None else None

    @property
    def runs_engine(self) -> bool:
        """Whether the embedded engine runs here."""
        return self._engine is not None

    @property
    def engine_model(self) -> Path | None:
        """The model file that the embedded engine runs here, or that is to be run."""
        if self._engine is not None and self._options is not None:
            return self._options.model
        return self.model_path

    @property
    def snapshots(self) -> Snapshots:
        """Of the server in use; of one that is not the built-in engine they are of use after `with_snapshots`."""
        return self._engine_snapshots if self._engine is not None else self._server_snapshots

    async def with_snapshots(self, backend: Backend, *, known_only: bool = False) -> Snapshots:
        """The same, with what is to be asked of the server and read from the disk. `known_only`: not of one that was
        not found to save slots before."""
        info, folder = backend.info, self._server_folder
        if self._engine is None and self._saves_for is not info:
            if folder is None or not self.server.snapshots or not saves_states(info):
                self._saves_for, self._server_snapshots = info, Snapshots(None)
            else:
                from kvchat.backends.engine.server_snapshots import shelf_of

                shelf = shelf_of(folder, info.place, self.server.snapshot_folder if self.base_url else "")
                if known_only and not shelf.folder.exists():
                    return self.snapshots
                self._saves_for, self._server_snapshots = info, Snapshots(None, shelf=shelf)
                await self._server_snapshots.use_server(backend)
        return self.snapshots

    def has(self, backend: Backend) -> bool:
        return self._backend is backend

    def cache_shape(self) -> Shape | None:
        """The cache of the embedded engine in use; None with another server."""
        return self._shape if self._engine is not None else None

    def refilled(self) -> list[tuple[int, Held]]:
        """The slots that were restored when the engine was started."""
        return [
            (done.slot, Held(done.ids, done.conversation, done.snapshot.saved, done.snapshot.memory))
            for done in self._engine_snapshots.refilled
        ]

    async def ready(self) -> Backend:
        """The connected backend; connects first where needed. Raises BackendError."""
        if self._backend is not None and self.connection.phase == "ready":
            return self._backend
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())
        return await asyncio.shield(self._connecting)

    async def answers(self) -> bool:
        """Whether a server is at the base URL now; connected to if so, unless it still loads its model. One that is not
        there is not looked for any longer."""
        if self._backend is not None and self.connection.phase == "ready":
            return await self._backend.alive()
        try:
            self._must_be_usable()
            backend = await self._reached(self.base_url or self.home)
        except BackendError as error:
            return error.trouble is Trouble.LOADING
        await self._use(backend)
        return True

    async def restart(self) -> Backend:
        """Let go of the server and connect anew."""
        await self.let_go()
        return await self.ready()

    def left_alone(self) -> None:
        """It is not connected to before the next question."""
        if self._connecting is None:
            self._say(Connection("idle"))

    def lost(self, sentence: str, *, refuses: bool = False) -> None:
        """A request found nobody there: say so, and look now and then until the server is back."""
        if self._backend is not None and self._engine is None and self.connection.phase == "ready":
            self._watch_for(self._backend.info.base_url)
            self._say(Connection("lost", sentence, is_awaited=True, refuses=refuses))

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
        """Whoever waits for the server looks anew what there is to do."""
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
            if self.connection.phase == "ready":
                return
            if self._connecting is not None and not self._connecting.done():
                continue
            try:
                backend = await self._reached(base_url)
            except BackendError as error:
                log.info("still no answer: %s", error.sentence)
                if error.trouble in (Trouble.UNREACHABLE, Trouble.CUT, Trouble.LOADING, Trouble.SERVER_ERROR):
                    continue
                self._say(Connection("failed", error.sentence))  # waiting does not help against this
                return
            await self._use(backend)
            return

    async def _use(self, backend: Backend) -> None:
        before, self._backend = self._backend, backend
        if before is not None and before.info == backend.info and _same_place(before, backend):
            self._backend, before = before, backend  # it is the same as ever: what is known of it stays
        self._say(Connection("ready"))
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
            phase: Phase = "none" if error.trouble is Trouble.UNREACHABLE and not self._chosen() else "failed"
            url = self.base_url or self.home
            is_gone = error.trouble in (Trouble.UNREACHABLE, Trouble.CUT) or error.is_behind_proxy
            is_off = bool(url) and is_gone
            if is_off:
                self._watch_for(url)
            self._say(Connection(phase, error.sentence, self._log, is_off))
            raise
        await self._use(backend)
        return backend

    def _chosen(self) -> bool:
        return bool(self.base_url or self.model_path)

    def _must_be_usable(self) -> None:
        """Raises BackendError where the settings name a server, or a way to one, that cannot be used."""
        if self.server.wrong:
            raise failure(Trouble.BAD_ADDRESS, Fault.TOLD, sentence=f"{next(iter(self.server.wrong.values()))}.")

    async def _found(self) -> Backend:
        self._must_be_usable()
        if self._missing:
            raise failure(Trouble.REFUSED, Fault.NO_PROFILE, name=self._missing)
        if self.home:
            return await self._served(self.home)
        if self.base_url:
            return await self._served(self.base_url)
        if self.model_path is not None:
            return await self._started(self.model_path)
        if self._finds and (found := await self._discovered()) is not None:
            return found
        path = await asyncio.to_thread(default_model_file)
        if path is not None:
            return await self._started(path)
        if self._empty:
            self.home = self._empty
            return await self._served(self._empty)
        raise failure(
            Trouble.UNREACHABLE,
            Fault.NO_SERVER,
            asked=kinds.usual_places() if self._finds else "",
            unusable=self._unusable if self._finds else "",
            embedded=find_spec("xllamacpp") is not None,
        )

    async def _discovered(self) -> Backend | None:
        """The best of what answers on this machine; None where nothing does that can be talked to."""
        self._say(Connection("connecting", Reaching.LOOKING))
        self._empty = ""
        found = await found_here()
        self._unusable = "; ".join(
            unusable_words(server.title, server.base_url, server.phase) for server in found if server.phase in UNUSABLE
        )
        usable = [server for server in found if server.phase not in UNUSABLE]
        for server in best_first(usable):
            try:
                backend = await self._served(server.base_url)
                if backend.info.model or backend.info.listing:
                    self.home = server.base_url
                    return backend
                self._empty = self._empty or server.base_url
                await backend.aclose()
            except BackendError as error:
                log.info("%s was found, and did not do: %s", server.base_url, error.sentence)
        return None

    async def _served(self, base_url: str) -> Backend:
        self._say(Connection("connecting", Reaching.CONNECTING.format(url=base_url)))
        return await self._reached(
            base_url,
            lambda seconds: self._say(
                Connection("connecting", Reaching.LOADING.format(url=base_url, seconds=seconds), loading_s=seconds)
            ),
        )

    async def _reached(self, base_url: str, on_loading: Callable[[float], None] | None = None) -> Backend:
        from kvchat.backends.base import HttpBackend
        from kvchat.backends.http.endpoint import parse_base_url
        from kvchat.backends.identify import connect

        server = self.server if self.base_url else ServerSettings()
        options = replace(server_options(server), names_model=self._names_model(), wait_seconds=self._wait_seconds())
        if (known := self._known) is not None:
            options = replace(options, usual_kind=known.at(str(parse_base_url(base_url))).kind)
        backend = await connect(
            base_url,
            api_key=await asyncio.to_thread(self._api_key, server),
            ca_file=server.ca_file or None,
            proxy=server.proxy or None,
            allow_plain_http_key=server.allow_plain_http_key,
            options=options,
            on_loading=on_loading,
            images=self._images,
        )
        if known is not None and isinstance(backend, HttpBackend):
            info = backend.info
            backend.leave_out(known.recognised(info).refused, lambda field: known.refuses(info, field))
        return backend

    async def _started(self, file: Path) -> Backend:
        from kvchat.backends.engine.gguf import GgufError, read_header
        from kvchat.backends.engine.log import EngineError
        from kvchat.backends.engine.models import model_at
        from kvchat.backends.engine.options import EngineOptions
        from kvchat.backends.engine.process import Engine
        from kvchat.backends.identify import connect

        async with self._engine_turn():
            self._say(Connection("starting", Reaching.STARTING.format(name=file.name)))
            try:
                model = (await asyncio.to_thread(model_at, file)).path
            except GgufError as error:
                raise failure(Trouble.REFUSED, Fault.TOLD, sentence=error.sentence) from None
            options = self._settings.engine
            self._engine = self._engine or Engine(self._engine_ended)
            self._options = EngineOptions(
                model=model,
                context_size=options.context_size,
                slots=options.slots,
                threads=options.threads,
                batch_size=options.batch_size,
                snapshots=self._snapshot_folder,
            )
            try:
                endpoint = await self._engine.start(self._options)
            except EngineError as error:
                self._log = "\n".join(error.log)
                raise failure(Trouble.SERVER_ERROR, Fault.TOLD, sentence=error.sentence) from error
            backend = await connect(endpoint.base_url, api_key=endpoint.api_key, embedded=True, images=self._images)
            self._shape = await asyncio.to_thread(lambda options: options.shape(read_header(model)), self._options)
            await self._engine_snapshots.use(backend, self._options, extends=self._shape.rewind is not Rewind.ANYWHERE)
            await self._engine_snapshots.refill(backend)
            return backend

    def _engine_ended(self, exit: EngineExit) -> None:
        self._say(Connection("lost", exit.sentence, "\n".join(exit.log)))

    def _api_key(self, server: ServerSettings) -> str | None:
        """The key of this server's settings; no other one is shown it."""
        try:
            key = api_key(server, name=f"profiles.{self.profile}" if self.profile else "server")
        except ConfigError as error:
            raise failure(Trouble.UNAUTHORIZED, Fault.TOLD, sentence=str(error)) from None
        for secret in (key, *server.headers.values()):
            logs.hide(secret)
        return key

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
        if self._engine is not None:
            if backend is not None and self.connection.phase == "ready":
                await self._engine_snapshots.save_on_quit(backend)
            self._engine_snapshots.leave()
            await self._engine.stop()
            self._engine = None
        if backend is not None:
            await backend.aclose()
        self._say(Connection("idle"))


def saves_states(info: ServerInfo) -> bool:
    """Whether a server may be asked to save states of conversations in a folder of its own."""
    return kinds.kind_of(info.kind).is_tracked and info.host_class is not HostClass.CLOUD and not info.replicas


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


def server_options(server: ServerSettings) -> ServerOptions:
    """How a server is spoken to, from its settings."""
    from kvchat.backends.dialect import ServerOptions

    return ServerOptions(
        kind=server.kind,
        headers=server.headers,
        connect_seconds=server.timeout or None,
        locality=server.locality,
        session_headers=server.session_headers,
        session_fields=server.session_fields,
        context_size=server.context_size or None,
        keep_alive=server.keep_alive,
    )


def default_model_file() -> Path | None:
    """The model file to start without asking; None where there is none."""
    from kvchat.backends.engine.models import default_model

    return default_model()
