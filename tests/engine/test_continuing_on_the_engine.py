"""Continuing a cut answer on the real server: what it evaluates, that it is the text of an uncut answer, what was told
before, and that a thought goes on inside itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine_fixture import running_server, small_model
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.figures.accounting import NOISE
from kvchat.figures.cause import Cause
from kvchat.prompt.message import Node, State
from kvchat.prompt.request import Parameters
from kvchat.store import Store
from tiny_models import WINDOW, tiny_models
from tiny_server import tiny_server

pytestmark = pytest.mark.engine

SLIDING = Shape(slots=1, ram_bytes=8192 << 20, rewind=Rewind.WINDOW, batch=64, micro_batch=64, window=WINDOW)
STORY = "Tell me a story about an old sailor and the sea."


@asynccontextmanager
async def talking(url: str, folder: Path) -> AsyncIterator[ChatService]:
    now = datetime(2026, 11, 21, 9, 16, tzinfo=UTC)  # two questions with the same stamp are the same prompt
    service = ChatService(Store.open(folder), changed(Settings(), "server.base_url", url), clock=lambda: now)
    await service.servers.connect()
    try:
        yield service
    finally:
        await service.aclose()


def limit(tokens: int) -> Parameters:
    return Parameters(temperature=0.0, max_tokens=tokens)


async def ended(service: ChatService, conversation: OpenConversation) -> Node:
    await service.conversations.wait(conversation.id)
    cache = service.servers.link(conversation.id).cache
    assert cache is not None
    await cache.settled()
    return conversation.path()[-1]


async def say(service: ChatService, conversation: OpenConversation, text: str, tokens: int) -> Node:
    await service.turns.send(conversation.id, Question(text), parameters=limit(tokens))
    return await ended(service, conversation)


async def go_on(service: ChatService, conversation: OpenConversation, tokens: int, node: Node | None = None) -> Node:
    at = node or conversation.path()[-1]
    await service.turns.go_on(conversation.id, at.id, limit(tokens))
    return await ended(service, conversation)


def is_perfect(answer: Node) -> bool:
    """Whether nothing was evaluated but the one token that llama.cpp never decodes, as was predicted."""
    figures = answer.figures
    assert figures is not None
    return (figures.evaluated_tokens, figures.new_tokens, figures.wasted_tokens) == (1, 0, 1) and (
        figures.predicted_cached == figures.cached_tokens
    )


@pytest.mark.parametrize("slots", [1, 2])
async def test_one_token_is_evaluated_and_the_text_is_that_of_an_uncut_answer(slots: int, tmp_path: Path) -> None:
    with running_server(slots=slots) as server:
        async with talking(server.base_url, tmp_path) as service:
            first = await service.new_conversations.create()
            await say(service, first, STORY, 4)  # prefills the question for both of the others
            whole = await service.new_conversations.create(reuse=False)
            uncut = await say(service, whole, STORY, 60)
            conversation = await service.new_conversations.create(reuse=False)
            old = await say(service, conversation, STORY, 20)
            assert old.state is State.LENGTH
            price = await service.prices.exact(conversation.id, "continue", old.id)
            assert price.tokens == 1
            once = await go_on(service, conversation, 20)
            twice = await go_on(service, conversation, 20)
            assert twice.text == uncut.text
            assert once.text.startswith(old.text) and twice.text.startswith(once.text)
            assert is_perfect(once) and is_perfect(twice)
            assert (once.figures.begun_tokens, twice.figures.begun_tokens) == (20, 40)  # type: ignore[union-attr]
            assert conversation.tree[old.id] == old
            after = await say(service, conversation, "And then?", 8)
            assert after.figures is not None
            assert (after.figures.wasted_tokens or 0) <= 1
            assert after.figures.predicted_cached == after.figures.cached_tokens


@pytest.mark.parametrize("slots", [1, 2])
async def test_after_esc_and_after_another_conversation_it_goes_on_from_the_cache(slots: int, tmp_path: Path) -> None:
    with running_server(slots=slots) as server:
        async with talking(server.base_url, tmp_path) as service:
            conversation = await service.new_conversations.create()
            came = asyncio.Event()
            service.events.subscribe(
                lambda _: came.set() if conversation.live and len(conversation.live.text) > 40 else None
            )
            await service.turns.send(conversation.id, Question(STORY), parameters=limit(400))
            await came.wait()
            await service.turns.stop(conversation.id)
            stopped = await ended(service, conversation)
            assert stopped.state is State.CANCELLED
            on = await go_on(service, conversation, 20)
            assert is_perfect(on)
            assert on.text.startswith(stopped.text) and len(on.text) > len(stopped.text)
            other = await service.new_conversations.create(reuse=False)
            await say(service, other, "List ten animals of the forest.", 20)
            price = await service.prices.exact(conversation.id, "continue", on.id)
            figures = (await go_on(service, conversation, 20)).figures
            assert figures is not None and figures.new_tokens == 0
            assert price.tokens is not None and figures.evaluated_tokens is not None
            assert figures.evaluated_tokens <= price.tokens + NOISE, "it was told before"
            assert figures.evaluated_tokens <= 1 + NOISE or figures.cause == Cause.SLOT_TAKEN.value


async def test_a_model_that_cannot_go_back_reads_a_part_again_and_that_was_told(tmp_path: Path) -> None:
    model = tiny_models(tmp_path, small_model(), ("sliding",))["sliding"]
    with tiny_server(model, n_parallel=1, n_ctx=4096, n_batch=64, n_ubatch=64) as url:
        await _reads_again(url, tmp_path / "data")


async def _reads_again(url: str, folder: Path) -> None:
    async with talking(url, folder) as service:
        service.servers.link().connector.cache_shape = lambda: SLIDING  # type: ignore[method-assign]
        regular = await same_words(service)
        conversation = await service.new_conversations.create()
        await service.turns.send(conversation.id, Question("one"), parameters=regular)
        old = await ended(service, conversation)
        before = await service.prices.exact(conversation.id, "continue", old.id)
        await service.turns.go_on(conversation.id, old.id, regular)
        figures = (await ended(service, conversation)).figures
        assert figures is not None and figures.prompt_tokens is not None
        assert figures.prompt_tokens < WINDOW, "below its window it goes back to a checkpoint"
        assert before.tokens == figures.evaluated_tokens == figures.wasted_tokens
        assert NOISE < (figures.evaluated_tokens or 0) < figures.prompt_tokens // 2
        assert figures.cause == Cause.CHECKPOINT.value


async def same_words(service: ChatService) -> Parameters:
    """Parameters with which every answer is made of the same word, so that its text is read in the same tokens."""
    cache = await service.tracker.cache_of(await service.servers.link().connector.ready())
    assert cache is not None
    (word,) = list(await cache.access.tokens_of(" the"))
    return Parameters(temperature=0.0, max_tokens=20, extra={"logit_bias": [[word, 100]]})


async def test_a_thought_goes_on_inside_itself(tmp_path: Path) -> None:
    model = tiny_models(tmp_path, small_model(), ("forgetful",))["forgetful"]
    with tiny_server(model, n_parallel=1, n_ctx=4096) as url:
        await _thinks_on(url, tmp_path / "data")


async def _thinks_on(url: str, folder: Path) -> None:
    async with talking(url, folder) as service:
        conversation = await service.new_conversations.create()
        thinks = await same_words(service)
        await service.turns.send(conversation.id, Question("Why?"), parameters=thinks)
        old = await ended(service, conversation)
        assert (old.text, old.is_cut) == ("", True), old
        await service.turns.go_on(conversation.id, old.id, thinks)
        new = await ended(service, conversation)
        assert new.message.reasoning.split() == ["the"] * 40
        assert new.text == ""
        assert new.figures is not None
        assert (new.figures.wasted_tokens or 0) <= NOISE, new.figures
