"""A program of an MCP server: a process in a group of its own, with a clean environment, that speaks in lines.

A line longer than `LONGEST_LINE` costs its reader that line, and nothing else. However much it writes, the event loop
has its turn every `TURN_S`, and no more than a line is held. It ends with kvchat (`kvchat.apart.keeper`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import cast

from msgspec import Struct

from kvchat.apart.keeper import GO, Keeper, waiting_for_go
from kvchat.mcp.configured import McpError, McpServer
from kvchat.sanitize import one_line

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
"""Variables that a program inherits in addition to its own: no key that kvchat was started with."""
ENDS_S = 1.0
"""How long a program may take to end, once its input has ended, and once it was asked to."""
LONGEST_LINE = 8 << 20
"""Bytes."""
_EDGE = 512
"""Bytes that are kept of either end of a longer line."""
_CHUNK = 1 << 16
TURN_S = 0.005
"""How long its lines are read at a stretch, and how long they then wait."""
_TAIL = 4096
"""Bytes that are kept of its standard error."""


class OverlongLine(Struct, frozen=True):
    """A line of more than LONGEST_LINE bytes: how it begins, and how it ends."""

    head: bytes
    tail: bytes


class Program:
    """A process, from its start to its end."""

    def __init__(self, process: Process, keeper: Keeper) -> None:
        self._process = process
        self._keeper = keeper
        self._errors = b""
        """The end of its standard error."""
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, server: McpServer) -> Program:
        """The program of a server, running. Raises McpError."""
        env = {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(server.env)
        folder = Path(server.folder or Path.home())
        name = one_line(server.command[0], 200)
        if why := _why_not(server.command[0], env, folder):
            raise McpError(f"{name} cannot be started: {why}.")
        keeper: Keeper | None = None
        try:
            keeper = Keeper()
            return cls(await _spawned(server.command, env, folder, keeper), keeper)
        except BaseException as error:
            if keeper is not None:
                keeper.release()
            if not isinstance(error, (OSError, ValueError)):
                raise
            why = getattr(error, "strerror", None) or str(error)
            raise McpError(f"{name} cannot be started: {why}.") from None

    async def lines(self) -> AsyncIterator[bytes | OverlongLine]:
        """What it writes that may be messages, line by line, until it ends: its log is none of them."""
        assert self._process.stdout is not None
        pending, head = bytearray(), b""
        pauses = monotonic() + TURN_S
        while chunk := await self._process.stdout.read(_CHUNK):
            *whole, rest = chunk.split(b"\n")
            for line in whole:
                pending += line
                if _may_be_message(head or pending):
                    yield OverlongLine(head, bytes(pending[-_EDGE:])) if head else bytes(pending)
                pending, head = bytearray(), b""
                if monotonic() >= pauses:
                    await asyncio.sleep(TURN_S)
                    pauses = monotonic() + TURN_S
            pending += rest
            if len(pending) > LONGEST_LINE:
                head = head or bytes(pending[:_EDGE])
                del pending[:-_EDGE]

    async def write(self, line: bytes) -> None:
        """Send a line, and wait until it takes it. Raises McpError once it has ended."""
        self._send(line)
        try:
            assert self._process.stdin is not None
            await self._process.stdin.drain()
        except (OSError, RuntimeError):
            raise McpError(self.last_words) from None

    def reply(self, line: bytes) -> None:
        """Send a line without a wait; one that reads nothing gets no more than is pending."""
        assert self._process.stdin is not None
        if self._process.stdin.transport.get_write_buffer_size() < LONGEST_LINE:
            with suppress(McpError):
                self._send(line)

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
        except (OSError, RuntimeError):
            raise McpError(self.last_words) from None

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(_CHUNK):
            self._errors = (self._errors + data)[-_TAIL:]
            if len(data) > _TAIL:
                await asyncio.sleep(TURN_S)

    @property
    def has_exited(self) -> bool:
        """Whether the process is over, whatever is left of it."""
        return self._process.returncode is not None

    @property
    def last_words(self) -> str:
        """That it has ended, with the last line of its standard error, as a sentence."""
        lines = self._errors.decode(errors="replace").strip().splitlines()
        said = one_line(lines[-1], 300) if lines else ""
        return f"The program has ended{f': {said}' if said else '.'}"

    async def end(self, *, at_once: bool = False) -> None:
        """End its input, then the program with all that it started. `at_once`: without time to finish, as nothing was
        asked of it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await self._end_group(
                *((signal.SIGTERM, signal.SIGKILL) if at_once else (0, signal.SIGTERM, signal.SIGKILL))
            )
        finally:
            self._listening.cancel()
            self._keeper.release()

    async def _end_group(self, *numbers: int) -> None:
        for number in numbers:
            try:
                async with asyncio.timeout(ENDS_S):
                    os.killpg(self._process.pid, number)
                    await self._process.wait()
                    while True:
                        os.killpg(self._process.pid, 0)
                        await asyncio.sleep(0.02)
            except ProcessLookupError:  # none of its group is left
                return
            except (TimeoutError, OSError):
                continue


def _may_be_message(line: bytes | bytearray) -> bool:
    return line[:_EDGE].lstrip(b" \t\r\xef\xbb\xbf").startswith((b"{", b"["))


class _Ears(SubprocessStreamProtocol):
    """What is heard of a process. Its pipes are closed soon after it has ended: others that it started may hold them
    open for ever, and no answer comes from it any more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._own = cast("asyncio.SubprocessTransport", transport)

    def process_exited(self) -> None:
        super().process_exited()
        asyncio.get_running_loop().call_later(ENDS_S, self._close)

    def _close(self) -> None:
        for number in (1, 2):
            if (pipe := self._own.get_pipe_transport(number)) is not None:
                pipe.close()


async def _spawned(command: Sequence[str], env: Mapping[str, str], folder: Path, keeper: Keeper) -> Process:
    """The process, once its keeper knows of it. Raises OSError, ValueError."""
    loop = asyncio.get_running_loop()
    transport, ears = await loop.subprocess_exec(
        lambda: _Ears(limit=_CHUNK, loop=loop),
        *waiting_for_go(command, env),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=env,
        cwd=folder,
        start_new_session=True,
    )
    process = Process(transport, ears, loop)
    assert process.stdin is not None
    keeper.keep(process.pid)
    process.stdin.write(GO)
    return process


def _why_not(command: str, env: Mapping[str, str], folder: Path) -> str:
    """Why no program of this name can be started, in words; empty: there is one."""
    if not folder.is_dir():
        return f"its folder (cwd) {one_line(str(folder), 200)} does not exist"
    if "/" not in command:
        found = shutil.which(command, path=env.get("PATH", os.defpath))
        return "" if found else "no program of this name is in PATH; install it, or give its full path"
    path = folder / command
    if not path.exists():
        return "No such file or directory"
    return "" if path.is_file() and os.access(path, os.X_OK) else "it is no program that you may run"
