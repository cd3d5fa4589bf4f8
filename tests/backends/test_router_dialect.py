"""llama-server as a router: what is known without loading a model, and what a loaded one tells."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from backend_kit import FakeTime, Heard, a_turn, endpoint_of
from msgspec.structs import replace

from kvchat.backends.dialect import PRESERVED, BackendError, Trouble
from kvchat.backends.dialects.llamacpp import LlamaCppBackend
from kvchat.backends.http.transport import Clock
from kvchat.backends.identify import connect
from kvchat.backends.kinds import Figures
from kvchat.prompt.message import State
from kvchat.text.notes import note_sentence
from standins.llamacpp_router import LlamaModel, RouterStandIn
from toyserver import ToyServer, reply


def models() -> tuple[LlamaModel, LlamaModel]:
    return LlamaModel("org/a:Q4", 2048), LlamaModel("b", 512)


def backend_at(server: ToyServer, **options: Any) -> LlamaCppBackend:
    return LlamaCppBackend(endpoint_of(server), **options)


async def test_it_is_found_to_be_llama_cpp_without_loading_a_model() -> None:
    async with RouterStandIn(*models()) as server:
        info = (await connect(server.url)).info
        assert server.loads == []
    assert (info.kind, info.model, info.models) == ("llama.cpp", "org/a:Q4", ("org/a:Q4", "b"))
    assert [model.loaded for model in info.listing] == [False, False]
    assert (info.context_size, info.slots, info.unknown) == (None, None, ("context size", "slots"))
    assert info.build == "b7-toy" and info.takes_local_extras and info.figures is Figures.BEFORE
    assert info.unloads == "when another model is asked for and 4 are loaded"


async def test_a_router_without_any_model_is_no_failure() -> None:
    async with RouterStandIn() as server:
        info = (await connect(server.url)).info
    assert (info.model, info.models, info.context_size) == ("", (), None)


async def test_a_loaded_model_is_chosen_and_tells_what_it_has() -> None:
    async with RouterStandIn(*models(), loaded=("b",)) as server:
        info = await backend_at(server).identify()
        assert server.loads == []
    assert (info.model, info.context_size, info.slots, info.reasoning_option) == ("b", 512, 1, PRESERVED)
    assert [model.loaded for model in info.listing] == [False, True] and info.unknown == ()


async def test_the_first_answer_loads_the_model_and_then_everything_is_known(heard: Heard) -> None:
    async with RouterStandIn(*models()) as server:
        backend = backend_at(server)
        await backend.identify()
        ended = await backend.chat(a_turn(), heard)
        assert (ended.state, heard.text, server.loads) == (State.DONE, "Fine thanks", ["org/a:Q4"])
        assert server.chats[0].json["model"] == "org/a:Q4" and heard.progress
        assert (backend.info.context_size, backend.info.slots, backend.info.unknown) == (2048, 1, ())
        known, asked = backend.info, len(server.visits)
        await backend.chat(a_turn(), heard)
        assert backend.info is known and len(server.visits) == asked + 1


async def test_another_model_of_a_conversation_leaves_the_model_in_use_chosen(heard: Heard) -> None:
    async with RouterStandIn(*models(), loaded=("org/a:Q4",), most=1) as server:
        backend = backend_at(server)
        await backend.identify()
        await backend.chat(a_turn(model="b"), heard)
        assert server.loaded == ["b"]
        info = await backend.identify()
        assert (info.model, info.slots) == ("org/a:Q4", None)
        assert [model.loaded for model in info.listing] == [False, True]
        assert server.loads == ["b"]


async def test_loading_that_takes_minutes_is_waited_for(heard: Heard) -> None:
    async with RouterStandIn(*models()) as server:
        time = FakeTime(ready=lambda: server.posts == 1)
        backend = backend_at(server, clock=time.clock)
        await backend.identify()
        server.gate.clear()
        time.at(200, server.gate.set)
        ended = await backend.chat(a_turn(), heard)
    assert ended.state is State.DONE and len(heard.waiting) >= 10
    assert {event.server_alive for event in heard.waiting} == {True}


@pytest.mark.parametrize(("model", "words"), [("c", "'c' not found"), ("b", "model is not loaded")])
async def test_a_model_that_it_does_not_have_or_may_not_load_is_told(model: str, words: str, heard: Heard) -> None:
    async with RouterStandIn(*models(), autoload=False) as server:
        backend = backend_at(server)
        await backend.identify()
        ended = await backend.chat(a_turn(model=model), heard)
        assert server.loads == []
    assert ended.error and ended.error.trouble is Trouble.REFUSED
    told = note_sentence(ended.note)
    assert "does not have the model" in told and words in told and "Load it there" in told


async def test_what_is_asked_of_the_cache_goes_to_the_model_in_use() -> None:
    async with RouterStandIn(*models(), loaded=("b", "org/a:Q4")) as server:
        backend = backend_at(server)
        backend._info = replace(backend.info, model="b")
        await backend.identify()
        prompt = await backend.tokens_of(await backend.prompt_text(a_turn()))
        assert len(prompt) == 8
        assert (await backend.server_state()).process == server.models["b"].process
        assert [count.tokens for count in await backend.slot_counts()] == [0]
        await backend.chat(a_turn(), Heard())
        assert [count.tokens for count in await backend.slot_counts()] == [10]


async def test_asking_about_the_cache_never_loads_a_model() -> None:
    async with RouterStandIn(*models()) as server:
        backend = backend_at(server)
        await backend.identify()
        calls = (
            backend.prompt_text(a_turn()),
            backend.prompt_text(a_turn(model="b")),
            backend.tokens_of("x"),
            backend.slot_counts(),
        )
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, BackendError) for result in results)
        assert (await backend.server_state()).asleep and server.loads == []


async def test_a_server_with_one_model_is_asked_what_it_always_was(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on("/slots", reply(200, [{"id": 0, "n_prompt_tokens": 3}]))
        backend = backend_at(server, clock=Clock(now=lambda: 0.0))
        await backend.identify()
        await backend.server_state()
        await backend.slot_counts()
        await backend.chat(a_turn(), heard)
        asked = [(visit.method, visit.path) for visit in server.visits]
    assert asked == [
        ("GET", "/props"),
        ("GET", "/v1/models"),
        ("GET", "/slots"),
        ("POST", "/v1/chat/completions"),
    ]
