"""Which servers are found on this machine, what is told of them, and that no server hides another."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kvchat.backends import recognition
from kvchat.backends.discovery import discover, questions
from kvchat.backends.kinds import ServerKind
from toyserver import ToyServer, Visit, drop, hang, loading, raw, reply, reset

WIRE = Path(__file__).parents[1] / "fixtures/wire"
LONG = 20.0
"""Seconds that no test waits for: where a server is found at all, it is found because its answers suffice."""
SOON = 1.0
"""Seconds to look for a server beside one that never answers, which takes all of them."""

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(talk: Talk, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A port on which `talk` has every connection; whatever breaks it off is over with it."""
    tasks: set[asyncio.Task[Any]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await talk(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(handle, host, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in set(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def saying(data: bytes, then: str = "close") -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if then != "unasked":
            await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        if then != "close":
            await reader.read()

    return talk


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def endless_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
    while True:
        writer.write(b"1," * 4096)
        await writer.drain()


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}":
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(1)


async def refusing_to_talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    return


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


# -- what is told of a server -----------------------------------------------------------------------------------------


async def test_where_nothing_listens_nothing_is_found() -> None:
    assert await discover([free_port()], within=LONG) == []
    assert await discover([], within=LONG) == []


async def test_a_llama_cpp_server_is_told_with_its_model_window_and_slots() -> None:
    async with ToyServer(model="qwen", context_size=8192, slots=4) as server:
        (found,) = await discover([server.port], within=LONG)
    assert (found.base_url, found.kind, found.title, found.phase) == (server.url, "llama.cpp", "llama.cpp", "ready")
    assert (found.model, found.context_size, found.slots) == ("qwen", 8192, 4)
    assert [model.id for model in found.listing] == ["qwen"] and found.loaded is None
    assert 0 < found.seconds < LONG


async def test_twelve_servers_are_found_each_as_what_it_is_in_the_order_of_their_ports() -> None:
    servers = [ToyServer("llama.cpp" if number % 2 else "openai", model=f"m{number}") for number in range(12)]
    for server in servers:
        await server.__aenter__()
    try:
        found = await discover([server.port for server in servers], within=LONG)
    finally:
        for server in servers:
            await server.stop()
    assert [(f.model, f.kind) for f in found] == [
        (f"m{number}", "llama.cpp" if number % 2 else "openai") for number in range(12)
    ]


async def test_models_are_told_loaded_or_not_and_none_is_loaded_is_not_the_same_as_unknown() -> None:
    async with ToyServer("openai") as server:

        def entry(name: str, state: str) -> dict[str, object]:
            return {"id": name, "status": {"value": state}}

        server.on("/v1/models", reply(200, {"data": [entry("a", "unloaded"), entry("b", "loaded")]}))
        (found,) = await discover([server.port], within=LONG)
        assert (found.model, found.loaded) == ("b", ("b",))
        server.on("/v1/models", reply(200, {"data": [entry("a", "unloaded")]}))
        (found,) = await discover([server.port], within=LONG)
        assert (found.model, found.loaded) == ("a", ())


async def test_a_server_that_loads_its_model_is_told_as_such() -> None:
    async with ToyServer() as server:
        for path in ("/props", "/v1/models"):
            server.on(
                path,
                reply(503, {"error": {"message": "Loading model", "type": "unavailable_error"}}, server="llama.cpp"),
            )
        (found,) = await discover([server.port], within=LONG)
    assert (found.kind, found.phase, found.model) == ("llama.cpp", "loading", "")


async def test_a_server_that_says_loading_and_nothing_else_still_counts_as_loading() -> None:
    async with ToyServer("openai") as server:
        server.on("/v1/models", loading())
        (found,) = await discover([server.port], within=LONG)
    assert (found.kind, found.phase) == ("", "loading")


async def test_a_server_that_wants_a_key_says_so_and_is_still_known_where_it_shows_itself() -> None:
    async with ToyServer() as open_one, ToyServer("openai") as closed:
        open_one.on("/v1/models", raw((WIRE / "llamacpp_401_models.http").read_bytes()))
        closed.on("/v1/models", reply(401, {"detail": "Unauthorized"}))
        first, second = await discover([open_one.port, closed.port], within=LONG)
    assert (first.kind, first.phase) == ("llama.cpp", "needs a key")
    assert (second.kind, second.phase) == ("", "needs a key")


@pytest.mark.parametrize(
    "answer",
    [
        reply(200, b"<html>hello</html>", content_type="text/html"),
        reply(404, b"Not Found", content_type="text/plain"),
        reply(200, {"hello": "world"}),
        reply(403, server="AirTunes/760.20.1"),
        reply(302, headers={"Location": "/login"}),
    ],
)
async def test_a_web_server_of_another_trade_answers_and_is_taken_for_nothing(answer: Any) -> None:
    async with ToyServer("openai") as server:
        for path in questions(server.port):
            server.on(path, answer)
        (found,) = await discover([server.port], within=LONG)
    assert (found.kind, found.phase, found.model, found.listing) == ("", "answers", "", ())


async def test_what_answers_with_errors_alone_fails() -> None:
    async with ToyServer("openai") as server:
        for path in questions(server.port):
            server.on(path, reply(500, {"error": "boom"}))
        (found,) = await discover([server.port], within=LONG)
    assert (found.kind, found.phase, found.model, found.listing) == ("", "fails", "", ())


async def test_a_listing_too_long_to_read_leaves_the_server_found_without_it() -> None:
    async with ToyServer() as server:
        entries = [{"id": f"model-{number}" + "x" * 200, "owned_by": "llamacpp"} for number in range(4000)]
        server.on("/v1/models", reply(200, {"data": entries}))
        (found,) = await discover([server.port], within=LONG)
    assert (found.kind, found.phase, found.listing) == ("llama.cpp", "ready", ())


async def test_a_server_on_ipv6_alone_is_found_there() -> None:
    answer = b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"data":[{"id":"six"}]}'
    try:
        async with listening(saying(answer), "::1") as port:
            (found,) = await discover([port], within=LONG)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    assert (found.base_url, found.model) == (f"http://[::1]:{port}", "six")


# -- servers that misbehave -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "talk",
    [
        silent,
        refusing_to_talk,
        endless,
        dripping,
        saying(b"nonsense\r\n\r\n", "hang"),
        saying(b"SSH-2.0-OpenSSH_9.6\r\n", "unasked"),
        saying(b"\x15\x03\x01\x00\x02\x02\x46", "hang"),
        saying(b"HTTP/1.1 200 OK\r\n", "hang"),
        saying(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 65536 + b"\r\n\r\n{}"),
        saying(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20000 + b"\r\n{}"),
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}"),
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"),
        saying(b"HTTP/1.1 100 Continue\r\n\r\n" * 9000, "hang"),
        saying(b"HTTP/2 200\r\n\r\n"),
        saying(b"HTTP/1.1 999 X\r\n\r\n"),
    ],
    ids=[
        "silent",
        "closes",
        "endless",
        "drips",
        "nonsense",
        "ssh",
        "tls",
        "half",
        "long header",
        "many headers",
        "negative",
        "cut",
        "interim",
        "http2",
        "status",
    ],
)
async def test_a_port_that_does_not_speak_http_is_no_server_and_hides_no_other(talk: Talk) -> None:
    async with ToyServer(model="good") as server, listening(talk) as port:
        found = await discover([port, server.port], within=SOON)
        await server.until_closed()
    assert [(f.base_url, f.kind, f.model) for f in found] == [(server.url, "llama.cpp", "good")]


async def test_a_port_whose_answers_never_end_is_only_known_to_answer() -> None:
    async with listening(endless_body) as port:
        (found,) = await discover([port], within=LONG)
    assert (found.kind, found.phase) == ("", "answers")


@pytest.mark.parametrize("answer", [hang(), drop(), reset(), raw(b"HTTP/1.1 200 OK\r\n\r\n{", then="hang")])
async def test_one_path_that_breaks_or_never_answers_does_not_hide_the_server(answer: Any) -> None:
    async with ToyServer("openai", model="good") as server:
        server.on(next(path for path in questions(server.port) if path != "/v1/models"), answer)
        (found,) = await discover([server.port], within=SOON)
        await server.until_closed()
    assert (found.kind, found.model, found.phase) == ("openai", "good", "ready")


@pytest.mark.parametrize("when", ["connecting", "asking"])
async def test_a_screen_that_is_built_meanwhile_hides_no_server(when: str) -> None:
    async def held_up(visit: Visit) -> None:
        time.sleep(1.2 * SOON)  # noqa: ASYNC251 - the loop stands still
        await listing(visit)

    async with ToyServer(model="qwen") as server:
        listing = server._routes["/v1/models"]
        if when == "asking":
            server.on("/v1/models", held_up)
        looking = asyncio.create_task(discover([server.port], within=SOON))
        await asyncio.sleep(0)
        if when == "connecting":
            time.sleep(1.2 * SOON)  # noqa: ASYNC251
        (found,) = await looking
    assert (found.kind, found.model, found.phase) == ("llama.cpp", "qwen", "ready")


async def test_what_a_slow_server_has_said_by_the_deadline_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = asyncio.Lock()
    paths = [f"/p{number}" for number in range(1000)]

    slow = ServerKind("slow", "slow", probes=("/v1/models", *paths))

    async def later(visit: Visit) -> None:
        async with one_by_one:
            await asyncio.sleep(0.002)
        await listing(visit)

    monkeypatch.setattr(recognition, "ORDER", (slow, *recognition.ORDER))
    async with ToyServer("openai", model="late") as server:
        listing = server._routes["/v1/models"]
        for path in ("/v1/models", *paths):
            server.on(path, later)
        (found,) = await discover([server.port], within=SOON)
        assert len(server.visits) < 1000
    assert (found.kind, found.model, found.phase) == ("openai", "late", "ready")


async def test_a_server_that_sees_to_one_kept_connection_after_the_other_is_recognised() -> None:
    turn = asyncio.Lock()
    models = b'{"data":[{"id":"only"}]}'

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with turn:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await asyncio.sleep(0.02)
                status, body = (b"200 OK", models) if b"/v1/models " in head else (b"404 Not Found", b"{}")
                writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))

    async with listening(talk) as port:
        (found,) = await discover([port], within=LONG)
    assert (found.kind, found.model) == ("openai", "only")
