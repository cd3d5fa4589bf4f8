"""A process of kvchat's own that does one job: a line says which, and it answers in lines, all in the event loop.

Its stdin stays open, and is held here alone: the process ends with it, however kvchat ends. Its stdout has answers and
nothing else (`kvchat.apart.child.private_stdout`). It leads a group of its own, which ends with all that it started.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path

_SOME = 65536
_TAIL = 4096
"""Bytes that are kept of its standard error."""
_DIES_S = 1.0
"""How long it is waited for one that was killed."""


def command_of(module: str) -> tuple[str, ...]:
    """How a module of kvchat is run; -P keeps the working folder out of what it can import."""
    return (sys.executable, "-P", "-m", module)


class LineProcess:
    """A process, from its start to its end."""

    def __init__(self, process: Process, heard: Callable[[bytes], None] | None = None) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._process = process
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self.errors = b""
        """The end of its standard error."""
        self._heard = heard
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls,
        command: tuple[str, ...],
        *,
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
        heard: Callable[[bytes], None] | None = None,
    ) -> LineProcess:
        """The process, running. `heard` gets what it writes to its standard error. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=folder, env=env, start_new_session=True
        )
        return cls(process, heard)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None: it runs."""
        return self._process.returncode

    async def give(self, line: bytes) -> None:
        """Hand it its job. One that has ended gets none: its answers end as well."""
        with suppress(OSError):
            self._stdin.write(line + b"\n")
            await self._stdin.drain()

    async def lines(self) -> AsyncIterator[bytes]:
        """What it answers, line by line, of any length, until it ends or closes its stdout."""
        parts: list[bytes] = []
        while data := await self._stdout.read(_SOME):
            *ends, rest = data.split(b"\n")
            for end in ends:
                yield b"".join((*parts, end))
                parts = []
            parts.append(rest)

    async def wait(self) -> int:
        """Its exit code, once it has ended and its standard error is read to the end."""
        await asyncio.shield(self._listening)
        return await self._process.wait()

    async def end(self, patience: float) -> None:
        """Close its stdin, which ends it; kill it, and what it started, where that takes more than `patience` seconds.
        Cancelled, it kills at once."""
        self._stdin.close()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.wait(), patience)
        finally:
            if self._process.returncode is None:
                with suppress(OSError):
                    os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(TimeoutError):  # one that waits for a disk dies when that answers
            await asyncio.wait_for(self.wait(), _DIES_S)

    async def _listen(self) -> None:
        while data := await self._stderr.read(_SOME):
            self.errors = (self.errors + data)[-_TAIL:]
            if self._heard:
                self._heard(data)
