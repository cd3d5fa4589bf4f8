"""The app on a store in a temporary folder, and a toy server it talks to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from app_kit import Clock, Drive, Driven, driving

from toyserver import ToyServer


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
