"""Kept states with the built-in engine: always warm, whatever was done since, and within their bound on the disk."""

from __future__ import annotations

import math
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
from kvchat.reports.kept import Keep
from kvchat.store import Store
from tiny_models import tiny_models

pytestmark = pytest.mark.engine

FULL = bool(os.environ.get("KVCHAT_FULL"))
SWITCHES, RESTARTS, CONVERSATIONS = (200, 2, 20) if FULL else (24, 1, 6)
MARKED = 3
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
    for name, value in {
        "engine.model": os.fspath(model),
        "engine.threads": 1,
        "engine.context_size": 8192,
        "memory.enabled": False,
        "cache.kept_gb": 1,
    }.items():
        settings = changed(settings, name, value)

    async def begin() -> Play:
        service = ChatService(Store.open(tmp_path / "data"), settings, snapshots=tmp_path / "snapshots")
        service.warm_up.enabled = False
        await service.servers.connect()
        play = Play(service)
        await service.tracker.cache_of(await service.servers.link().connector.ready())
        (word,) = list(await play.cache.access.tokens_of(" the"))
        service.core.settings = replace(
            settings, parameters=Parameters(temperature=0.0, max_tokens=12, extra={"logit_bias": [[word, 100]]})
        )
        return play

    return begin


def on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.bin"))


@pytest.mark.slow
@pytest.mark.timeout(3600 if FULL else 900)
@pytest.mark.parametrize("model", ["real", "sliding", "hybrid"], indirect=True)
async def test_kept_conversations_begin_with_what_is_new_after_switches_and_restarts(
    begin: Callable[..., object], tmp_path: Path, request
) -> None:
    chance = random.Random(20)
    play = await begin()
    try:
        ids = [
            (await play.service.new_conversations.create(text(chance, [120]), reuse=False)).id
            for _ in range(CONVERSATIONS)
        ]
        kept = ids[1 : 1 + MARKED]
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
            assert len(room.states) == MARKED and room.size <= room.most
        await play.service.kept.settled()
        room = await play.service.kept.room()
        assert all(state.complete for state in room.states), room
        print(
            f"\n{request.node.name}: {len(beyond)} turns of kept ones, most beyond new {max(beyond)}; "
            f"{len(others)} of others, {sum(others)} beyond; kept {room.size} bytes, most on disk {largest}, "
            f"exact {play.cache.simulated.exact}/{play.cache.simulated.predictions}"
        )
        assert max(beyond) <= NOISE, beyond
        assert {file.stat().st_mode & 0o777 for file in (tmp_path / "snapshots").iterdir()} == {0o600}
    finally:
        await play.service.aclose()


async def said(play: Play, id: str, *texts: str) -> list[int]:
    """Ask these; the tokens that each turn evaluated beyond what was new."""
    await play.service.conversations.open(id)
    found = [await play.say(id, one) for one in texts]
    return [(one.evaluated_tokens or 0) - (one.new_tokens or 0) for one in found]


LONG = " ".join(f"river {number}" for number in range(120))


@pytest.mark.parametrize("model", ["sliding", "hybrid"], indirect=True)
async def test_a_kept_answer_stays_while_the_conversation_goes_on_and_a_branch_begins_there(begin) -> None:
    play = await begin()
    try:
        id = (await play.service.new_conversations.create("Answer.", reuse=False)).id
        other = (await play.service.new_conversations.create("Do not answer.", reuse=False)).id
        await said(play, id, LONG)
        at = play.service.conversations.load(id).record.head
        await said(play, id, "and then?")
        await play.service.kept.keep(id, at)
        await play.service.kept.settled()
        (state,) = (await play.service.kept.room()).states
        assert state.kept.node == at and state.complete
        await said(play, id, "and after that?", "and then?")
        await said(play, other, LONG)
        assert (await play.service.kept.room()).states == (state,)
        fork = await play.service.branches.fork(id, at)
        play.service.conversations.looked_at = fork.id
        assert (await said(play, fork.id, "another way?"))[0] <= NOISE
    finally:
        await play.service.aclose()


@pytest.mark.parametrize("model", ["dense"], indirect=True)
async def test_it_is_kept_before_the_next_request_overwrites_it_and_gone_when_it_is_gone_for_good(
    begin, tmp_path: Path, monkeypatch
) -> None:
    play = await begin()
    service = play.service
    try:
        id = (await service.new_conversations.create("Answer.", reuse=False)).id
        other = (await service.new_conversations.create("Do not answer.", reuse=False)).id
        await said(play, id, LONG)
        await service.kept.keep(id)
        await service.kept.settled()
        service.kept._follow = lambda *_, **__: None  # nothing is saved in spare time
        await said(play, id, "and then?")
        assert not (await service.kept.room()).states[0].complete
        await said(play, other, LONG)
        (state,) = (await service.kept.room()).states
        assert state.complete and state.size == on_disk(tmp_path / "snapshots")
        assert (await said(play, id, "and after that?"))[0] <= NOISE
        await service.conversations.delete(id)
        await service.housekeeping.run()
        assert (await service.kept.room()).states and on_disk(tmp_path / "snapshots")
        monkeypatch.setattr("kvchat.chat.housekeeping.TRASH_DAYS", -1)
        monkeypatch.setattr(service.housekeeping, "_found_old", math.inf)
        await service.housekeeping.run()
        assert not (await service.kept.room()).states and service.servers.links.snapshots.known(id) == []
    finally:
        await service.aclose()


@pytest.mark.parametrize("model", ["dense"], indirect=True)
async def test_what_was_kept_from_the_command_line_is_saved_when_it_was_warmed_up(begin, tmp_path: Path) -> None:
    play = await begin()
    try:
        id = (await play.service.new_conversations.create("Answer.", reuse=False)).id
        other = (await play.service.new_conversations.create("Do not answer.", reuse=False)).id
        await said(play, id, LONG)
        await said(play, other, LONG)
        elsewhere = Store.open(tmp_path / "data")
        elsewhere.kept.put(Keep(id, "", 1.0))
        elsewhere.close()
        play.service.refresh()
        play.service.warm_up.enabled = True
        await play.service.conversations.open(id)
        await play.service.kept.settled()
        assert (await play.service.kept.room()).states[0].complete
    finally:
        await play.service.aclose()
