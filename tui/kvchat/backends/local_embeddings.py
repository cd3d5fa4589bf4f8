"""Vectors of texts from an embedding model on this machine, run by an engine of kvchat's own.

It is a second engine, in a process of its own, so that no chat's cache is touched. It runs only while vectors are
needed, at a lower priority than the one that answers, and never outlives the app.

Half the processor's cores compute. More only wait for each other as soon as something else computes too: measured with
a 135M model on two busy cores, a question's vector takes 0.4 s with one thread and 2.5 s with two.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from kvchat.backends import embeddings
from kvchat.backends.dialect import BackendError, Trouble, failure
from kvchat.backends.embeddings import Embeddings
from kvchat.backends.engine.gguf import GgufError, read_header
from kvchat.backends.engine.log import EngineError
from kvchat.backends.engine.options import EngineOptions, default_threads
from kvchat.backends.engine.process import Engine, EngineExit
from kvchat.backends.http.transport import Clock
from kvchat.text.engine import EngineProblem
from kvchat.text.faults import Fault

IDLE_S = 300.0
"""After so long without a text the engine is ended, and its memory given back."""
BATCH = 4
"""Texts in one request: so few that a slow machine answers in time, and that a question waits for no more of them."""
MOST_TOKENS = 1024
"""The longest text, as far as the model was made for that: 2,000 characters of most languages. It is computed in one
go, and with twice as many tokens that takes twice the memory; longer texts are cut shorter."""
_MOMENT = 0.5
_RANKS = 4
"""The pooling of models that compare a question with a text, and make no vectors."""

T = TypeVar("T")
log = logging.getLogger(__name__)


class LocalEmbeddings:
    """A source of vectors, as `Embeddings` is one. It belongs to one event loop."""

    def __init__(self, model: Path, *, threads: int = 0, idle: float = IDLE_S, clock: Clock | None = None) -> None:
        """`model`: the GGUF file of an embedding model. `threads`: 0 for half of the cores. `idle`: seconds without a
        text after which the engine is ended."""
        self._file = model.expanduser()
        self._threads = threads or max(1, default_threads() // 2)
        self._idle = idle
        self._clock = clock or Clock()
        self._engine = Engine(self._ended)
        self._exit: EngineExit | None = None
        self._name = ""
        self._source: Embeddings | None = None
        self._base_url = ""
        self._starting: asyncio.Task[Embeddings] | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._working = 0
        self._failed: tuple[float, BackendError] | None = None
        self._closed = False

    @property
    def model(self) -> str:
        """The name to keep the vectors under: vectors of the same name can be compared."""
        if not self._name:
            try:
                self._name = f"{self._file.name} {self._file.stat().st_size}"
            except OSError:
                return self._file.name
        return self._name

    @property
    def is_running(self) -> bool:
        """Whether the engine is there now: a question has its vector soon."""
        return self._source is not None and self._engine.endpoint is not None

    async def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of texts that are to be found, in their order. The engine is started for it, however long that
        takes. Raises BackendError."""
        found: list[list[float]] = []
        for start in range(0, len(texts), BATCH):
            some = texts[start : start + BATCH]
            found += await self._asked(lambda source, some=some: source.vectors(some))  # type: ignore[misc]
        return found

    async def vector(self, question: str) -> list[float]:
        """The vector of a question, within QUERY_S: if that is too soon for the engine, it goes on starting, and the
        next question finds it. Raises BackendError; at once, for a while after a failure."""
        if self._failed is not None and self._clock.now() < self._failed[0]:
            raise self._failed[1]
        return await self._asked(lambda source: source.vector(question), embeddings.QUERY_S)

    async def aclose(self) -> None:
        """End the engine. Nothing can be asked for after that."""
        self._closed = True
        await self._end()

    # -- the engine

    async def _asked(self, work: Callable[[Embeddings], Awaitable[T]], patience: float | None = None) -> T:
        """What the source gives, for which the engine is started; `patience`: how long that may take."""
        if self._resting is not None:
            self._resting.cancel()
        self._working += 1
        try:
            try:
                async with asyncio.timeout(patience):
                    source = await self._running()
            except TimeoutError:
                raise failure(Trouble.LOADING, Fault.VECTORS_LOADING, file=str(self._file)) from None
            try:
                found = await work(source)
            except BackendError as error:
                raise self._noted(await self._in_words(error)) from None
            self._failed = None
            return found
        finally:
            self._working -= 1
            if not self._working and not self._closed:
                self._resting = asyncio.get_running_loop().call_later(self._idle, self._rest)

    async def _running(self) -> Embeddings:
        """The source at the engine, which is started if it does not run. To start takes its time whoever waits for it,
        or no longer does."""
        if self._closed:
            raise failure(Trouble.REFUSED, Fault.ENDING)
        if self._ending is not None:
            await asyncio.shield(self._ending)
        if self._source is not None and self._engine.endpoint is not None:
            return self._source
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())  # none may wait for it
        return await asyncio.shield(self._starting)

    async def _start(self) -> Embeddings:
        self._exit = None
        try:
            await asyncio.to_thread(self._check)
            endpoint = await self._engine.start(
                EngineOptions(
                    self._file, MOST_TOKENS, threads=self._threads, batch_size=MOST_TOKENS, cache_ram=0, embeds=True
                )
            )
        except (EngineError, GgufError) as error:
            problem = failure(Trouble.REFUSED, Fault.VECTORS_NOT_STARTED, sentence=error.sentence)
            raise self._noted(problem) from None
        finally:
            self._starting = None
        self._base_url = endpoint.base_url
        self._source = Embeddings(endpoint.base_url, self._file.stem, api_key=endpoint.api_key, clock=self._clock)
        return self._source

    def _check(self) -> None:
        """Raises EngineError and GgufError for what is no model that makes vectors."""
        if read_header(self._file).pooling == _RANKS:
            raise EngineError(EngineProblem.RANKS, path=self._file)

    def _ended(self, exit: EngineExit) -> None:
        self._exit = exit
        log.warning("%s %s", exit.sentence, "; ".join(exit.log[-3:]))

    async def _in_words(self, error: BackendError) -> BackendError:
        """The error as one of the engine: it may have ended, which is known a moment later."""
        if error.trouble in (Trouble.CUT, Trouble.UNREACHABLE):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._engine.wait(), _MOMENT)
        if self._exit is not None:
            return failure(Trouble.CUT, Fault.VECTORS_ENDED, sentence=self._exit.sentence, file=str(self._file))
        return error.with_arguments(server="engine for vectors")

    def _noted(self, error: BackendError) -> BackendError:
        """The error; questions are not asked for a while."""
        if not self._closed:
            self._failed = self._clock.now() + embeddings.REST_S, error
        return error

    def _rest(self) -> None:
        if not self._working and self._ending is None:
            self._ending = asyncio.create_task(self._end())

    async def _end(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
        self._source = None
        starting = self._starting
        try:
            await self._engine.stop()
            if starting is not None:
                starting.cancel()
                with suppress(BackendError, asyncio.CancelledError):
                    await starting
        finally:
            self._ending = None
