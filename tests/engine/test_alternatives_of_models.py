"""The same question to several models of one router, each a real llama-server: what each evaluates, what choosing one
of them costs, and what the next turn does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from engine_fixture import small_model
from kvchat.chat.alternatives import Wanted, wanted_in
from kvchat.chat.live import OpenConversation
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.message import Node
from kvchat.prompt.request import Parameters
from kvchat.store import Store
from standins.llamacpp_router import RouterStandIn
from standins.llamaswap import LlamaSwapStandIn, RealModel
from tiny_models import tiny_models
from tiny_server import tiny_server
from toyserver import ToyServer

pytestmark = pytest.mark.engine

SYSTEM = "You are a sailor who has seen every sea. " * 12


@asynccontextmanager
async def router(kind: str, folder: Path) -> AsyncIterator[ToyServer]:
    """One of two kinds in front of two real servers, both of which stay loaded."""
    tiny = tiny_models(folder, small_model(), ("dense",))["dense"]
    with ExitStack() as stack:
        models = [RealModel(name, urlsplit(stack.enter_context(tiny_server(
            path, n_parallel=1, n_ctx=4096))).port or 0) for name, path in (("smol", small_model()), ("tiny", tiny))]
        async with RouterStandIn(*models, loaded=("smol", "tiny")) if kind == "router" else (
                LlamaSwapStandIn(*models, ready="smol")) as server:
            yield server


@asynccontextmanager
async def talking(url: str, folder: Path) -> AsyncIterator[tuple[ChatService, OpenConversation]]:
    now = datetime(2026, 11, 21, 9, 16, tzinfo=UTC)
    service = ChatService(Store.open(folder), changed(Settings(), "server.base_url", url), clock=lambda: now)
    await service.servers.connect()
    try:
        conversation = await service.new_conversations.create(SYSTEM)
        await service.chooser.use(conversation.id, url, "smol")
        yield service, conversation
    finally:
        await service.aclose()


async def ended(service: ChatService, conversation: OpenConversation) -> Node:
    await service.conversations.wait(conversation.id)
    if cache := service.servers.link(conversation.id).cache:
        await cache.settled()
    return conversation.path()[-1]


async def say(service: ChatService, conversation: OpenConversation, text: str) -> Node:
    await service.turns.send(conversation.id, Question(text), parameters=Parameters(temperature=0.0, max_tokens=16))
    return await ended(service, conversation)


@pytest.mark.parametrize("kind", ["router", "swap"])
@pytest.mark.parametrize("choice", [0, 1])
@pytest.mark.parametrize("own", ["first", "last", "none"])
async def test_next(kind: str, choice: int, own: str, tmp_path: Path) -> None:
    async with router(kind, tmp_path) as server, talking(server.url, tmp_path / "data") as (service, conversation):
        for text in ("Good morning.", "What do sailors do?"):
            node = await say(service, conversation, text)
            print(node.model, node.figures)
        wanted, rest = wanted_in("smol tiny" if own == "first" else "tiny smol", service.servers.link(conversation.id).info)
        assert wanted == Wanted(2, tuple("smol tiny".split() if own == "first" else "tiny smol".split())) and not rest
        price = await service.prices.of_several(conversation.id, wanted, Question("And at night?"))
        print("price of several", price)
        await service.turns.ask_for(conversation.id, wanted, Question("And at night?"), parameters=Parameters(temperature=0.0, max_tokens=16))
        await service.conversations.wait(conversation.id)
        for node in service.turns.choices(conversation.id):
            print("ALT", node.model, node.figures, await service.prices.exact(conversation.id, "alternatives", node.id))
        nodes = service.turns.choices(conversation.id)
        told = await service.prices.exact(conversation.id, "alternatives", nodes[choice].id)
        await service.turns.choose(conversation.id, nodes[choice].id)
        after = await say(service, conversation, "And then?")
        print("AFTER", after.model, after.figures, "wasted", after.figures.wasted_tokens, "told", told.tokens)
        after = await say(service, conversation, "And then?")
        print("AFTER", after.model, after.figures, "wasted", after.figures.wasted_tokens)
