"""The same question to several models of one router, each a real llama-server: what each evaluates, what choosing one
of them costs, and what the next turn does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from engine_fixture import small_model
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.chat.turns.alternatives import AlternativesRequest, parse_alternatives
from kvchat.config import Settings, changed
from kvchat.figures.cause import Cause
from kvchat.prompt.message import Node
from kvchat.prompt.request import Parameters
from kvchat.reports.warmth import Heat
from kvchat.store import Store
from standins.llamacpp_router import RouterStandIn
from standins.llamaswap import LlamaSwapStandIn, RealModel
from tiny_models import tiny_models
from tiny_server import tiny_server
from toyserver import ToyServer

pytestmark = pytest.mark.engine

ONE, OTHER = "smol", "tiny"
SHORT = Parameters(temperature=0.0, max_tokens=16)
SYSTEM = "You are a sailor who has seen every sea. " * 12


@asynccontextmanager
async def router(kind: str, folder: Path) -> AsyncIterator[ToyServer]:
    """One of two kinds in front of two real servers, both of which stay loaded."""
    tiny = tiny_models(folder, small_model(), ("dense",))["dense"]
    with ExitStack() as stack:
        models = [
            RealModel(name, urlsplit(stack.enter_context(tiny_server(path, n_parallel=1, n_ctx=4096))).port or 0)
            for name, path in ((ONE, small_model()), (OTHER, tiny))
        ]
        async with (
            RouterStandIn(*models, loaded=(ONE, OTHER))
            if kind == "router"
            else (LlamaSwapStandIn(*models, ready=ONE)) as server
        ):
            yield server


@asynccontextmanager
async def talking(url: str, folder: Path) -> AsyncIterator[tuple[ChatService, OpenConversation]]:
    now = datetime(2026, 11, 21, 9, 16, tzinfo=UTC)
    service = ChatService(Store.open(folder), changed(Settings(), "server.base_url", url), clock=lambda: now)
    await service.servers.connect()
    try:
        conversation = await service.new_conversations.create(SYSTEM)
        await service.chooser.use(conversation.id, url, ONE)
        yield service, conversation
    finally:
        await service.aclose()


async def ended(service: ChatService, conversation: OpenConversation) -> Node:
    await service.conversations.wait(conversation.id)
    if cache := service.servers.link(conversation.id).cache:
        await cache.settled()
    return conversation.path()[-1]


async def say(service: ChatService, conversation: OpenConversation, text: str) -> Node:
    await service.turns.send(conversation.id, Question(text), parameters=SHORT)
    return await ended(service, conversation)


@pytest.mark.parametrize(
    ("kind", "order", "chosen"),
    [
        ("router", (ONE, OTHER), ONE),
        ("router", (OTHER, ONE), OTHER),
        ("swap", (ONE, OTHER), OTHER),
        ("swap", (OTHER, ONE), ONE),
    ],
)
async def test_each_prefills_once_and_the_choice_costs_what_was_told(
    kind: str, order: tuple[str, str], chosen: str, tmp_path: Path
) -> None:
    async with router(kind, tmp_path) as server, talking(server.url, tmp_path / "data") as (service, conversation):
        await say(service, conversation, "Good morning.")
        before = await say(service, conversation, "What do sailors do?")
        assert before.figures is not None and (before.figures.wasted_tokens or 0) <= 1
        wanted, rest = parse_alternatives(" ".join(order), service.servers.link(conversation.id).info)
        assert wanted == AlternativesRequest(2, order) and not rest
        price = await service.prices.of_several(conversation.id, wanted, Question("And at night?"))
        await service.turns.ask_for(conversation.id, wanted, Question("And at night?"), parameters=SHORT)
        await service.conversations.wait(conversation.id)
        answers = dict(zip(order, service.turns.choices(conversation.id), strict=True))
        own, other = answers[ONE].figures, answers[OTHER].figures
        assert own is not None and other is not None and price.tokens is not None
        assert (own.wasted_tokens or 0) <= 1 and own.predicted_cached == own.cached_tokens
        assert (other.cached_tokens, other.cause) == (0, Cause.OTHER_MODEL)
        assert other.predicted_cached is None, "its cache is not the one that is followed"
        assert abs(price.tokens - (own.evaluated_tokens or 0) - (other.evaluated_tokens or 0)) <= 1
        told = (await service.prices.exact(conversation.id, "alternatives", answers[chosen].id)).tokens
        await service.turns.choose(conversation.id, answers[chosen].id)
        after = await say(service, conversation, "And then?")
        assert after.figures is not None and after.figures.wasted_tokens is not None
        if told is None:
            assert kind == "swap" and order[-1] == OTHER, "its own model may be gone: nobody tells without loading it"
        else:
            assert abs(after.figures.wasted_tokens - told) <= 1, (after.figures, told)
        assert after.figures.predicted_cached == after.figures.cached_tokens
        again = await say(service, conversation, "Go on.")
        assert again.figures is not None and (again.figures.wasted_tokens or 0) <= 1


async def test_another_model_for_the_conversation_is_not_taken_for_the_one_that_is_followed(tmp_path: Path) -> None:
    async with router("router", tmp_path) as server, talking(server.url, tmp_path / "data") as (service, conversation):
        await say(service, conversation, "Good morning.")
        await service.chooser.use(conversation.id, server.url, OTHER)
        moved = await say(service, conversation, "What do sailors do?")
        assert moved.figures is not None and moved.figures.cause == Cause.OTHER_MODEL
        assert moved.figures.predicted_cached is None
        await service.warm_up.warm(conversation.id)
        assert service.tracker.warmth(conversation.id).heat is Heat.UNKNOWN
        await service.chooser.use(conversation.id, server.url, ONE)
        back = await say(service, conversation, "And at night?")
        assert back.figures is not None
        assert back.figures.predicted_cached == back.figures.cached_tokens, "nothing was prefilled meanwhile"
