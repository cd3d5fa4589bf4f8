"""A program of an MCP server: a process in a group of its own, with a clean environment, that speaks in lines.

A line longer than `LONGEST_LINE` costs its reader that line, and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from kvchat.mcp.configured import McpError, McpServer
from kvchat.sanitize import one_line

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
"""Variables that a program gets beside its own: no key that kvchat was started with."""
ENDS_S = 1.0
"""How long a program may take to end, once its input has ended and once it was told to."""
LONGEST_LINE = 8 << 20
"""Bytes."""
_EDGE = 512
"""Bytes that are kept of either end of a longer line."""
_CHUNK = 1 << 16


class OverlongLine(Struct, frozen=True):
    """A line of more than LONGEST_LINE bytes: how it begins, and how it ends."""

    head: bytes
    tail: bytes


class Program:
    """A process, from its start to its end."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._said: deque[bytes] = deque(maxlen=8)
        """The last lines of its standard error."""
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, server: McpServer) -> Program:
        """The program of a server, running. Raises McpError."""
        env = {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(server.env)
        try:
            process = await asyncio.create_subprocess_exec(
                *server.command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=env,
                cwd=server.folder or Path.home(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise McpError(f"{one_line(server.command[0], 200)} cannot be started: {why}.") from None
        return cls(process)

    async def lines(self) -> AsyncIterator[bytes | OverlongLine]:
        """What it writes, line by line, until it ends."""
        assert self._process.stdout is not None
        pending, head = bytearray(), b""
        while chunk := await self._process.stdout.read(_CHUNK):
            *whole, rest = chunk.split(b"\n")
            for line in whole:
                pending += line
                yield OverlongLine(head, bytes(pending[-_EDGE:])) if head else bytes(pending)
                pending, head = bytearray(), b""
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
        with suppress(ValueError):
            async for line in self._process.stderr:
                if line.strip():
                    self._said.append(line)

    @property
    def last_words(self) -> str:
        """That it has ended, with the last line of its standard error, as a sentence."""
        said = one_line(self._said[-1].decode(errors="replace"), 300) if self._said else ""
        return f"The program has ended{f': {said}' if said else '.'}"

    async def end(self) -> None:
        """End its input, then the program with all that it started."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await self._end_group()
        finally:
            self._listening.cancel()

    async def _end_group(self) -> None:
        for number in (0, signal.SIGTERM, signal.SIGKILL):
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
