"""The tiny models, and kvchat for one of their servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from causes_kit import STEADY, TEMPLATES, Chat, Start

from engine_fixture import small_model
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.request import Parameters
from kvchat.store import Store
from tiny_models import tiny_models


@pytest.fixture(scope="package")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny_models(
        tmp_path_factory.mktemp("models"), small_model(), ("dense", "forgetful", "sliding", "hybrid"), TEMPLATES
    )


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts kvchat on one folder for a server: `start(url, parameters=..., window=8192, detour=False)`."""
    running: list[Chat] = []

    def start(url: str, parameters: Parameters = STEADY, window: int = 0, **cache: bool) -> Chat:
        settings = changed(Settings(), "server.base_url", url)
        settings = changed(settings, "server.context_size", window)
        settings = replace(settings, parameters=parameters, cache=replace(settings.cache, **cache))  # type: ignore[arg-type]
        running.append(Chat(ChatService(Store.open(tmp_path / "data"), settings)))
        return running[-1]

    yield start
    for chat in running:
        await chat.close()
