"""Several answers from one prefill on the real server: what it evaluates, what was predicted, what the slots hold
afterwards, and what the next turn costs after each choice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine_fixture import small_model
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.chat.turns.alternatives import AlternativesRequest
from kvchat.config import Settings, changed
from kvchat.figures.accounting import NOISE
from kvchat.figures.cause import Cause
from kvchat.prompt.message import Node, State
from kvchat.prompt.request import Parameters
from kvchat.store import Store
from tiny_models import tiny_models
from tiny_server import tiny_server

pytestmark = pytest.mark.engine

STORY = "Tell me a story about an old sailor and the sea. " * 8


@asynccontextmanager
async def talking(url: str, folder: Path) -> AsyncIterator[ChatService]:
    now = datetime(2026, 11, 21, 9, 16, tzinfo=UTC)
    service = ChatService(Store.open(folder), changed(Settings(), "server.base_url", url), clock=lambda: now)
    await service.servers.connect()
    try:
        yield service
    finally:
        await service.aclose()


async def limit(service: ChatService, tokens: int) -> Parameters:
    """Answers of so many tokens that differ from their first words: words of one token each, drawn at random, whose
    text is read in the same tokens."""
    cache = await service.tracker.cache_of(await service.servers.link().connector.ready())
    assert cache is not None
    words = list(await cache.access.tokens_of(" sea wind boat sail wave rain salt fish rope star"))
    assert len(words) == 10
    return Parameters(
        temperature=9.0,
        min_p=0.0,
        top_k=0,
        top_p=1.0,
        max_tokens=tokens,
        extra={"logit_bias": [[word, 500] for word in words]},
    )


async def ended(service: ChatService, conversation: OpenConversation) -> Node:
    await service.conversations.wait(conversation.id)
    cache = service.servers.link(conversation.id).cache
    assert cache is not None
    await cache.settled()
    return conversation.path()[-1]


async def say(service: ChatService, conversation: OpenConversation, text: str, tokens: int = 12) -> Node:
    await service.turns.send(conversation.id, Question(text), parameters=await limit(service, tokens))
    return await ended(service, conversation)


async def several(service: ChatService, conversation: OpenConversation, count: int, tokens: int = 24) -> list[Node]:
    parameters = await limit(service, tokens)
    await service.turns.ask_for(conversation.id, AlternativesRequest(count), Question(STORY), parameters=parameters)
    await ended(service, conversation)
    return service.turns.choices(conversation.id)


@pytest.mark.parametrize(("slots", "unified", "ram"), [(2, False, 8192), (4, False, 0), (4, True, 8192)])
async def test_one_prefill_and_the_price_of_each_choice(slots: int, unified: bool, ram: int, tmp_path: Path) -> None:
    with tiny_server(small_model(), n_parallel=slots, kv_unified=unified, n_ctx=16384, cache_ram_mib=ram) as url:
        async with talking(url, tmp_path) as service:
            conversation = await service.new_conversations.create()
            await say(service, conversation, "Good morning, what do sailors do?")
            nodes = await several(service, conversation, slots)
            figures = [node.figures for node in nodes]
            assert len({node.text for node in nodes}) == slots
            assert {(one.evaluated_tokens, one.wasted_tokens) for one in figures if one} == {
                (figures[0].evaluated_tokens, figures[0].wasted_tokens)
            }  # type: ignore[union-attr]
            assert (figures[0].wasted_tokens or 0) <= 1  # type: ignore[union-attr]
            assert figures[0].predicted_cached in (None, figures[0].cached_tokens)  # type: ignore[union-attr]
            free = await service.prices.exact(conversation.id, "alternatives", nodes[0].id)
            told = await service.prices.exact(conversation.id, "alternatives", nodes[1].id)
            assert (free.tokens or 0) <= 1
            assert told.tokens is not None and told.tokens >= 20
            await service.turns.choose(conversation.id, nodes[0].id)
            after = await say(service, conversation, "And then?")
            assert after.figures is not None and (after.figures.wasted_tokens or 0) <= 1
            assert after.figures.predicted_cached in (None, after.figures.cached_tokens)

            nodes = await several(service, conversation, slots)
            told = await service.prices.exact(conversation.id, "alternatives", nodes[1].id)
            await service.turns.choose(conversation.id, nodes[1].id)
            after = await say(service, conversation, "And then?")
            assert after.figures is not None and told.tokens is not None
            assert abs((after.figures.wasted_tokens or 0) - told.tokens) <= 1
            assert after.figures.predicted_cached in (None, after.figures.cached_tokens)
            assert after.figures.cause == Cause.OTHER_ANSWER
            again = await say(service, conversation, "Go on.")
            assert again.figures is not None and (again.figures.wasted_tokens or 0) <= 1


@pytest.mark.parametrize("ram", [0, 8192])
async def test_a_conversation_whose_slot_was_taken_is_told_before_and_its_cause_is_right(
    ram: int, tmp_path: Path
) -> None:
    with tiny_server(small_model(), n_parallel=2, kv_unified=False, n_ctx=8192, cache_ram_mib=ram) as url:
        async with talking(url, tmp_path) as service:
            conversation = await service.new_conversations.create("You are a sailor. " * 20)
            await say(service, conversation, "Good morning, what do sailors do?")
            other = await service.new_conversations.create("A clerk of the harbour writes lists. " * 30, reuse=False)
            lost = await say(service, other, "List ten animals of the forest, one a line.", 24)
            price = await service.prices.of_several(conversation.id, AlternativesRequest(2), Question(STORY))
            assert [title for title, _ in price.losing] == [other.record.title]
            assert lost.figures is not None and lost.figures.context_used is not None
            assert price.losing[0][1] > lost.figures.context_used // 2
            await several(service, conversation, 2)
            await service.turns.choose(conversation.id)
            after = await say(service, other, "And ten more.")
            assert after.figures is not None
            assert (after.figures.wasted_tokens or 0) > 100
            assert after.figures.cause == Cause.SLOT_TAKEN
            assert after.figures.predicted_cached in (None, after.figures.cached_tokens)


async def test_after_esc_the_next_turn_wastes_what_was_told(tmp_path: Path) -> None:
    with tiny_server(small_model(), n_parallel=2, kv_unified=False, n_ctx=8192) as url:
        async with talking(url, tmp_path) as service:
            conversation = await service.new_conversations.create()
            await say(service, conversation, "Good morning, what do sailors do?")
            service.events.subscribe(lambda _: came())
            stopping = []

            def came() -> None:
                if (
                    not stopping
                    and all(len(live.text) > 40 for live in conversation.alternatives)
                    and (conversation.alternatives)
                ):
                    stopping.append(service.core.in_background(service.turns.stop(conversation.id)))

            nodes = await several(service, conversation, 2, 400)
            assert {node.state for node in nodes} == {State.CANCELLED}
            told = await service.prices.exact(conversation.id, "alternatives", nodes[1].id)
            await service.turns.choose(conversation.id, nodes[1].id)
            after = await say(service, conversation, "And then?")
            assert after.figures is not None and told.tokens is not None
            assert abs((after.figures.wasted_tokens or 0) - told.tokens) <= 2


async def test_with_one_slot_they_come_one_after_the_other_from_one_prefill(tmp_path: Path) -> None:
    with tiny_server(small_model(), n_parallel=1, n_ctx=8192) as url:
        async with talking(url, tmp_path) as service:
            conversation = await service.new_conversations.create()
            first, second = await several(service, conversation, 2)
            assert first.figures is not None and second.figures is not None
            assert (first.figures.alternative, second.figures.alternative) == (None, None)
            assert second.figures.evaluated_tokens == 1
            told = await service.prices.exact(conversation.id, "alternatives", first.id)
            await service.turns.choose(conversation.id, first.id)
            after = await say(service, conversation, "And then?")
            assert after.figures is not None and told.tokens is not None
            assert abs((after.figures.wasted_tokens or 0) - told.tokens) <= 1
            assert told.tokens < 8 or after.figures.cause == Cause.SLOT_TAKEN


async def test_a_sliding_window_in_one_cache_for_all_is_asked_one_after_the_other(tmp_path: Path) -> None:
    """Together they have no room there: both break off, and the slot is emptied."""
    model = tiny_models(tmp_path, small_model(), ("sliding",))["sliding"]
    with tiny_server(model, n_parallel=4, kv_unified=True, n_ctx=8192) as url:
        async with talking(url, tmp_path / "data") as service:
            conversation = await service.new_conversations.create("You are a sailor. " * 200)
            await say(service, conversation, "Good morning, what do sailors do?")
            await say(service, conversation, "And at night?")
            nodes = await several(service, conversation, 2)
            assert [node.figures and node.figures.predicted_tokens for node in nodes] == [24, 24]
            await service.turns.choose(conversation.id, nodes[1].id)
            after = await say(service, conversation, "And then?")
            assert after.figures is not None and (after.figures.wasted_tokens or 0) <= NOISE
