"""The ways to send a turn, on real servers: what is chosen reads as little as was said, and was predicted."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from service_play import Play, playing, serving, shape_of

from engine_fixture import small_model
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.cache.llamacpp.planner import Way
from kvchat.cache.tokens import Tokens
from kvchat.config import changed
from kvchat.figures.accounting import NOISE
from tiny_models import tiny_models

pytestmark = pytest.mark.engine
LINE = "The lamp turned over the sea while the keeper wrote the log of the night. "
Start = Callable[[Shape], AbstractAsyncContextManager[Play]]


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense",))["dense"]


@pytest.fixture
def start(dense: Path, tmp_path: Path) -> Start:
    @asynccontextmanager
    async def start(shape: Shape) -> AsyncIterator[Play]:
        async with serving(dense, shape, 6144 * shape.slots) as url, playing(url, tmp_path / "data", shape) as play:
            play.service.core.settings = dataclasses.replace(play.service.settings, time_stamp=False)
            yield play

    return start


async def begin(play: Play, system: str, *questions: str) -> str:
    conversation = await play.service.new_conversations.create(system, reuse=False)
    for question in questions:
        await play.say(conversation.id, question)
    return conversation.id


@pytest.mark.parametrize("shape", [shape_of("dense"), shape_of("dense", slots=4, unified=True)])
async def test_back_from_a_peek_the_detour_saves_reading_the_long_chat_again(start: Start, shape: Shape) -> None:
    async with start(shape) as play:
        long = await begin(play, LINE * 20, LINE * 100, LINE * 60)
        peek = await play.service.new_conversations.create(LINE * 20, reuse=False)
        await play.say(peek.id, "What is short?")
        figures = await play.say(long, "And then?")
        plan = play.cache.plan
        assert plan is not None and plan.chosen.way is Way.DETOUR
        as_is = next(option for option in plan.options if option.way is Way.AS_IS)
        assert as_is.tokens > 2500
        assert figures.cached_tokens == figures.predicted_cached
        assert figures.evaluated_tokens is not None and figures.evaluated_tokens <= 24
        # the other way round: without the detour
        await play.say(peek.id, "What is shorter?")
        play.service.core.settings = changed(play.service.settings, "cache.detour", False)
        figures = await play.say(long, "And then?")
        assert figures.cached_tokens == figures.predicted_cached
        assert figures.evaluated_tokens is not None and figures.evaluated_tokens > 2500


async def test_where_nothing_is_parked_it_goes_as_is(start: Start) -> None:
    async with start(shape_of("dense", ram=0)) as play:
        long = await begin(play, LINE * 20, LINE * 60)
        await begin(play, LINE * 20, "What is short?")
        figures = await play.say(long, "And then?")
        assert play.cache.plan is not None and play.cache.plan.chosen.way is Way.AS_IS
        assert figures.cached_tokens == figures.predicted_cached


async def test_a_pin_keeps_the_longer_tail_of_another_chat(start: Start) -> None:
    """Both slots begin with the same system prompt; the first, with the long chat, would be taken."""
    async with start(shape_of("dense", slots=2, ram=0)) as play:
        long = await in_slot(play, 0, LINE * 15)
        await in_slot(play, 1, "How short?")
        await play.say(long, "And then?")
        third = await in_slot(play, None)
        as_is = play.cache.simulated.best.predict(await prefix_of(play, third))
        assert as_is.slot == 0 and as_is.replaces is not None and as_is.replaces.owner == long
        figures = await play.say(third, "Why?")
        plan = play.cache.plan
        assert plan is not None and (plan.chosen.way, plan.slot) == (Way.PIN, 1)
        assert figures.cached_tokens == figures.predicted_cached
        figures = await play.say(long, "And now?")
        assert figures.cached_tokens == figures.predicted_cached
        assert figures.evaluated_tokens is not None and figures.evaluated_tokens <= 24, "its tail was kept"


async def test_another_answer_goes_where_its_question_is(start: Start) -> None:
    """Both slots begin with the same system prompt, which is all that stands before the question."""
    async with start(shape_of("dense", slots=2, ram=0)) as play:
        first, second = await in_slot(play, 0, LINE * 12), await in_slot(play, 1, "Who?")
        await play.service.turns.regenerate(first, play.service.conversations.get(first).path()[-1].id)  # type: ignore[union-attr]
        figures = await play.answered(first)
        assert (figures.evaluated_tokens, figures.wasted_tokens, figures.new_tokens) == (1, 1, 0)
        assert (await play.say(second, "And?")).wasted_tokens == 1, "its slot was left alone"


async def test_two_chats_that_do_not_fit_side_by_side_cost_nothing_at_a_switch(dense: Path, tmp_path: Path) -> None:
    """llama-server's default, four slots with one cache for all: it restores before it empties the idle slots."""
    shape = shape_of("dense", slots=4, unified=True, batch=256)
    async with serving(dense, shape, 4096) as url, playing(url, tmp_path / "data") as play:
        chats = [await begin(play, f"{name} keeps the log. ", LINE * 125, "Why?") for name in ("Anna", "Bert")]
        used = [play.service.conversations.get(id).record.context_used or 0 for id in chats]  # type: ignore[union-attr]
        assert all(2100 < tokens < 2600 for tokens in used), used
        for switch in range(8):
            id = chats[switch % 2]
            said = play.service.tracker.warmth(id)
            figures = await play.say(id, "And then?")
            assert figures.cached_tokens == figures.predicted_cached
            assert figures.wasted_tokens is not None and figures.wasted_tokens <= 1, figures
            assert said.to_prefill is not None and said.to_prefill <= NOISE, said


async def prefix_of(play: Play, id: str) -> Tokens:
    conversation = await play.service.conversations.open(id)
    prefix = await play.cache.prompts.prefix(
        play.service.core.branch_requests.after(conversation.record, conversation.path())
    )
    assert prefix is not None
    return prefix


async def in_slot(play: Play, slot: int | None, *questions: str) -> str:
    """A conversation whose system prompt, the same for all, was read into this slot."""
    conversation = await play.service.new_conversations.create(LINE * 20, reuse=False)
    prefix, cache = await prefix_of(play, conversation.id), play.cache
    if slot is not None:
        cache.side_request("side", conversation.id, prefix, slot)
        await cache.access.prefill(prefix, lambda _: None, slot)
        cache.simulated.ended(Tokens.unknown(1))
    for question in questions:
        await play.say(conversation.id, question)
        held = cache.simulated.best.slots[slot or 0]
        assert held is not None and held.owner == conversation.id
    return conversation.id
