"""The app on a store in a temporary folder, and a toy server it talks to; dialogs stand on `screens_kit` alone."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from app_kit import Clock, Drive, Driven, driving

import indexing_here
from kvchat.backends.discovery import discover
from toyserver import ToyServer


@pytest.fixture(autouse=True)
def no_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """An app sweeps the memory once it has begun; a hundred of them in one process need not."""
    sweeper = SimpleNamespace(
        enable=gc.enable,
        disable=gc.disable,
        collect=lambda: 0,
        freeze=lambda: None,
        get_threshold=gc.get_threshold,
        set_threshold=lambda *_: None,
        get_count=gc.get_count,
    )
    monkeypatch.setattr("kvchat.ui.sweeper.gc", sweeper)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that opens by itself waits for a pause of typing; that of a test is over at once."""
    monkeypatch.setattr("kvchat.ui.controllers.questions.Questions.quiet_s", 0.0)
    monkeypatch.setattr("kvchat.ui.screens.kit.confirm.ConfirmScreen.alone_s", 0.0)


@pytest.fixture(autouse=True)
def rescued_at_home(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An app whose data folder is gone leaves a file of what it holds: in the test's home, and never in the folder that
    the tests are run in, which is a last resort of the real one, as when another run has removed this one's folders."""
    monkeypatch.setattr("kvchat.ui.ending.last_resorts", lambda: iter([own_folders]))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def server() -> AsyncIterator[ToyServer]:
    async with ToyServer() as server:
        yield server


@pytest.fixture
def drive(tmp_path: Path, clock: Clock, server: ToyServer) -> Drive:
    """Starts the app on one store folder, as often as a test likes."""

    def start(**options: Any) -> AbstractAsyncContextManager[Driven]:
        return driving(tmp_path / "data", options.pop("server", server), clock=clock, **options)

    return start


@pytest.fixture(autouse=True)
def no_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that happen to run on this machine are no test's business; a test's own are waited for."""
    monkeypatch.setattr("kvchat.backends.kinds.ports", lambda: ())
    monkeypatch.setattr("kvchat.backends.discovery.discover", partial(discover, within=5.0))


@pytest.fixture(autouse=True)
def no_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no server is named the app would start the engine; there is no model for it, but in the engine's tier."""
    if not request.node.get_closest_marker("engine"):
        monkeypatch.setattr("kvchat.backends.engine.models.default_model", lambda: None)


@pytest.fixture(autouse=True)
def indexing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents are indexed in this process, but for the tests of the tiers."""
    if not any(request.node.get_closest_marker(tier) for tier in ("engine", "process")):
        monkeypatch.setattr("kvchat.documents.indexing.process.indexed", indexing_here.indexed)
