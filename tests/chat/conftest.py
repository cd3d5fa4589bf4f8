"""A service on a store in a folder, and a toy server it talks to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

import indexing_here
from kvchat.backends.discovery import discover
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.store import Store
from toyserver import ToyServer

Maker = Callable[..., ChatService]


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 9, 16, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)  # two messages never have the very same time
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def server() -> AsyncIterator[ToyServer]:
    async with ToyServer() as server:
        yield server


@pytest.fixture
async def make(tmp_path: Path, clock: Clock) -> AsyncIterator[Maker]:
    """Makes services on one store folder, as restarts do; they are closed at the end."""
    made: list[ChatService] = []

    def make(base_url: str, wanted: Settings | None = None, **options: object) -> ChatService:
        settings = changed(wanted or Settings(), "server.base_url", base_url)
        service = ChatService(Store.open(tmp_path / "data"), settings, clock=clock, **options)  # type: ignore[arg-type]
        made.append(service)
        return service

    yield make
    for service in made:
        await service.aclose()


@pytest.fixture
def service(make: Maker, server: ToyServer) -> ChatService:
    return make(server.url)


@pytest.fixture(autouse=True)
def no_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that happen to run on this machine are no test's business; a test's own are waited for."""
    monkeypatch.setattr("kvchat.backends.kinds.ports", lambda: ())
    monkeypatch.setattr("kvchat.backends.discovery.discover", partial(discover, within=5.0))


@pytest.fixture(autouse=True)
def indexing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents are indexed in this process, but for the tests of the tiers."""
    if not any(request.node.get_closest_marker(tier) for tier in ("engine", "process")):
        monkeypatch.setattr("kvchat.documents.indexing.process.indexed", indexing_here.indexed)
