"""Saving and proving between turns, on the built-in engine: what the next turn reuses is known to the token, and nobody
is taken for another client."""

from __future__ import annotations

import dataclasses
import os
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from service_play import Play, shape_of, text

from engine_fixture import small_model
from kvchat.backends.engine.options import EngineOptions
from kvchat.chat.cache.states import state_saver
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.figures.accounting import NOISE
from kvchat.prompt.request import Parameters
from kvchat.store import Store
from tiny_models import tiny_models

pytestmark = pytest.mark.engine
TURNS = 12


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("kind", ["dense", "sliding", "hybrid"])
async def test_a_save_between_turns_costs_the_next_one_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, slots: int
) -> None:
    monkeypatch.setattr(state_saver, "IDLE_S", 0.0)
    monkeypatch.setattr(state_saver, "WORTH_SAVING", 1)
    real = EngineOptions.shape  # the header of a tiny model does not say what it is
    monkeypatch.setattr(
        EngineOptions,
        "shape",
        lambda options, header: replace(
            real(options, header), rewind=shape_of(kind).rewind, window=shape_of(kind).window
        ),
    )
    chance, settings = random.Random(kind), Settings()
    model = tiny_models(tmp_path, small_model(), (kind,))[kind]
    for name, value in {
        "engine.model": os.fspath(model),
        "engine.threads": 1,
        "engine.slots": slots,
        "engine.context_size": 4096,
    }.items():
        settings = changed(settings, name, value)
    settings = dataclasses.replace(settings, parameters=Parameters(temperature=0.0, max_tokens=8))
    service = ChatService(Store.open(tmp_path / "data"), settings, snapshots=tmp_path / "snapshots")
    service.warm_up.enabled = False
    try:
        await service.servers.connect()
        play = Play(service)
        made = [await service.new_conversations.create(text(chance, [60]), reuse=False) for _ in range(2)]
        wrong, saved = [], 0
        for turn in range(TURNS):
            here = made[turn // 2 % 2].id
            figures = await play.say(here, text(chance, [20]))
            if turn and abs((figures.predicted_cached or 0) - (figures.cached_tokens or 0)) > NOISE:
                wrong.append((turn, figures.predicted_cached, figures.cached_tokens, figures.cause))
            assert figures.cause is None or "foreign" not in str(figures.cause), figures
            await service.saver.ended()
            saved += bool(service.servers.links.snapshots.known(here))
        assert not wrong, wrong
        assert saved >= TURNS // 2
    finally:
        await service.aclose()
