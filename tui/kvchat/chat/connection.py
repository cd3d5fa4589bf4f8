"""The server in use: found, started, lost and won back.

The rule: choosing a server never blocks the screen, and every failure is one sentence that says what to do.
What is tried, in this order: the base URL that was given; the model file that was given; a llama-server on its
usual port; a model file that is at hand for the embedded engine. What was chosen on the screen last comes before the
last two.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kvchat import logs
from kvchat.backends.dialect import Backend, BackendError, ServerInfo, Trouble
from kvchat.cache.llamacpp.held import Held
from kvchat.cache.llamacpp.shape import Shape
from kvchat.chat.snapshots import Snapshots
from kvchat.config import ConfigError, Settings, api_key

if TYPE_CHECKING:  # the engine and HTTP are imported when they are used: after the first paint
    from kvchat.backends.engine.models import ModelFile
    from kvchat.backends.engine.options import EngineOptions
    from kvchat.backends.engine.process import Engine, EngineExit

USUAL_URL = "http://127.0.0.1:8080"
"""Where a llama-server listens when nothing else was asked of it."""

Phase = Literal["none", "connecting", "starting", "ready", "lost", "failed"]


@dataclass(frozen=True, slots=True)
class Connection:
    """How things stand with the server. `none`: nothing to talk to was found."""

    phase: Phase = "connecting"
    sentence: str = ""
    log: str = ""
    """The end of the embedded engine's log, when it failed."""


class Connector:
    """Holds the one backend in use. `changed` is called whenever `connection` or `info` changed."""

    def __init__(self, settings: Settings, changed: Callable[[], None], *, snapshot_folder: Path | None = None) -> None:
        self._settings = settings
        self._changed = changed
        self.snapshots = Snapshots(snapshot_folder if settings.engine.snapshots else None)
        self._snapshot_folder = snapshot_folder if settings.engine.snapshots else None
        self._backend: Backend | None = None
        self._engine: Engine | None = None
        self._options: EngineOptions | None = None
        self._log = ""
        self._shape: Shape | None = None
        self._connecting: asyncio.Task[Backend] | None = None
        self.connection = Connection()
        self.base_url = settings.server.base_url
        self.model_path: Path | None = Path(settings.engine.model).expanduser() if settings.engine.model else None

    @property
    def info(self) -> ServerInfo | None:
        return self._backend.info if self._backend is not None else None

    def cache_shape(self) -> Shape | None:
        """The cache of the embedded engine in use; None with another server."""
        return self._shape if self._engine is not None else None

    def refilled(self) -> list[tuple[int, Held]]:
        """The slots that were restored when the engine was started, where their tokens are known."""
        return [(done.slot, Held(done.ids, done.conversation, done.snapshot.saved))
                for done in self.snapshots.refilled if done.ids is not None]

    def prefer(self, last: str) -> None:
        """Begin with this address or model file, unless the settings or the command line name one."""
        if self._chosen():
            return
        if "://" in last:
            self.base_url = last
        elif Path(last).is_file():
            self.model_path = Path(last)

    async def ready(self) -> Backend:
        """The connected backend; connects first where needed. Raises BackendError."""
        if self._backend is not None and self.connection.phase == "ready":
            return self._backend
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())
        return await asyncio.shield(self._connecting)

    async def use_url(self, base_url: str) -> Backend:
        """Talk to the server at `base_url` from now on."""
        await self._let_go()
        self.base_url, self.model_path = base_url, None
        return await self.ready()

    async def use_model_file(self, path: Path) -> Backend:
        """Start the embedded engine with the GGUF file `path` and talk to it."""
        await self._let_go()
        self.base_url, self.model_path = "", path
        return await self.ready()

    async def restart(self) -> Backend:
        """Let go of the server and connect anew."""
        await self._let_go()
        return await self.ready()

    async def find_models(self) -> list[ModelFile]:
        """The model files on this machine's disk."""
        from kvchat.backends.engine.models import find_models

        return await asyncio.to_thread(find_models)

    def folders(self) -> list[tuple[str, Path]]:
        """The folders that are searched for model files, with the program each belongs to."""
        from kvchat.backends.engine.folders import sources

        return sources(os.environ, Path.home())

    async def aclose(self) -> None:
        await self._let_go()

    async def _connect(self) -> Backend:
        try:
            backend = await self._found()
        except BackendError as error:
            phase: Phase = "none" if error.trouble is Trouble.UNREACHABLE and not self._chosen() else "failed"
            self._say(Connection(phase, error.sentence, self._log))
            raise
        self._backend = backend
        self._say(Connection("ready"))
        return backend

    def _chosen(self) -> bool:
        return bool(self.base_url or self.model_path)

    async def _found(self) -> Backend:
        if self.base_url:
            return await self._served(self.base_url)
        if self.model_path is not None:
            return await self._started(self.model_path)
        try:
            backend = await self._served(USUAL_URL)
            if backend.info.kind == "llama.cpp":
                return backend
            await backend.aclose()
        except BackendError:
            pass
        path = await asyncio.to_thread(default_model_file)
        if path is not None:
            return await self._started(path)
        engine = "a model file with --model FILE.gguf" if find_spec("xllamacpp") else (
            "install the built-in engine: pip install 'kvchat[embedded]'")
        raise BackendError(Trouble.UNREACHABLE, f"No model server answers at {USUAL_URL}. Start one, give its address "
                           f"with --base-url, or {engine}.")

    async def _served(self, base_url: str) -> Backend:
        from kvchat.backends.identify import connect

        server = self._settings.server
        self._say(Connection("connecting", f"Connecting to {base_url} …"))
        return await connect(
            base_url, api_key=await asyncio.to_thread(self._api_key, base_url), ca_file=server.ca_file or None,
            proxy=server.proxy or None, allow_plain_http_key=server.allow_plain_http_key,
            on_loading=lambda seconds: self._say(
                Connection("connecting", f"{base_url} is loading its model ({seconds:.0f} s) …")),
        )

    async def _started(self, model: Path) -> Backend:
        from kvchat.backends.engine.gguf import read_header
        from kvchat.backends.engine.options import EngineOptions
        from kvchat.backends.engine.process import Engine, EngineError
        from kvchat.backends.identify import connect

        self._say(Connection("starting", f"Starting the embedded engine with {model.name} …"))
        options = self._settings.engine
        self._engine = self._engine or Engine(self._engine_ended)
        self._options = EngineOptions(
            model=model, context_size=options.context_size, slots=options.slots, threads=options.threads,
            batch_size=options.batch_size, snapshots=self._snapshot_folder,
        )
        try:
            endpoint = await self._engine.start(self._options)
        except EngineError as error:
            self._log = "\n".join(error.log)
            raise BackendError(Trouble.SERVER_ERROR, error.sentence) from error
        backend = await connect(endpoint.base_url, api_key=endpoint.api_key, embedded=True)
        self._shape = await asyncio.to_thread(lambda options: options.shape(read_header(model)), self._options)
        await self.snapshots.use(backend, self._options)
        await self.snapshots.refill(backend)
        return backend

    def _engine_ended(self, exit: EngineExit) -> None:
        self._say(Connection("lost", exit.sentence, "\n".join(exit.log)))

    def _api_key(self, base_url: str) -> str | None:
        """The key of the settings, which belongs to the server of the settings: no other one is shown it."""
        own = self._settings.server.base_url
        if own and base_url.rstrip("/") != own.rstrip("/"):
            return None
        try:
            key = api_key(self._settings.server)
        except ConfigError as error:
            raise BackendError(Trouble.UNAUTHORIZED, str(error)) from None
        logs.hide(key)
        return key

    def _say(self, connection: Connection) -> None:
        self.connection = connection
        self._changed()

    async def _let_go(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
            self._connecting = None
        backend, self._backend = self._backend, None
        if self._engine is not None:
            if backend is not None and self.connection.phase == "ready":
                await self.snapshots.save_on_quit(backend)
            self.snapshots.leave()
            await self._engine.stop()
            self._engine = None
        if backend is not None:
            await backend.aclose()


def default_model_file() -> Path | None:
    """The model file to start without asking; None where there is none."""
    from kvchat.backends.engine.models import default_model

    return default_model()
