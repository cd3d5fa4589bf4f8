"""Kept states with the built-in engine: always warm, whatever was done since, and within their bound on the disk."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from service_play import Play, text

from engine_fixture import small_model
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.request import Parameters
from kvchat.store import Store
from tiny_models import tiny_models

pytestmark = pytest.mark.engine

FULL = bool(os.environ.get("KVCHAT_FULL"))
SWITCHES, RESTARTS, CONVERSATIONS = (200, 2, 20) if FULL else (24, 1, 6)
KEPT = 3
NOISE = 8


@pytest.fixture
def model(request, tmp_path: Path) -> Path:
    kind = request.param
    return small_model() if kind == "real" else tiny_models(tmp_path, small_model(), (kind,))[kind]


@pytest.fixture
def begin(model: Path, tmp_path: Path, monkeypatch):
    """Begins a service with the built-in engine, 1 slot and no cache in the server's memory, as at a start of the
    app."""
    monkeypatch.setattr("kvchat.backends.engine.options.default_cache_ram", lambda: 0)
    settings = Settings()
    for name, value in {"engine.model": os.fspath(model), "engine.threads": 1, "engine.context_size": 8192,
                        "memory.enabled": False, "cache.kept_gb": 1}.items():
        settings = changed(settings, name, value)

    async def begin() -> Play:
        service = ChatService(Store.open(tmp_path / "data"), settings, snapshots=tmp_path / "snapshots")
        service.warm_up.enabled = False
        await service.servers.connect()
        play = Play(service)
        await service.tracker.cache_of(await service.servers.link().connector.ready())
        (word,) = list(await play.cache.access.tokens_of(" the"))
        service.ground.settings = replace(settings, parameters=Parameters(
            temperature=0.0, max_tokens=12, extra={"logit_bias": [[word, 100]]}))
        return play

    return begin


def on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.bin"))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["real", "sliding", "hybrid"], indirect=True)
async def test_kept_conversations_begin_with_what_is_new_after_switches_and_restarts(
        begin: Callable[..., object], tmp_path: Path, request) -> None:
    chance = random.Random(20)
    play = await begin()
    try:
        ids = [(await play.service.new_conversations.create(text(chance, [120]), reuse=False)).id
               for _ in range(CONVERSATIONS)]
        kept = ids[1:1 + KEPT]
        for id in ids:
            await play.service.conversations.open(id)
            await play.say(id, text(chance, [60, 200]))
            if id in kept:
                await play.service.kept.keep(id)
        beyond, others, largest = [], [], 0
        restarts = {SWITCHES * at // (RESTARTS + 1) for at in range(1, RESTARTS + 1)}
        here = ids[-1]
        for number in range(SWITCHES):
            if number in restarts:
                await play.service.aclose()
                play = await begin()
            if chance.random() < 0.5:  # the person looks at what was said, or goes on at once
                await play.service.kept.settled()
            here = chance.choice([id for id in ids if id != here] if chance.random() < 0.8 else [here])
            await play.service.conversations.open(here)
            figures = await play.say(here, text(chance, [5, 20, 60]))
            over = (figures.evaluated_tokens or 0) - (figures.new_tokens or 0)
            (beyond if here in kept else others).append(over)
            room = await play.service.kept.room()
            largest = max(largest, on_disk(tmp_path / "snapshots"))
            assert len(room.states) == KEPT and room.size <= room.most
        await play.service.kept.settled()
        room = await play.service.kept.room()
        assert all(state.complete for state in room.states), room
        print(f"\n{request.node.name}: {len(beyond)} turns of kept ones, most beyond new {max(beyond)}; "
              f"{len(others)} of others, {sum(others)} beyond; kept {room.size} bytes, most on disk {largest}, "
              f"exact {play.cache.exact}/{play.cache.predictions}")
        assert max(beyond) <= NOISE, beyond
        assert {file.stat().st_mode & 0o777 for file in (tmp_path / "snapshots").iterdir()} == {0o600}
    finally:
        await play.service.aclose()
