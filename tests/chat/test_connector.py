"""The states of the way to a server: each has what is true in it, and nothing of an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest

from corpus import corpus
from kvchat.backends.dialect import Backend, BackendError, HostClass, ServerInfo
from kvchat.backends.engine import process
from kvchat.backends.engine.log import EngineError
from kvchat.chat.server import connection
from kvchat.chat.server.connection import Connector
from kvchat.chat.server.connection_state import (
    Connecting,
    Connection,
    EngineEnded,
    Failed,
    Idle,
    Lost,
    NotFound,
    Ready,
    Starting,
)
from kvchat.chat.server.server_saves import ServerSaves
from kvchat.config import Settings, changed
from kvchat.text.engine import EngineProblem
from toyserver import ToyServer, error, reply

LOG = "ggml: out of memory"


def at(url: str) -> Settings:
    return changed(Settings(), "server.base_url", url)


async def failed(connector: Connector) -> Connection:
    with pytest.raises(BackendError):
        await connector.ready()
    return connector.connection


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[Path | None]:
    """The model files that are found, one after the other; the engine starts with none of them."""
    found: list[Path | None] = []

    async def nothing() -> Sequence[object]:
        return []

    async def start(*_: object) -> NoReturn:
        raise EngineError(EngineProblem.STOPPED, [LOG])

    monkeypatch.setattr(connection, "found_here", nothing)
    monkeypatch.setattr(connection, "default_model_file", lambda: found.pop(0))
    monkeypatch.setattr("kvchat.backends.engine.models.model_at", lambda file: SimpleNamespace(path=file))
    monkeypatch.setattr(process.Engine, "start", start)
    return found


@pytest.mark.parametrize("second", ["no file", "a file that is none", "a file again"])
async def test_the_log_of_an_engine_is_told_with_its_own_failure_alone(
    files: list[Path | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, second: str
) -> None:
    """The log of a start that failed was told with each later failure, and the screen showed it as the reason."""
    file = tmp_path / "small.gguf"
    files += [file, None if second == "no file" else file]
    connector = Connector(Settings(), lambda: None)
    assert getattr(await failed(connector), "log") == LOG  # noqa: B009
    if second == "a file that is none":
        monkeypatch.undo()
        monkeypatch.setattr(connection, "found_here", _nothing)
        monkeypatch.setattr(connection, "default_model_file", lambda: file)
    assert getattr(await failed(connector), "log", "") == (LOG if second == "a file again" else "")
    await connector.aclose()


async def _nothing() -> Sequence[object]:
    return []


async def test_a_server_that_answered_is_not_let_alone() -> None:
    """One that was asked whether it answers was in use, and said to be idle when it was looked at."""
    async with ToyServer() as server:
        connector = Connector(at(server.url), lambda: None)
        assert await connector.answers()
        connector.left_alone()
        assert connector.connection.phase == "ready"
        before = len(server.visits)
        await connector.ready()
        assert len(server.visits) == before
        await connector.aclose()


async def test_the_way_to_a_server_goes_through_its_states() -> None:
    seen: list[type[Connection]] = []
    async with ToyServer() as server:
        connector = Connector(at(server.url), lambda: seen.append(type(connector.connection)))
        connector.left_alone()
        await connector.ready()
        connector.lost("It is gone.", refuses=True)
        assert connector.connection == Lost("It is gone.", True) and connector.connection.is_awaited
        await connector.back()
        await connector.let_go()
    assert seen == [Idle, Connecting, Ready, Lost, Ready, Idle]
    refused = await failed(connector)
    assert isinstance(refused, Failed) and refused.is_awaited and not refused.refuses
    await connector.aclose()
    assert seen[6:] == [Connecting, Failed, Idle]


async def test_what_waiting_does_not_help_against_is_not_awaited() -> None:
    async with ToyServer() as server:
        server.on("/v1/models", error(401, "Who are you?"))
        server.on("/props", reply(401, {}))
        connector = Connector(at(server.url), lambda: None)
        state = await failed(connector)
        assert isinstance(state, Failed) and not state.is_awaited
        await connector.aclose()


async def test_without_a_server_and_a_file_nothing_is_found(files: list[Path | None]) -> None:
    files.append(None)
    connector = Connector(Settings(), lambda: None)
    state = await failed(connector)
    assert isinstance(state, NotFound) and not state.is_awaited and connector.info is None
    await connector.aclose()


@corpus(
    ("state", "phase"),
    [
        (Idle(), "idle"),
        (Connecting("One"), "connecting"),
        (Starting("One"), "starting"),
        (Ready(), "ready"),
        (Lost("One"), "lost"),
        (EngineEnded("One", LOG), "lost"),
        (NotFound("One"), "none"),
        (Failed("One", log=LOG), "failed"),
    ],
)
def test_only_a_server_that_is_off_is_awaited(state: Connection, phase: str) -> None:
    assert state.phase == phase and not state.refuses
    assert state.is_awaited is isinstance(state, Lost)


async def test_the_saved_states_of_one_server_are_not_those_of_the_next(tmp_path: Path) -> None:
    """A server of which nothing was saved yet had those of the one before it, at another address."""
    saves = ServerSaves(tmp_path)
    one, two = (_backend_at(f"http://127.0.0.1:{port}") for port in (8080, 8081))
    first = await saves.of(one, "", known_only=False)
    assert await saves.of(one, "", known_only=True) is first is saves.snapshots
    second = await saves.of(two, "", known_only=True)
    assert second is saves.snapshots is not first
    assert await saves.of(two, "", known_only=False) is saves.snapshots is not second
    assert await saves.of(two, "", known_only=True) is saves.snapshots
    assert (await saves.of(one, None, known_only=False)).why_not is not None


def _backend_at(url: str) -> Backend:
    info = ServerInfo("llama.cpp", url, HostClass.LOOPBACK)
    return cast(Backend, SimpleNamespace(info=info))
