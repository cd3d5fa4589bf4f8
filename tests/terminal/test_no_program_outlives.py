"""No program of an MCP server outlives kvchat, however that ends, and in whatever form it was started."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, create_subprocess_exec
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pyte
import pytest

from terminal_output import Terminal, lines_of
from toyserver import ToyServer, calls

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

HANGS = """
import json, signal, subprocess, sys, time
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
for line in sys.stdin:
    message = json.loads(line)
    result = {"protocolVersion": "2025-06-18", "capabilities": {}}
    if message["method"] == "tools/list":
        result = {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        subprocess.Popen(["sleep", sys.argv[1]])
        time.sleep(1000)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
"""A program that heeds no signal; what it is called for is another one, and never ends."""
NUMBERS = count(1)


@pytest.fixture
def mark(own_folders: Path) -> str:
    """What stands in the command lines of the configured program and of what it starts."""
    (own_folders / "hangs.py").write_text(HANGS)
    mark = f"1000.{os.getpid()}{next(NUMBERS)}"
    line = {"command": sys.executable, "args": [str(own_folders / "hangs.py"), mark]}
    (own_folders / "config").mkdir(exist_ok=True)
    (own_folders / "config" / "mcp.json").write_text(json.dumps({"mcpServers": {"box": line}}))
    return mark


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110  (processes tell of no change)
            await asyncio.sleep(0.02)


def runs(words: str) -> bool:
    """Whether a process of this machine has these words in its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if words.encode() in path.read_bytes().replace(b"\0", b" "):
                return True
    return False


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
async def test_of_ask(own_folders: Path, mark: str, number: signal.Signals) -> None:
    async with ToyServer() as server:
        server.on_chat(calls("{}", name="box__say"))
        options = ("--no-stdin", "--tools", "box", "--allow", "box", "What?")
        command = (sys.executable, "-m", "kvchat.cli", "--base-url", server.url, "ask", *options)
        process = await create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
        await until(lambda: runs(f"sleep {mark}"))
        process.send_signal(number)
        async with asyncio.timeout(120):
            assert await process.wait() == (-number if number == signal.SIGKILL else 130)
        await until(lambda: not runs(mark))


class Browser:
    """As much of a page as types and reads."""

    def __init__(self, page: aiohttp.ClientWebSocketResponse, process: int) -> None:
        self._page, self.pid = page, process
        self._screen = pyte.Screen(120, 40)
        self._emulator = pyte.ByteStream(self._screen)

    async def shows(self, words: str, *keys: str) -> None:
        for key in keys:
            await self._page.send_json(["stdin", key])
        async with asyncio.timeout(120):
            while not any(words in line for line in lines_of(self._screen)):
                message = await self._page.receive()
                if message.type is aiohttp.WSMsgType.BINARY:
                    self._emulator.feed(message.data)
                assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), message


class Shown(Terminal):
    @property
    def pid(self) -> int:
        return self.process.pid


@asynccontextmanager
async def app(url: str, *options: str) -> AsyncIterator[Shown]:
    with Shown(["-m", "kvchat.cli", "--base-url", url, *options], os.environ | {"TERM": "xterm-256color"}) as terminal:
        yield terminal


def plain(url: str) -> AbstractAsyncContextManager[Shown]:
    return app(url, "--plain")


@asynccontextmanager
async def serve(url: str) -> AsyncIterator[Browser]:
    command = (sys.executable, "-m", "kvchat.cli", "serve", "--base-url", url)
    process = await create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
    assert process.stdout is not None
    try:
        address = (await process.stdout.readline()).decode().strip()
        origin = f"http://{urlsplit(address).netloc}"
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{address}ws?width=120&height=40", origin=origin) as page,
        ):
            yield Browser(page, process.pid)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.parametrize("way", [app, plain, serve])
@pytest.mark.parametrize("moment", ["before", "within"])
async def test_of_what_a_user_looks_at(mark: str, way, moment: str) -> None:
    """Killed while nothing is asked of the program, and within a call."""
    answer = ["y", "\r"] if way is plain else ["y"]
    async with ToyServer() as server:
        server.on_chat(calls("{}", name="box__say"))
        async with way(server.url) as shown:
            await shown.shows("You:" if way is plain else "newline")
            await shown.shows("y or n" if way is plain else "enter choose", "/tools box", "\r")
            await shown.shows("48 tokens. Each call is asked", *answer)
            assert runs(mark) and not runs(f"sleep {mark}")
            if moment == "within":
                await shown.shows("no: " if way is plain else "esc stop the answer", "What?", "\r")
                await shown.shows("arrying out the call", *answer)
                await until(lambda: runs(f"sleep {mark}"))
            os.kill(shown.pid, signal.SIGKILL)
            await until(lambda: not runs(mark))
