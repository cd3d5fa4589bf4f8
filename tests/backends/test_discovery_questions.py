"""What discovery asks, whom, and what it never sends."""

from __future__ import annotations

import asyncio

import pytest

from kvchat.backends import discovery, kinds, recognition
from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import ServerInfo
from kvchat.backends.discovery import discover, questions
from kvchat.backends.http.transport import Exchange
from kvchat.backends.identify import backend_of
from kvchat.backends.kinds import KINDS, ServerKind, Sign
from toyserver import ToyServer, hang, reply

LONG, SOON = 20.0, 1.0
"""Seconds: what no test waits for; what a server that never answers takes."""


def test_a_port_changes_the_order_of_the_questions_and_nothing_else() -> None:
    for port in (*kinds.ports(), 9):
        assert sorted(questions(port)) == sorted({path for kind in KINDS.values() for path in kind.probes})


class First(HttpBackend):
    """Knows its own by one path, and asks another one for the facts."""

    kind = ServerKind("first", "first", probes=("/first",), signs=(Sign("/first"),))

    async def describe(self) -> ServerInfo:
        raise NotImplementedError


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> type[First]:
    monkeypatch.setattr(recognition, "ORDER", (First.kind, *recognition.ORDER))
    monkeypatch.setattr(discovery, "backend_of", lambda kind: First if kind is First.kind else backend_of(kind))
    return First


async def test_a_server_that_is_known_for_certain_is_asked_nothing_more(first: type[First]) -> None:
    async with ToyServer() as server:
        server.on("/first", reply(200, {}))
        (found,) = await discover([server.port], within=LONG)
        assert [visit.path for visit in server.visits] == ["/first"]
    assert (found.kind, found.title, found.phase) == ("first", "first", "ready")


async def test_a_server_is_not_taken_for_an_imitated_one_while_the_better_question_is_open(first: type[First]) -> None:
    async with ToyServer() as server:
        server.on("/first", reply(404))
        (found,) = await discover([server.port], within=LONG)
        assert "/first" in [visit.path for visit in server.visits]
    assert found.kind == "llama.cpp"


async def test_nothing_is_asked_twice_though_the_facts_stand_in_the_same_answers() -> None:
    async with ToyServer() as server:
        await discover([server.port], within=LONG)
        asked = [visit.path for visit in server.visits]
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("mishap", [KeyError("x"), RecursionError(), ZeroDivisionError()])
async def test_a_server_is_found_though_its_dialect_fails_to_describe_it(
    first: type[First], mishap: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def describe(self: First) -> ServerInfo:
        await self.get_json("/v1/models")
        raise mishap

    monkeypatch.setattr(first, "describe", describe)
    async with ToyServer(model="there") as server:
        server.on("/first", reply(200, {}))
        (found,) = await discover([server.port], within=LONG)
    assert (found.kind, found.model, found.phase) == ("first", "there", "ready")


async def test_only_plain_gets_without_body_key_or_cookie_are_sent(
    first: type[First], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def describe(self: First) -> ServerInfo:
        async with Exchange(self._endpoint, "POST", "/api/show", body=b"{}") as exchange:
            await exchange.head()
        raise AssertionError("a POST was answered")

    monkeypatch.setattr(first, "describe", describe)
    async with ToyServer() as server, ToyServer("openai") as other:
        server.on("/first", reply(200, {}))
        await discover([server.port, other.port], within=LONG)
        visits = server.visits + other.visits
    assert visits
    for visit in visits:
        assert (visit.method, visit.body) == ("GET", b"")
        assert visit.headers.keys() <= {"host", "user-agent", "accept", "accept-encoding", "connection"}
        assert visit.headers["host"].startswith("127.0.0.1:")


async def test_no_redirect_is_followed() -> None:
    async with ToyServer("openai") as server, ToyServer() as other:
        for path in questions(server.port):
            server.on(path, reply(307, headers={"Location": f"{other.url}{path}"}))
        (found,) = await discover([server.port], within=LONG)
        assert other.visits == []
    assert (found.kind, found.phase) == ("", "answers")


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Every connection that discovery wants to make; none is made."""
    made: list[tuple[str, int]] = []

    async def connect(host: str, port: int, **_: object) -> None:
        made.append((host, port))
        raise ConnectionRefusedError

    monkeypatch.setattr(discovery.asyncio, "open_connection", connect)
    return made


async def test_nothing_but_this_machine_is_asked(connections: list[tuple[str, int]]) -> None:
    also = [
        "http://192.168.1.5:8080",
        "http://8.8.8.8",
        "http://box.local:8080",
        "http://box:8080",
        "https://localhost:1",
        "http://100.64.0.1:8080",
        "http://[fe80::1]:8080",
        "http://[::ffff:10.0.0.1]:8080",
        "nonsense",
        "",
        "http://127.1:8080",
        "http://169.254.169.254",
        "http://localhost.example.com:8080",
        "http://0.0.0.0:8080",
    ]
    assert await discover([], also=also, within=LONG) == []
    assert connections == []


async def test_every_usual_port_is_asked_on_both_families(connections: list[tuple[str, int]]) -> None:
    await discover(within=LONG)
    assert sorted(connections) == sorted((host, port) for host in ("127.0.0.1", "::1") for port in kinds.ports())


async def test_other_addresses_of_this_machine_are_asked_once_each(connections: list[tuple[str, int]]) -> None:
    await discover(
        [8080],
        also=[
            "http://localhost:8080/v1",
            "http://127.0.0.1:8080",
            "http://127.0.0.1:9090",
            "http://localhost:9090",
            "http://127.0.0.2:7070",
            "http://[::1]:6060",
        ],
        within=LONG,
    )
    assert sorted(connections) == sorted(
        [("127.0.0.1", 8080), ("::1", 8080), ("127.0.0.1", 9090), ("127.0.0.2", 7070), ("::1", 6060)]
    )


async def test_a_server_under_a_prefix_is_asked_under_it() -> None:
    async with ToyServer("openai", model="deep") as server:
        server.on("/llm/v1/models", server._routes.pop("/v1/models"))
        (found,) = await discover([], also=[f"http://localhost:{server.port}/llm/v1"], within=LONG)
    assert (found.base_url, found.model) == (f"http://localhost:{server.port}/llm", "deep")


async def test_no_connection_stays_open_when_discovery_is_over_or_cancelled() -> None:
    async with ToyServer() as server, ToyServer() as stuck:
        for path in questions(stuck.port):
            stuck.on(path, hang())
        assert len(await discover([server.port, stuck.port], within=SOON)) == 1
        await server.until_closed()
        await stuck.until_closed()
        task = asyncio.create_task(discover([stuck.port], within=LONG))
        await stuck.until(lambda: stuck.open > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await stuck.until_closed()
