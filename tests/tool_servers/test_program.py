"""Programs that misbehave: killed, flooding or slow at each moment of a call, and what kvchat leaves behind when it is
killed itself."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from kvchat.mcp.client import McpClient
from kvchat.mcp.configured import McpError, McpServer
from kvchat.mcp.stdio import StdioTransport

pytestmark = pytest.mark.process

ROUGH = """
import json, os, signal, sys, time
moment, fault, once = sys.argv[1:]

def put(text, stream=sys.stdout):
    stream.write(text)
    stream.flush()

def at(now):
    if now != moment or os.path.exists(once):
        return
    open(once, "w").close()
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "ends":
        sys.exit("out of order")
    elif fault == "slow":
        time.sleep(0.3)
    elif fault == "lines":
        put("warning: low\\n" * 200_000)
    elif fault == "messages":
        put('{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info"}}\\n' * 20_000)
    elif fault == "errors":
        put("warning: low\\n" * 200_000 + "e" * (9 << 20), sys.stderr)
    elif fault == "endless":
        put('{"x": "' + "x" * (9 << 20) + ("" if now == "line" else "\\n"))

def answer(id, result):
    text = json.dumps({"jsonrpc": "2.0", "id": id, "result": result})
    if moment == "line" and "content" in result:
        put(text[:20])
        at("line")
        text = text[20:]
    put(text + "\\n")

at("start")
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        at("initialize")
        answer(message["id"], {"protocolVersion": "2025-06-18", "capabilities": {}})
    elif message["method"] == "tools/list":
        at("list")
        answer(message["id"], {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]})
    elif message["method"] == "tools/call":
        at("call")
        answer(message["id"], {"content": [{"type": "text", "text": "said"}]})
        at("after")
"""
MOMENTS = ("start", "initialize", "list", "call", "line", "after")
OWNER = """
import asyncio, sys
from kvchat.mcp.client import McpClient
from kvchat.mcp.configured import McpServer
from kvchat.mcp.stdio import StdioTransport
asyncio.run(McpClient(StdioTransport(McpServer("x", tuple(sys.argv[1:])))).tools())
"""
NUMBERS = itertools.count(1000)


@pytest.fixture
def rough(tmp_path: Path) -> Callable[[str, str], McpServer]:
    (tmp_path / "rough.py").write_text(ROUGH)

    def rough(moment: str, fault: str) -> McpServer:
        line = (sys.executable, str(tmp_path / "rough.py"), moment, fault, str(tmp_path / "once"))
        return McpServer("rough", line)

    return rough


@asynccontextmanager
async def client_of(server: McpServer) -> AsyncIterator[McpClient]:
    client = McpClient(StdioTransport(server))
    try:
        async with asyncio.timeout(120):
            yield client
    finally:
        await client.aclose()


async def said(client: McpClient) -> str:
    """What a call of the first tool gave, or why it gave nothing."""
    try:
        [tool] = await client.tools()
        result = await client.call(tool["name"], {})
    except McpError as error:
        return str(error)
    return str(result["content"][0]["text"])


@asynccontextmanager
async def longest_turn() -> AsyncIterator[list[float]]:
    """The longest that the event loop was held, in seconds of its thread's own processor time."""
    longest = [0.0]

    async def tick() -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)
            longest[0] = max(longest[0], time.thread_time() - began)

    ticking = asyncio.create_task(tick())
    try:
        yield longest
    finally:
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking


def running(words: str) -> list[int]:
    """The processes of this machine with these words in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if words.encode() in path.read_bytes().replace(b"\0", b" "):
                found.append(int(path.parent.name))
    return found


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  (processes tell of no change)
            await asyncio.sleep(0.005)


# -- a program that fails ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("fault", ["killed", "ends"])
async def test_one_that_dies_costs_its_call_and_starts_again(rough, moment: str, fault: str) -> None:
    async with client_of(rough(moment, fault)) as client:
        first = await said(client)
        words = {"killed": "The program has ended.", "ends": "The program has ended: out of order"}[fault]
        assert first == ("said" if moment == "after" else words)
        again = await said(client)
        if moment == "after" and again == words:  # it was asked before it ended, and may have read that
            again = await said(client)
        assert again == "said"


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("fault", ["lines", "messages", "errors", "slow"])
async def test_one_that_floods_or_is_slow_loses_no_call(rough, moment: str, fault: str) -> None:
    if moment == "line" and fault in ("lines", "messages"):
        pytest.skip("what comes within its line makes that no line")
    async with client_of(rough(moment, fault)) as client, longest_turn() as longest:
        assert await said(client) == "said"
        assert await said(client) == "said"
    assert longest[0] < 0.06, "the loop has its turns meanwhile"


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_line_without_end_costs_a_call_at_most(rough, moment: str) -> None:
    async with client_of(rough(moment, "endless")) as client:
        first = await said(client)
        assert first == "said" or "more than 8 MB" in first
        again = await said(client)
        if moment == "after" and "more than 8 MB" in again:
            again = await said(client)
        assert again == "said"


async def test_one_whose_child_holds_its_output_has_ended_when_it_ends(tmp_path: Path) -> None:
    (tmp_path / "left.py").write_text(
        "import os, subprocess, sys\nsubprocess.Popen(['sleep', '1000'], start_new_session=bool(sys.argv[1:]))\n"
        "sys.stdin.readline()\nos._exit(1)"
    )
    for options in ((), ("apart",)):
        server = McpServer("left", (sys.executable, str(tmp_path / "left.py"), *options))
        async with client_of(server) as client:
            with pytest.raises(McpError, match=r"The program has ended\."):
                await client.tools()


async def test_fifty_restarts_leave_nothing_behind(rough, tmp_path: Path) -> None:
    counts = []
    async with client_of(rough("call", "killed")) as client:
        for _ in range(50):
            (tmp_path / "once").unlink(missing_ok=True)
            assert await said(client) == "The program has ended."
            own = [one for one in running("") if _parent(one) == os.getpid()]
            counts.append((len(own), len([*Path("/proc/self/fd").iterdir()])))
    assert max(counts[10:]) <= max(counts[:10])


def _parent(process: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


# -- kvchat ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("both", [False, True])
async def test_one_that_heeds_nothing_ends_with_a_kvchat_that_is_killed(both: bool) -> None:
    """As soon as the program is there, and when it has started another one."""
    first, second = (f"{next(NUMBERS)}.{os.getpid()}" for _ in range(2))
    line = f"trap '' HUP INT TERM; {f'sleep {second} &' if both else ''} while :; do sleep {first}; done"
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, "sh", "-c", line)
    try:
        await until(lambda: any(_name(one) == "sleep" for one in running(f"sleep {second if both else first}")))
    finally:
        owner.send_signal(signal.SIGKILL)
        await owner.wait()
    await until(lambda: not running(first) and not running(second))


@pytest.mark.parametrize("seconds", [0.0, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01])
async def test_one_that_is_just_starting_ends_too(seconds: float) -> None:
    number = f"{next(NUMBERS)}.{os.getpid()}"
    script = f"trap '' HUP INT TERM; while :; do sleep {number}; done"
    go = OWNER.replace("asyncio.run", "print(flush=True)\nasyncio.run")
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", go, "sh", "-c", script, stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    await owner.stdout.readline()
    await asyncio.sleep(seconds)
    owner.send_signal(signal.SIGKILL)
    await owner.wait()
    await until(lambda: not running(number))


def _name(process: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process}/comm").read_text().strip()
    return ""
