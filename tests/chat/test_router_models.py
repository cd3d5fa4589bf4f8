"""Conversations on a router: whose model was unloaded for another one, whose model failed, loads or sleeps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kvchat.backends.dialects import llamacpp
from kvchat.cache.price import Act
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.figures.accounting import TurnFigures
from kvchat.figures.cause import Cause
from kvchat.prompt.message import Node, Role, State
from kvchat.store import Store
from kvchat.text.findings import evidence_sentence, remedy_sentence
from standins.llamacpp_router import LlamaModel, RouterStandIn

LONG = "Tell me about the sea. " + "and of the ships on it " * 12


def router(most: int = 1) -> RouterStandIn:
    return RouterStandIn(LlamaModel("sea"), LlamaModel("hills"), LlamaModel("rivers"), most=most)


@asynccontextmanager
async def running(folder: Path, server: RouterStandIn, model: str = "") -> AsyncIterator[ChatService]:
    settings = changed(changed(Settings(), "server.base_url", server.url), "cache.warm_up", False)
    if model:
        settings = changed(settings, "server.model", model)
    service = ChatService(Store.open(folder), settings)
    try:
        yield service
    finally:
        await service.aclose()


async def asked(service: ChatService, id: str, text: str) -> Node:
    await service.turns.send(id, Question(text))
    await service.conversations.wait(id)
    return service.conversations.load(id).path()[-1]


async def begun(service: ChatService, model: str, text: str) -> str:
    """A conversation on a model, with an answer; its id."""
    id = (await service.new_conversations.create(reuse=False)).id
    await service.servers.links.at("").connector.ready()
    await service.chooser.use(id, "", model)
    assert (await asked(service, id, text)).state is State.DONE
    return id


def is_told(figures: TurnFigures | None, room: int) -> None:
    """The model was loaded again, and what keeps it loaded is named."""
    assert figures is not None and figures.cause == Cause.UNLOADED and figures.evidence is not None
    assert evidence_sentence(figures.evidence, 60).startswith("The model had to be loaded again")
    assert f"--models-max {room + 1}" in remedy_sentence(figures.remedy)


@pytest.mark.parametrize("by", ["a conversation", "another program"])
async def test_a_model_that_a_router_unloaded_for_another_is_the_cause(
    tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was "cause unknown", or "retokenised" in the app."""
    monkeypatch.setattr(llamacpp, "STATE_S", 0.0)  # a user takes longer than what was heard counts
    async with router() as server, running(tmp_path, server) as service:
        id = await begun(service, "sea", LONG)
        if by == "a conversation":
            await begun(service, "hills", "Hello")
        else:
            server.loaded = ["hills"]
        assert "sea" not in server.loaded
        is_told((await asked(service, id, "And rivers?")).figures, 1)


@pytest.mark.parametrize("model", ["", "sea"])
async def test_so_it_is_after_a_restart_of_kvchat(tmp_path: Path, model: str) -> None:
    async with router() as server:
        async with running(tmp_path, server) as service:
            id = await begun(service, "sea", LONG)
            await begun(service, "hills", "Hello")
        async with running(tmp_path, server, model) as service:
            is_told((await asked(service, id, "And rivers?")).figures, 1)


async def test_a_model_that_stayed_loaded_is_no_cause(tmp_path: Path) -> None:
    async with router(2) as server, running(tmp_path, server) as service:
        id = await begun(service, "sea", LONG)
        await begun(service, "hills", "Hello")
        figures = (await asked(service, id, "And rivers?")).figures
        assert figures is not None and figures.cause != Cause.UNLOADED


@pytest.mark.parametrize("state", ["failed", "loading", "sleeping", "unloaded"])
@pytest.mark.parametrize("restarts", [False, True])
async def test_the_model_of_a_conversation_is_not_replaced_by_another(
    tmp_path: Path, state: str, restarts: bool
) -> None:
    """Whatever the list says of it, and whichever other one is loaded: the question names it."""
    async with router() as server:
        async with running(tmp_path, server) as service:
            id = await begun(service, "sea", LONG)
            await begun(service, "hills", "Hello")
            server.states["sea"] = state
            if not restarts:
                assert (await asked(service, id, "And rivers?")).state is State.DONE
        if restarts:
            async with running(tmp_path, server) as service:
                assert (await asked(service, id, "And rivers?")).state is State.DONE
        assert [visit.json["model"] for visit in server.visits if visit.path == "/v1/chat/completions"] == [
            "sea",
            "hills",
            "sea",
        ]


@pytest.mark.parametrize("act", ["open", "edit", "regenerate"])
@pytest.mark.parametrize("state", ["unloaded", "loading", "failed", "sleeping", "gone"])
async def test_a_price_never_loads_a_model_and_says_that_it_was_unloaded(
    tmp_path: Path, act: Act, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llamacpp, "STATE_S", 0.0)
    monkeypatch.setattr("kvchat.chat.cache.tracker.RECENT_S", 0.0)
    monkeypatch.setattr("kvchat.chat.cache.tracker.QUICK_S", 5.0)  # this machine may be busy
    async with router() as server, running(tmp_path, server) as service:
        id = await begun(service, "sea", LONG)
        await asked(service, id, LONG)
        question = [node for node in service.conversations.load(id).path() if node.role is Role.USER][-1]
        warm = await service.prices.exact(id, act, question.id)
        assert warm.cause is None and warm.tokens is not None and warm.tokens < 90
        server.loaded = ["hills"]
        server.states = {"sea": state}
        if state == "gone":
            del server.models["sea"]
        loads = list(server.loads)
        price = await service.prices.exact(id, act, question.id)
        assert server.loads == loads and server.loaded == ["hills"]
        assert price.tokens is not None and price.tokens > 100
        assert price.cause is Cause.UNLOADED or not price.exact


async def test_a_price_on_a_router_that_is_slow_is_told_with_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llamacpp, "STATE_S", 0.0)
    monkeypatch.setattr("kvchat.chat.cache.tracker.RECENT_S", 0.0)
    async with router() as server, running(tmp_path, server) as service:
        id = await begun(service, "sea", LONG)
        server.gate.clear()
        monkeypatch.setattr("kvchat.chat.cache.prices.PRICE_S", 0.1)
        price = await service.prices.exact(id, "regenerate", service.conversations.load(id).path()[-1].id)
        server.gate.set()
        assert not price.exact and server.loads == ["sea"]
