"""Conversations that begin alike, on real servers: those that come back get slots of their own, and it is told before.

`alike_walk.py` as a script compares more servers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from alike_walk import SHAPES, Script, asked
from service_play import Play, playing, serving, shape_of

from engine_fixture import small_model
from kvchat.cache.llamacpp.planner import Way
from kvchat.cache.llamacpp.slot_observer import Look
from kvchat.figures.accounting import NOISE
from kvchat.figures.cause import Cause
from tiny_models import tiny_models
from tries import tries

pytestmark = pytest.mark.engine
HEAD = "The lamp turned over the sea while the keeper wrote the log of the night. " * 20
ASKED = ", who keeps the log of the night while the rain falls on the old pier and its stones? " * 5
BARE = "dense, 4 slots, no host cache"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense", "hybrid", "sliding"))


async def alike(play: Play, count: int = 2) -> list[str]:
    return [(await play.service.new_conversations.create(HEAD, reuse=False)).id for _ in range(count)]


async def test_who_comes_back_gets_a_slot_and_the_price_says_so_before(models: dict[str, Path], tmp_path: Path) -> None:
    kind, shape = SHAPES[BARE]
    async with serving(models[kind], shape, 16384) as url, playing(url, tmp_path, shape) as play:
        talks, ways = await alike(play), []
        for turn in range(12):
            id = talks[turn % 2]
            price = await play.service.prices.exact(id, "open")
            figures, plan = await play.say(id, id + ASKED), play.cache.plan
            assert figures.predicted_cached == figures.cached_tokens
            if turn < 2:
                continue
            assert plan is not None and price.tokens == figures.wasted_tokens
            ways.append(plan.chosen.way)
            notable = (figures.wasted_tokens or 0) > NOISE
            assert figures.cause == (Cause.SLOT_TAKEN if notable else None), figures
        assert ways.count(Way.PIN) == 1
        assert all((figures.wasted_tokens or 0) <= NOISE for figures in play.turns[-6:])


async def test_no_slot_is_given_while_the_server_computes_for_somebody(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not say in time which of them are idle."""
    kind, shape = SHAPES[BARE]
    async with serving(models[kind], shape, 16384) as url, playing(url, tmp_path, shape) as play:
        talks = await alike(play)
        for id in talks * 2:
            await play.say(id, id + ASKED)
        counts = play.cache._counts

        async def late() -> None:
            return None

        monkeypatch.setattr(play.cache, "_counts", late)
        assert await play.cache.look() == Look(late=True)
        for id in talks * 2:
            await play.say(id, id + ASKED)
            assert play.cache.plan is not None and play.cache.plan.slot is None
        monkeypatch.setattr(play.cache, "_counts", counts)
        for id in talks * 2:
            await play.say(id, id + ASKED)
        assert all((figures.wasted_tokens or 0) <= NOISE for figures in play.turns[-2:])


async def test_two_kvchats_at_one_server_leave_each_other_their_slots(models: dict[str, Path], tmp_path: Path) -> None:
    """The other one counts as somebody who comes back."""
    kind, shape = SHAPES[BARE]
    async with (
        serving(models[kind], shape, 16384) as url,
        playing(url, tmp_path / "one", shape) as one,
        playing(url, tmp_path / "two", shape) as two,
    ):
        asked = [(play, id) for play in (one, two) for id in await alike(play)]
        for _ in range(7):
            for play, id in asked:
                await play.say(id, id + ASKED)
        for play in (one, two):
            assert all((figures.wasted_tokens or 0) <= NOISE for figures in play.turns[-4:]), play.turns


async def test_a_guessed_cache_gives_slots_too(models: dict[str, Path], tmp_path: Path) -> None:
    kind, shape = "dense", shape_of("dense", slots=2, ram=0, batch=512)
    async with serving(models[kind], shape, 16384) as url, playing(url, tmp_path) as play:
        talks = await alike(play)
        for turn in range(12):
            await play.say(talks[turn % 2], ASKED)
        assert all((figures.wasted_tokens or 0) <= NOISE for figures in play.turns[-4:])


@pytest.mark.parametrize("name", [BARE, "hybrid, 4 slots"])
async def test_half_of_the_waste_goes(models: dict[str, Path], tmp_path: Path, name: str) -> None:
    kind, shape = SHAPES[name]
    script = Script(requests=30, talks=2)
    before, counted = [
        await asked(models[kind], shape, tmp_path / str(rule), script, 1, rule=rule) for rule in (False, True)
    ]
    assert counted.wasted * 2 <= before.wasted and counted.evaluated < before.evaluated, (counted, before)
    assert not counted.wrong and not counted.untold


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SHAPES)[: tries("alike_servers", 1)])
async def test_nowhere_more_is_wasted(models: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Where no slot is a choice, none is pinned: what differs between two runs then is not the rule's. All servers, a
    minute or two each, with KVCHAT_TRIES="alike_servers=9"."""
    kind, shape = SHAPES[name]
    before, counted = [
        await asked(models[kind], shape, tmp_path / str(rule), Script(), 1, rule=rule) for rule in (False, True)
    ]
    assert (counted.pinned > 0) == shape.gives_own_slots
    if shape.gives_own_slots:
        assert counted.wasted * 2 <= before.wasted and counted.evaluated < before.evaluated, (counted, before)
    assert not counted.wrong
