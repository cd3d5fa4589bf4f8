"""A server that is a program: a line of JSON each way, for as long as kvchat needs it.

It gets a clean environment and a process group of its own, which ends with it. What it writes that is no message is
passed over: programs greet, and warn.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from kvchat.backends.http.transport import unskippable
from kvchat.mcp.client import LARGEST, ConnectionLostError, Form, Message
from kvchat.mcp.configured import McpError, McpServer
from kvchat.sanitize import one_line

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
"""Variables that a program gets beside its own: no key that kvchat was started with."""
ENDS_S = 1.0
"""How long a program may take to end, once its input has ended and once it was told to."""


class StdioTransport:
    """The way to a program, which starts with the first request; one that has ended starts anew."""

    # It may take as long to start as it likes, so that silence says nothing: with what every program knows first.
    forms = (Form.INITIALIZED, Form.EACH_ALONE)

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._starting = asyncio.Lock()
        self._process: Process | None = None
        self._readers: set[asyncio.Task[None]] = set()
        """Of the program, and of those that are ending."""
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._said: deque[bytes] = deque(maxlen=8)
        """The last lines of its standard error."""

    async def ask(self, message: Message, form: Form) -> Message:
        async with self._starting:
            if self._process is None:
                await self._start()
                if form is Form.INITIALIZED and message["method"] != "initialize":
                    raise ConnectionLostError("It was started anew.")  # and knows nothing of what was agreed before
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[message["id"]] = answer
        try:
            await self.tell(message)
            return await answer
        finally:
            self._answers.pop(message["id"], None)

    async def tell(self, message: Message) -> None:
        if self._process is None or self._process.stdin is None:
            raise McpError(self._ended)
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()
        except (OSError, RuntimeError):
            raise McpError(self._ended) from None

    async def aclose(self) -> None:
        for reader in self._readers:
            reader.cancel()
        if self._readers:
            await asyncio.wait(self._readers)

    async def _start(self) -> None:
        env = {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(self._server.env)
        self._said.clear()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._server.command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=env,
                cwd=self._server.folder or Path.home(),
                start_new_session=True,
                limit=LARGEST,
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise McpError(f"{one_line(self._server.command[0], 200)} cannot be started: {why}.") from None
        self._process = process
        reader = asyncio.create_task(self._read(process))
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)

    async def _read(self, process: Process) -> None:
        """Hand over what it answers until it ends, then end what is left of it."""
        assert process.stdout is not None and process.stderr is not None
        listening = asyncio.create_task(self._listen(process.stderr))
        try:
            while line := await process.stdout.readline():
                await self._take(line)
        except (ValueError, OSError):  # a line that is too long
            pass
        finally:
            self._process, (waiting, self._answers) = None, (self._answers, {})
            await unskippable(_end(process))
            listening.cancel()
            for answer in waiting.values():
                if not answer.done():
                    answer.set_exception(McpError(self._ended))

    async def _listen(self, errors: asyncio.StreamReader) -> None:
        with suppress(ValueError):
            async for line in errors:
                if line.strip():
                    self._said.append(line)

    async def _take(self, line: bytes) -> None:
        try:
            message: Any = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        if "method" not in message:
            answer = self._answers.get(message["id"]) if isinstance(message.get("id"), int) else None
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif "id" in message:
            is_ping = message["method"] == "ping"
            said = {"result": {}} if is_ping else {"error": {"code": -32601, "message": "kvchat offers nothing."}}
            with suppress(McpError):
                await self.tell({"jsonrpc": "2.0", "id": message["id"], **said})

    @property
    def _ended(self) -> str:
        said = one_line(self._said[-1].decode(errors="replace"), 300) if self._said else ""
        return f"The program has ended{f': {said}' if said else '.'}"


async def _end(process: Process) -> None:
    """End its input, then the program with all that it started."""
    if process.stdin is not None:
        process.stdin.close()
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        try:
            async with asyncio.timeout(ENDS_S):
                os.killpg(process.pid, number)
                await process.wait()
                while True:
                    os.killpg(process.pid, 0)
                    await asyncio.sleep(0.02)
        except ProcessLookupError:  # none of its group is left
            return
        except (TimeoutError, OSError):
            continue
