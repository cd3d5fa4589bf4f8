"""The client against MCP servers: real ones, and such as do what they should not."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from kvchat.chat.tools.mcp_results import is_failure, result_text
from kvchat.mcp.client import Form, McpClient
from kvchat.mcp.configured import McpError, McpServer
from kvchat.mcp.stdio import StdioTransport
from kvchat.mcp.streamable_http import StreamableHttpTransport
from toyserver import Answer, ToyServer, Visit, drop, reply
from tries import tries

RECONNECTS = tries("mcp_reconnects", 12)
BOX = str(Path(__file__).parent.parent / "mcp_box.py")
OFFICIAL = """
import sys
from mcp.server.mcpserver import MCPServer
server = MCPServer("official")

@server.tool()
def repeat(text: str, times: int = 2) -> str:
    "Say it again."
    return " ".join([text] * times)

server.run("streamable-http", port=int(sys.argv[1])) if sys.argv[1:] else server.run("stdio")
"""


def box(*modes: str, **environment: str) -> McpServer:
    return McpServer("box", (sys.executable, BOX, *modes), environment)


@pytest.fixture
async def clients() -> AsyncIterator[list[McpClient]]:
    made: list[McpClient] = []
    yield made
    for client in made:
        await client.aclose()


def texts(result) -> list[str]:
    return [one.get("text", one["type"]) for one in result["content"]]


def processes(words: str) -> int:
    """How many processes of this machine have these words in their command line."""
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.exists()]
    return sum(words.encode() in line.replace(b"\0", b" ") for line in lines)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110  (processes tell of no change)
            await asyncio.sleep(0.02)


# -- real servers ------------------------------------------------------------------------------------------------------


@pytest.mark.process
async def test_the_official_server_as_a_program(clients: list[McpClient], tmp_path: Path) -> None:
    (tmp_path / "official.py").write_text(OFFICIAL)
    client = McpClient(StdioTransport(McpServer("official", (sys.executable, str(tmp_path / "official.py")))))
    clients.append(client)
    assert [one["name"] for one in await client.tools()] == ["repeat"]
    assert texts(await client.call("repeat", {"text": "lamp"})) == ["lamp lamp"]
    assert (await client.call("repeat", {"text": 1}))["isError"] is True


@pytest.mark.process
async def test_the_official_server_at_an_address(clients: list[McpClient], tmp_path: Path) -> None:
    (tmp_path / "official.py").write_text(OFFICIAL)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    line = [sys.executable, str(tmp_path / "official.py"), port]
    process = await asyncio.create_subprocess_exec(*line, stderr=asyncio.subprocess.DEVNULL)
    try:
        client = McpClient(StreamableHttpTransport(McpServer("official", url=f"http://127.0.0.1:{port}/mcp")))
        clients.append(client)
        async with asyncio.timeout(120):
            while True:
                try:
                    [tool] = await client.tools()
                    break
                except McpError:
                    await asyncio.sleep(0.1)
        assert tool["name"] == "repeat"
        assert texts(await client.call("repeat", {"text": "lamp", "times": 1})) == ["lamp"]
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.process
async def test_the_reference_server_of_time(clients: list[McpClient]) -> None:
    client = McpClient(StdioTransport(McpServer("time", (sys.executable, "-m", "mcp_server_time"))))
    clients.append(client)
    assert "get_current_time" in [one["name"] for one in await client.tools()]
    [said] = texts(await client.call("get_current_time", {"timezone": "UTC"}))
    assert json.loads(said)["timezone"] == "UTC"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder with one commit."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for line in (["init", "-q", "."], ["commit", "-q", "--allow-empty", "-m", "The first lamp"]):
        subprocess.run([*git, *line], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.process
async def test_the_reference_server_of_git(clients: list[McpClient], repository: Path) -> None:
    client = McpClient(StdioTransport(McpServer("git", (sys.executable, "-m", "mcp_server_git"))))
    clients.append(client)
    assert "git_log" in [one["name"] for one in await client.tools()]
    assert "The first lamp" in result_text(await client.call("git_log", {"repo_path": str(repository)}))
    assert is_failure(await client.call("git_show", {"repo_path": str(repository), "revision": "none"}))


@pytest.mark.process
async def test_the_reference_server_of_pages(clients: list[McpClient]) -> None:
    line = (sys.executable, "-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips")
    clients.append(client := McpClient(StdioTransport(McpServer("fetch", line))))
    async with ToyServer() as server:
        server.on("/lamp", reply(200, b"The lamp is on.", content_type="text/plain"))
        assert [one["name"] for one in await client.tools()] == ["fetch"]
        assert "The lamp is on." in result_text(await client.call("fetch", {"url": f"{server.url}/lamp"}))
        assert "404" in result_text(await client.call("fetch", {"url": f"{server.url}/none"}))


# -- programs ----------------------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("mode", ["plain", "noise", "alone", "asks"])
async def test_a_program_is_understood_however_it_speaks(clients: list[McpClient], mode: str) -> None:
    clients.append(client := McpClient(StdioTransport(box(mode))))
    names = [one.get("name") for one in await client.tools() if isinstance(one, dict)]
    assert "say" in names and "count/next" in names, "all pages are read"
    assert texts(await client.call("say", {"text": "lamp"})) == ["lamp 1", "image"]


@pytest.mark.process
async def test_a_program_gets_no_variable_but_its_own(
    clients: list[McpClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    clients.append(client := McpClient(StdioTransport(box(BOX_MODE="calm"))))
    [said, _] = texts(await client.call("say", {"text": "environment"}))
    assert "BOX_MODE" in said and "PATH" in said and "OPENAI_API_KEY" not in said


@pytest.mark.process
async def test_a_program_that_ends_says_why_and_starts_anew(clients: list[McpClient]) -> None:
    clients.append(client := McpClient(StdioTransport(box("dies"))))
    for _ in range(2):
        with pytest.raises(McpError, match="The program has ended: out of order"):
            await client.call("say", {"text": "lamp"})
    assert len(await client.tools()) == 5


@pytest.mark.process
async def test_a_program_ends_with_all_that_it_started() -> None:
    client, child = McpClient(StdioTransport(box("child"))), f"1000.{os.getpid()}"
    await client.call("say", {"text": child})
    await until(lambda: processes(f"sleep {child}") == 1)
    await client.aclose()
    await until(lambda: processes(f"sleep {child}") == 0 and processes("mcp_box.py child") == 0)


@pytest.mark.process
async def test_a_call_that_is_given_up_leaves_the_program_usable(clients: list[McpClient]) -> None:
    clients.append(client := McpClient(StdioTransport(box())))
    await client.tools()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await client.call("say", {"text": "wait"})
    assert texts(await client.call("say", {"text": "lamp"})) == ["lamp 2", "image"]


@pytest.mark.process
@pytest.mark.parametrize("mode", ["plain", "zero"])
async def test_a_late_answer_is_not_that_to_the_next_call(clients: list[McpClient], mode: str) -> None:
    clients.append(client := McpClient(StdioTransport(box(mode))))
    await client.tools()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await client.call("say", {"text": "late"})
    [said, _] = texts(await client.call("say", {"text": "lamp"}))
    assert said.startswith("lamp")


@pytest.mark.process
async def test_an_answer_that_is_too_long_costs_that_call(clients: list[McpClient]) -> None:
    clients.append(client := McpClient(StdioTransport(box())))
    await client.tools()
    waiting = asyncio.create_task(client.call("say", {"text": "wait"}))
    with pytest.raises(McpError, match="more than 8 MB"):
        await client.call("say", {"text": "huge"})
    assert texts(await client.call("say", {"text": "lamp"})) == ["lamp 3", "image"], "the program goes on"
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.process
async def test_one_that_reads_nothing_holds_nobody_up() -> None:
    deaf = McpServer("deaf", (sys.executable, "-c", "import time\ntime.sleep(1000)"))
    client = McpClient(StdioTransport(deaf))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await client.call("say", {"text": "long" * 100_000})
    await client.aclose()


@pytest.mark.process
async def test_what_cannot_be_started_is_said() -> None:
    with pytest.raises(McpError, match=r"no-such-program cannot be started: no program of this name is in PATH"):
        await McpClient(StdioTransport(McpServer("x", ("no-such-program",)))).tools()


def resident_kib() -> int:
    return int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[0])


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")
async def test_connections_that_begin_again_leave_nothing_behind() -> None:
    here = f"reconnects-{os.getpid()}"

    async def connect(server: McpServer) -> None:
        client = McpClient(StdioTransport(server) if server.command else StreamableHttpTransport(server))
        assert texts(await client.call("say", {"text": "lamp"}))[0].startswith(("lamp", "said"))
        await client.aclose()

    async with ToyServer() as address:
        address.on_chat(OldAddress())
        servers = [box(here), McpServer("old", url=f"{address.url}/mcp")]
        levels = []
        for at in range(RECONNECTS):
            for server in servers:
                await connect(server)
            await address.until_closed()
            address.visits.clear()
            if at in (RECONNECTS // 4, RECONNECTS - 1):
                gc.collect()
                levels.append((len([*Path("/proc/self/fd").iterdir()]), len(asyncio.all_tasks()), resident_kib()))
        assert processes(here) == 0
        (files, tasks, kib), (files_then, tasks_then, kib_then) = levels
        assert (files_then, tasks_then) == (files, tasks)
        assert kib_then - kib < 4096


# -- addresses ---------------------------------------------------------------------------------------------------------

TOOLS = {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]}


def as_stream(message: object) -> bytes:
    told = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
    return f": ping\n\ndata: {told}\n\nevent: message\ndata: {json.dumps(message)}\n\n".encode()


class OldAddress:
    """A server that knows `initialize` alone, and its sessions."""

    def __init__(self) -> None:
        self.sessions = 0
        self.forgets = False
        self.says = reply(404, b"unknown session")

    async def __call__(self, visit: Visit) -> None:
        answer = self._answer(visit)
        await answer(visit)

    def _answer(self, visit: Visit) -> Answer:
        message = visit.json
        if message["method"] == "initialize":
            self.sessions += 1
            said = {"protocolVersion": "2025-03-26", "capabilities": {}}
            body = as_stream({"jsonrpc": "2.0", "id": message["id"], "result": said})
            return reply(200, body, content_type="text/event-stream", headers={"Mcp-Session-Id": str(self.sessions)})
        if self.forgets:
            self.forgets, self.sessions = False, self.sessions + 1
        session = visit.headers.get("mcp-session-id")
        if session != str(self.sessions):
            return self.says if session else reply(400, b"no session")
        if "id" not in message:
            return reply(202)
        result = TOOLS if message["method"] == "tools/list" else {"content": [{"type": "text", "text": "said"}]}
        told = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return reply(200, as_stream(told), content_type="text/event-stream")


async def test_an_address_that_knows_sessions_alone(clients: list[McpClient]) -> None:
    async with ToyServer() as server:
        old = OldAddress()
        server.on_chat(old)
        headers = {"Authorization": "Bearer k"}
        client = McpClient(StreamableHttpTransport(McpServer("old", url=f"{server.url}/mcp", headers=headers)))
        assert [one["name"] for one in await client.tools()] == ["say"]
        old.forgets = True
        assert texts(await client.call("say", {})) == ["said"], "a session that is forgotten begins anew"
        assert all(visit.headers["authorization"] == "Bearer k" for visit in server.visits)
        assert {visit.headers.get("mcp-protocol-version") for visit in server.visits[-1:]} == {"2025-03-26"}
        await client.aclose()
        assert server.visits[-1].method == "DELETE"


def as_error(words: str) -> Answer:
    return reply(200, {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": words}})


@pytest.mark.parametrize(
    "says",
    [
        reply(400, b"Bad Request: No valid session ID provided"),
        reply(400),
        reply(503, {"error": "Unknown session"}),
        as_error("Session not found"),
        as_error("Server not initialized"),
    ],
)
async def test_a_session_that_is_forgotten_by_any_status_begins_once_more(says: Answer) -> None:
    async with ToyServer() as server:
        old = OldAddress()
        old.says = says
        server.on_chat(old)
        client = McpClient(StreamableHttpTransport(McpServer("old", url=f"{server.url}/mcp")))
        await client.tools()
        old.forgets = True
        both = await asyncio.gather(client.call("say", {}), client.call("say", {}))
        assert [texts(one) for one in both] == [["said"], ["said"]]
        begun = [visit for visit in server.visits if visit.method == "POST" and visit.json["method"] == "initialize"]
        assert len(begun) == 2, "once for both"
        await client.aclose()


async def test_an_error_that_is_no_forgotten_session_is_not_asked_for_again() -> None:
    async with ToyServer() as server:
        old = OldAddress()
        server.on_chat(old)
        client = McpClient(StreamableHttpTransport(McpServer("old", url=f"{server.url}/mcp")))
        await client.tools()
        for says in (reply(503, b"busy"), as_error("No such lamp"), reply(400, {"error": "text is missing"})):
            old.says, old.forgets, asked = says, True, len(server.visits)
            with pytest.raises(McpError):
                await client.call("say", {})
            old.sessions -= 1
            assert len(server.visits) == asked + 1
        await client.aclose()


async def test_requests_of_an_address_are_answered(clients: list[McpClient]) -> None:
    heard: dict[str, object] = {}
    answered = asyncio.Event()
    methods = ["ping", "roots/list", "sampling/createMessage", "elicitation/create"]

    async def asks(visit: Visit) -> None:
        message = visit.json
        if "method" not in message:
            heard[message["id"]] = message
            answered.set() if len(heard) == len(methods) else None
            await reply(202)(visit)
        elif message["method"] != "tools/call":
            await reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": TOOLS})(visit)
        else:
            await visit.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            for method in methods:
                await visit.send(f"data: {json.dumps({'jsonrpc': '2.0', 'id': method, 'method': method})}\n\n".encode())
            await answered.wait()
            result = {"content": [{"type": "text", "text": "said"}]}
            await visit.send(as_stream({"jsonrpc": "2.0", "id": message["id"], "result": result}))

    async with ToyServer() as server:
        server.on_chat(asks)
        clients.append(client := McpClient(StreamableHttpTransport(McpServer("new", url=server.url))))
        async with asyncio.timeout(20):
            assert texts(await client.call("say", {})) == ["said"]
        assert set(heard) == set(methods)
        assert "result" in heard["ping"] and "error" in heard["roots/list"]


async def test_an_answer_of_an_address_that_is_too_long_is_said() -> None:
    huge = {"jsonrpc": "2.0", "id": 1, "result": {"tools": ["x" * (9 << 20)]}}
    for answer in (reply(200, huge), reply(200, as_stream(huge), content_type="text/event-stream")):
        async with ToyServer() as server:
            server.on_chat(answer)
            with pytest.raises(McpError, match="more than 8 MB"):
                await McpClient(StreamableHttpTransport(McpServer("x", url=server.url))).tools()


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirection_within_the_origin_is_followed_once_for_all(status: int) -> None:
    async def near(visit: Visit) -> None:
        if visit.path == "/mcp":
            await reply(status, headers={"Location": "/mcp/"})(visit)
            return
        await reply(200, {"jsonrpc": "2.0", "id": visit.json["id"], "result": TOOLS})(visit)

    async with ToyServer() as server:
        server.on_chat(near)
        client = McpClient(StreamableHttpTransport(McpServer("x", url=f"{server.url}/mcp")))
        assert [one["name"] for one in await client.tools()] == ["say"]
        await client.call("say", {})
        assert [visit.path for visit in server.visits] == ["/mcp", "/mcp/", "/mcp/", "/mcp/"]


async def test_an_address_for_which_each_request_stands_for_itself() -> None:
    async def alone(visit: Visit) -> None:
        assert visit.json["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == Form.EACH_ALONE
        result = TOOLS if visit.json["method"] == "tools/list" else {"content": [{"type": "text", "text": "said"}]}
        await reply(200, {"jsonrpc": "2.0", "id": visit.json["id"], "result": result})(visit)

    async with ToyServer() as server:
        server.on_chat(alone)
        client = McpClient(StreamableHttpTransport(McpServer("new", url=server.url)))
        assert texts(await client.call("größe", {})) == ["said"]
        await client.aclose()
        called = server.visits[-1].headers
        assert (called["mcp-method"], called["mcp-name"]) == ("tools/call", "=?base64?Z3LDtsOfZQ==?=")
        assert [visit.method for visit in server.visits] == ["POST", "POST"]


async def test_an_address_at_which_nothing_listens_is_said() -> None:
    async with ToyServer() as server:
        url = f"{server.url}/mcp"
    with pytest.raises(
        McpError, match=r"No server answers at .*/mcp \(connection refused\)\. Start it, or check its url"
    ):
        await McpClient(StreamableHttpTransport(McpServer("x", url=url))).tools()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (reply(200, b"<html>"), "does not answer as an MCP server does"),
        (reply(401, b""), "answers with the status 401"),
        (reply(401, {"error": "Set SHED_KEY first"}), "answers with the status 401: Set SHED_KEY first"),
        (reply(307), "answers with the status 307"),
        (reply(307, headers={"Location": "/mcp"}), "leads in a circle"),
        (drop(), "closed the connection before its answer was whole"),
        (
            reply(302, headers={"Location": "https://elsewhere.example/"}),
            r"leads to https://elsewhere\.example/: if you trust that address, write it as the url",
        ),
        (reply(200, {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "No\x1b[2J more."}}), r"No\S* more\."),
    ],
)
async def test_an_address_that_is_none_says_so(answer: Answer, words: str) -> None:
    async with ToyServer() as server:
        server.on_chat(answer)
        with pytest.raises(McpError, match=words) as raised:
            await McpClient(StreamableHttpTransport(McpServer("x", url=f"{server.url}/mcp"))).tools()
        assert "\x1b" not in str(raised.value) and len(server.visits) <= 3
