"""The embedded engine as one server of kvchat: started with a model file, and left with its states saved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends.dialect import Backend, BackendError, Trouble, failure
from kvchat.cache import Held, Rewind, Shape
from kvchat.chat.cache.states.snapshots import Snapshots
from kvchat.config.settings import EngineSettings
from kvchat.text.faults import Fault

if TYPE_CHECKING:  # the engine is imported when it is started: after the first paint
    from kvchat.backends.engine.options import EngineOptions
    from kvchat.backends.engine.process import Engine, EngineExit


class StartError(BackendError):
    """The engine did not start."""

    def __init__(self, sentence: str, log: str) -> None:
        super().__init__(Trouble.SERVER_ERROR, Fault.TOLD, {"sentence": sentence})
        self.log = log
        """The end of its log."""


class _EngineRun(Struct, frozen=True):
    """The engine in use, from the first attempt to start it until it is left."""

    engine: Engine
    options: EngineOptions
    shape: Shape | None = None
    """Its cache; None: it did not start yet."""


class EmbeddedEngine:
    """At most one run of the engine: `start` begins it, also after it ended or did not start, `stop` leaves it."""

    def __init__(
        self,
        settings: EngineSettings,
        folder: Path | None = None,
        snapshots: Snapshots | None = None,
        images: Callable[[str], bytes | None] = lambda _: None,
    ) -> None:
        """`folder`: where slots are saved; None: nowhere. `snapshots`: those in it. `images`: gives the images that
        messages name."""
        self._settings = settings
        self._folder = folder if settings.snapshots else None
        self.snapshots = snapshots or Snapshots(self._folder)
        self._images = images
        self._run: _EngineRun | None = None

    @property
    def is_in_use(self) -> bool:
        return self._run is not None

    @property
    def model(self) -> Path | None:
        """The model file that it runs."""
        return self._run.options.model if self._run is not None else None

    @property
    def shape(self) -> Shape | None:
        """Of its cache; None while none runs."""
        return self._run.shape if self._run is not None else None

    def refilled(self) -> list[tuple[int, Held]]:
        """The slots that were restored at its start."""
        return [
            (done.slot, Held(done.ids, done.conversation, done.snapshot.saved, done.snapshot.memory))
            for done in self.snapshots.refilled
        ]

    async def start(self, file: Path, ended: Callable[[EngineExit], None]) -> Backend:
        """Start it with a model; `ended` is called when it ends by itself. Raises BackendError: StartError where it
        has a log."""
        from kvchat.backends.engine.gguf import GgufError, read_header
        from kvchat.backends.engine.log import EngineError
        from kvchat.backends.engine.models import model_at
        from kvchat.backends.engine.options import EngineOptions
        from kvchat.backends.engine.process import Engine
        from kvchat.backends.identify import connect

        try:
            model = (await asyncio.to_thread(model_at, file)).path
        except GgufError as error:
            raise failure(Trouble.REFUSED, Fault.TOLD, sentence=error.sentence) from None
        options = EngineOptions(
            model=model,
            context_size=self._settings.context_size,
            slots=self._settings.slots,
            threads=self._settings.threads,
            batch_size=self._settings.batch_size,
            snapshots=self._folder,
        )
        run = self._run = _EngineRun(self._run.engine if self._run is not None else Engine(ended), options)
        try:
            endpoint = await run.engine.start(options)
        except EngineError as error:
            raise StartError(error.sentence, "\n".join(error.log)) from error
        backend = await connect(endpoint.base_url, api_key=endpoint.api_key, embedded=True, images=self._images)
        shape = await asyncio.to_thread(lambda: options.shape(read_header(model)))
        self._run = replace(run, shape=shape)
        await self.snapshots.use(backend, options, extends=shape.rewind is not Rewind.ANYWHERE)
        await self.snapshots.refill(backend)
        return backend

    async def stop(self, backend: Backend | None) -> None:
        """End it, if it is in use; `backend`: the one by which its states can be saved."""
        if self._run is None:
            return
        if backend is not None:
            await self.snapshots.save_on_quit(backend)
        self.snapshots.leave()
        await self._run.engine.stop()
        self._run = None
