"""The engine as the app sees it: start it, know how it is, stop it.

The child never outlives this process. Its stdin is held open here and nowhere else; it ends with it,
also when this process is killed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from kvchat import paths
from kvchat.apart.lines import LineProcess, command_of
from kvchat.backends.engine.child import LOOPBACK
from kvchat.backends.engine.gguf import GgufError, read_header
from kvchat.backends.engine.log import TAIL, EngineError, LogTail, start_failure
from kvchat.backends.engine.options import EngineOptions
from kvchat.text.engine import EngineProblem, ended_words

GRACE = 2.0
"""Seconds that a child has to end by itself."""


class EngineState(StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    """It could not be started."""
    EXITED = "exited"
    """It ended by itself after it was ready."""


class EngineAddress(Struct, frozen=True):
    """Where a running engine listens."""

    base_url: str
    api_key: str
    pid: int = 0
    context_size: int = 0
    """Tokens per slot."""
    seconds: float = 0.0
    """What the start took."""

    def __repr__(self) -> str:
        """Without the key."""
        return f"Endpoint({self.base_url!r})"


class EngineExit(Struct, frozen=True):
    """An engine that ended by itself."""

    code: int
    log: list[str]

    @property
    def sentence(self) -> str:
        return ended_words(self.code)


class _Child:
    """One child process, its log, and the task that waits for its end."""

    def __init__(self, process: LineProcess, log: LogTail, ended: Callable[[_Child], None]) -> None:
        self.process, self.log = process, log
        self.stopping = False
        self._watching = asyncio.create_task(self._watch(ended))

    async def _watch(self, ended: Callable[[_Child], None]) -> None:
        await self.process.wait()
        ended(self)

    async def wait(self) -> int:
        """The exit code, once the process has ended, its log is read to the end and its end is reported."""
        await asyncio.shield(self._watching)
        return await self.process.wait()

    async def tell(self, options: dict[str, object]) -> dict[str, object]:
        """Hand over the options and return the child's answer; empty when it ended without one."""
        await self.process.give(json.dumps(options).encode())
        async for line in self.process.lines():
            with suppress(ValueError):
                answer = json.loads(line)
                return answer if isinstance(answer, dict) else {}
        return {}

    async def end(self, patience: float) -> None:
        """End it, by force after `patience` seconds. Cancelled, it is killed at once."""
        self.stopping = True
        await self.process.end(patience)


class Engine:
    """The embedded engine: at most one child process, started and stopped from one event loop."""

    def __init__(self, on_exit: Callable[[EngineExit], None] | None = None) -> None:
        """`on_exit` is called in the event loop when the engine ends after it was ready without having been stopped."""
        self._on_exit = on_exit
        self._child: _Child | None = None
        self._endpoint: EngineAddress | None = None
        self._attempt = object()  # the start in progress; replaced by every later start and stop
        self.state = EngineState.STOPPED
        self.options: EngineOptions | None = None

    @property
    def endpoint(self) -> EngineAddress | None:
        """Where it listens, while it is ready."""
        return self._endpoint if self.state is EngineState.READY else None

    async def start(self, options: EngineOptions) -> EngineAddress:
        """Start the engine and return once it answers; one that runs is stopped first.

        There is no time limit: a large model on a slow disk takes minutes. Cancel the call, or call `stop`, to
        give up. Raises EngineError.
        """
        await self.stop()
        attempt = self._attempt = object()
        self.options, self.state = options, EngineState.STARTING
        try:
            return await self._start(options, attempt)
        except BaseException:
            if self._attempt is attempt:
                self.state = EngineState.FAILED
            raise

    async def _start(self, options: EngineOptions, attempt: object) -> EngineAddress:
        began = asyncio.get_running_loop().time()
        if importlib.util.find_spec("xllamacpp") is None:
            raise EngineError(EngineProblem.NOT_INSTALLED)
        try:
            header = await asyncio.to_thread(read_header, options.model)
        except GgufError as error:
            raise EngineError(error.problem, **error.arguments) from None
        if options.snapshots:
            try:
                paths.folder(options.snapshots)
            except paths.PathError:  # reported by whoever loads what is in it
                options = replace(options, snapshots=None)
        line = options.for_child(header, api_key := secrets.token_urlsafe(32))
        child = await self._spawn()
        try:
            if self._attempt is attempt:
                self._child = child
                answer = await child.tell(line)
        except BaseException:
            await child.end(0)
            raise
        if self._attempt is not attempt:
            await child.end(0)
            raise EngineError(EngineProblem.STOPPED)
        port = answer.get("port")
        if not isinstance(port, int):
            raise await self._failure(child, options.model, answer)
        self.state = EngineState.READY
        self._endpoint = EngineAddress(
            f"http://{LOOPBACK}:{port}",
            api_key,
            child.process.pid,
            context_size=int(str(line["context_size"])),
            seconds=asyncio.get_running_loop().time() - began,
        )
        return self._endpoint

    async def _spawn(self) -> _Child:
        log = LogTail()
        try:
            process = await LineProcess.start(command_of("kvchat.backends.engine.child"), heard=log.feed)
        except OSError as error:
            raise EngineError(EngineProblem.NO_PROCESS, reason=error.strerror) from None
        return _Child(process, log, self._ended)

    async def _failure(self, child: _Child, model: Path, answer: Mapping[str, object]) -> EngineError:
        """The error of a child that did not get ready, once its log is complete."""
        with suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), GRACE)
        code = child.process.code
        await child.end(0)
        said = str(answer.get("error", ""))
        if (problem := answer.get("problem")) in EngineProblem.__members__:
            return EngineError(EngineProblem[str(problem)], child.log.last(TAIL), error=said)
        return start_failure(model, child.log.last(), said, code)

    def _ended(self, child: _Child) -> None:
        if child is not self._child or child.stopping or self.state is not EngineState.READY:
            return
        self.state = EngineState.EXITED
        code = child.process.code or 0
        if self._on_exit:
            self._on_exit(EngineExit(code, child.log.last(TAIL)))

    async def wait(self) -> int | None:
        """The exit code, once the engine has ended; None when none was started."""
        return await self._child.wait() if self._child else None

    def tail_of_log(self, lines: int = TAIL) -> list[str]:
        """The last lines the engine wrote; kept after its end, until the next start."""
        return self._child.log.last(lines) if self._child else []

    async def stop(self) -> None:
        """End the engine: within about `GRACE` seconds, by force if need be. Idempotent."""
        self._attempt = object()
        child = self._child
        if child is None or child.process.code is not None:
            self.state = EngineState.STOPPED
            return
        loading = self.state is EngineState.STARTING
        self.state = EngineState.STOPPED
        await child.end(0 if loading else GRACE)
