"""llama-swap: what is known without loading a model, what a loaded one tells, and what loading one looks like."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from backend_kit import FakeTime, Heard, a_turn, endpoint_of, hurried

from engine_fixture import running_server
from kvchat.backends.dialect import PRESERVED, BackendError, CacheAccess, ChatTurn, StreamEvent, Trouble
from kvchat.backends.dialects.llamaswap import LlamaSwapBackend
from kvchat.backends.http.payload import Response
from kvchat.backends.kinds import Figures
from kvchat.backends.recognition import is_of
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.text.notes import note_sentence
from standins.llamacpp_router import LlamaModel, words_of
from standins.llamaswap import LlamaSwapStandIn, OtherModel, RealModel
from toyserver import tokens

EXTRAS = {"cache_prompt", "return_progress", "timings_per_token", "sse_ping_interval"}
REMARKS = ("━━━━━", "\n", "llama-swap", " loading", " model: b", "\n", ".", "\n")


def models() -> tuple[LlamaModel, LlamaModel]:
    return LlamaModel("a", 2048), LlamaModel("b", 512)


def backend_at(server: LlamaSwapStandIn, **options: Any) -> LlamaSwapBackend:
    return LlamaSwapBackend(endpoint_of(server), **options)


def answered(path: str, status: int, value: object) -> dict[str, Response]:
    return {path: Response(status, {}, json.dumps(value).encode())}


def test_it_is_known_by_its_running_models_or_the_owner_of_its_models() -> None:
    known = partial(is_of, LlamaSwapBackend.kind)
    assert known(answered("/running", 200, {"running": []}))
    assert known(answered("/v1/models", 200, {"data": [{"id": "a", "owned_by": "llama-swap"}]}))
    assert not known(answered("/running", 200, {"running": "yes"}))
    assert not known(answered("/running", 404, {"running": []}))
    assert not known(answered("/v1/models", 200, {"data": [{"id": "a", "owned_by": "llamacpp"}]}))


async def test_nothing_is_loaded_to_find_out_what_there_is() -> None:
    async with LlamaSwapStandIn(*models()) as server:
        info = await backend_at(server).identify()
        assert server.loads == []
    assert (info.kind, info.model, info.models) == ("llama-swap", "a", ("a", "b"))
    assert [model.loaded for model in info.listing] == [False, False]
    assert (info.context_size, info.slots) == (None, None) and info.unknown == ("context size", "slots")
    assert info.figures is Figures.AFTER and "another model" in info.unloads


@pytest.mark.parametrize("has_status", [True, False])
async def test_a_loaded_model_is_chosen_and_tells_what_it_has(has_status: bool) -> None:
    async with LlamaSwapStandIn(*models(), ready="b", ttl=300, has_status=has_status) as server:
        info = await backend_at(server).identify()
        assert server.loads == []
    assert (info.model, info.context_size, info.slots, info.build) == ("b", 512, 1, "b7-toy")
    assert info.figures is Figures.BEFORE and info.takes_local_extras and info.reasoning_option == PRESERVED
    assert info.unloads.startswith("after 300 s without a request") and info.unknown == ()
    assert [(model.loaded, model.context_size) for model in info.listing] == [(False, None), (True, 512)]


async def test_a_model_whose_name_has_a_slash_is_reached_too() -> None:
    async with LlamaSwapStandIn(LlamaModel("org/model:8b", 640), ready="org/model:8b") as server:
        assert (await backend_at(server).identify()).context_size == 640
        assert server.loads == []


async def test_a_model_that_is_still_starting_is_not_asked() -> None:
    async with LlamaSwapStandIn(*models(), ready="b") as server:
        server.gate.clear()
        info = await backend_at(server).identify()
        assert not [visit for visit in server.visits if visit.path.startswith("/upstream")]
        assert info.context_size is None


async def test_the_first_answer_loads_the_model_and_then_everything_is_known(heard: Heard) -> None:
    async with LlamaSwapStandIn(*models()) as server:
        backend = backend_at(server)
        await backend.identify()
        ended = await backend.chat(a_turn(), heard)
        assert (ended.state, heard.text, server.loads) == (State.DONE, "Fine thanks", ["a"])
        assert (backend.info.context_size, backend.info.slots, backend.info.figures) == (2048, 1, Figures.BEFORE)
        known = backend.info
        asked = len(server.visits)
        await backend.chat(a_turn(), heard)
        assert backend.info is known and len(server.visits) == asked + 1


async def test_a_turn_reads_only_what_is_new_and_says_so_before_the_first_token() -> None:
    async with LlamaSwapStandIn(*models(), ready="a") as server:
        backend = backend_at(server)
        await backend.identify()
        wires, turns = a_turn().wires, []
        for question in ("One?", "Two?", "Three?"):
            turn = ChatTurn(wires, "0123456789abcdef")
            heard = Heard()
            await backend.chat(turn, heard)
            prompt = words_of([json.loads(wire) for wire in wires])
            turns.append((len(prompt), heard.reported.prompt_tokens, heard.progress[0][1]))
            assert heard.progress[0][1] == heard.reported.cached_tokens
            reply = json.dumps({"role": "assistant", "content": heard.text}).encode()
            wires = (*wires, reply, json.dumps({"role": "user", "content": question}).encode())
        # what a prompt adds to the one before: the end of the reply, the question in its marks, the next header
        assert turns == [(8, 8, 0), (15, 15, 10), (22, 22, 17)]
        body = server.chats[0].json
        assert body.keys() >= EXTRAS and body["model"] == "a" and body["session_id"] == "0123456789abcdef"


async def test_a_second_model_pushes_the_first_one_out_and_the_model_in_use_stays_chosen(heard: Heard) -> None:
    async with LlamaSwapStandIn(*models(), ready="a") as server:
        backend = backend_at(server)
        await backend.identify()
        await backend.chat(a_turn(), heard)
        await backend.chat(a_turn(model="b"), heard)
        assert (server.loads, server.ready) == (["b"], "b")
        info = await backend.identify()
        assert info.model == "a" and [model.loaded for model in info.listing] == [False, True]
        again = Heard()
        await backend.chat(a_turn(), again)
        assert server.loads == ["b", "a"] and again.reported.cached_tokens == 0


async def test_remarks_about_loading_are_waiting_and_no_reasoning(heard: Heard) -> None:
    async with LlamaSwapStandIn(*models(), remarks=REMARKS) as server:
        backend = backend_at(server)
        await backend.identify()
        ended = await backend.chat(a_turn(), heard)
        assert (ended.state, heard.text, heard.reasoning) == (State.DONE, "Fine thanks", "")
        assert [event.phase for event in heard.waiting] == ["loading"]
        assert len(ended.warnings) == 1 and 'loaded "a"' in note_sentence(ended.warnings[0])
        assert (await backend.chat(a_turn(), Heard())).warnings == ()


async def test_a_model_that_thinks_keeps_its_reasoning(heard: Heard) -> None:
    async with LlamaSwapStandIn(*models(), ready="a") as server:
        server.models["a"].chat = lambda body: tokens("Yes", reasoning=("Hm", " well"))  # type: ignore[method-assign]
        await backend_at(server).chat(a_turn(model="a"), heard)
    assert (heard.reasoning, heard.text) == ("Hm well", "Yes")


async def test_a_swap_of_minutes_is_waited_for_while_the_server_lives(heard: Heard) -> None:
    async with LlamaSwapStandIn(*models()) as server:
        time = FakeTime(ready=lambda: server.posts == 1)
        backend = backend_at(server, clock=time.clock)
        await backend.identify()
        server.gate.clear()

        def hear(event: StreamEvent) -> None:
            heard(event)
            if len(heard.waiting) == 30:  # every 10 s: five minutes, however slow this machine is
                server.gate.set()

        ended = await backend.chat(a_turn(), hear)
    assert (ended.state, heard.text) == (State.DONE, "Fine thanks")
    assert time.seconds >= 300
    assert {(event.phase, event.server_alive) for event in heard.waiting[:30]} == {("queued", True)}


@pytest.mark.parametrize("remarks", [(), REMARKS])
async def test_a_model_that_cannot_be_loaded_is_told(remarks: tuple[str, ...], heard: Heard) -> None:
    async with LlamaSwapStandIn(*models(), breaks=True, remarks=remarks) as server:
        ended = await backend_at(server, clock=hurried()).chat(a_turn(model="a"), heard)
    assert ended.error is not None and server.url in note_sentence(ended.note) and heard.text == heard.reasoning == ""
    assert ended.error.trouble is (Trouble.SERVER_ERROR)
    assert remarks or "exited prematurely" in note_sentence(ended.note)


async def test_an_unknown_model_is_told_with_what_to_do(heard: Heard) -> None:
    async with LlamaSwapStandIn(*models()) as server:
        ended = await backend_at(server).chat(a_turn(model="c"), heard)
        assert server.loads == []
    assert ended.error and ended.error.trouble is Trouble.REFUSED
    assert "does not have the model" in note_sentence(ended.note) and "/model" in note_sentence(ended.note)


async def test_a_server_of_another_kind_gets_no_llama_cpp_field_once_it_is_known(heard: Heard) -> None:
    async with LlamaSwapStandIn(OtherModel("v"), ready="v") as server:
        backend = backend_at(server)
        info = await backend.identify()
        await backend.chat(a_turn(), heard)
        assert heard.text == "Fine" and not EXTRAS & server.chats[0].json.keys()
        assert (info.figures, info.slots) == (Figures.AFTER, None)


async def test_a_strict_server_that_was_not_known_yet_is_asked_again_without_the_fields(heard: Heard) -> None:
    async with LlamaSwapStandIn(OtherModel("v", strict=True)) as server:
        backend = backend_at(server)
        await backend.identify()
        ended = await backend.chat(a_turn(), heard)
        assert (ended.state, heard.text) == (State.DONE, "Fine")
        assert server.posts == len(EXTRAS) + 1
        await backend.chat(a_turn(), heard)
        assert server.posts == len(EXTRAS) + 2


async def test_the_cache_of_a_loaded_model_can_be_followed() -> None:
    async with LlamaSwapStandIn(*models(), ready="a") as server:
        backend = backend_at(server)
        await backend.identify()
        assert isinstance(backend, CacheAccess)
        text = await backend.prompt_text(a_turn("How are you?"))
        assert text == "<system> Be brief. <end> <user> How are you? <end> <assistant>"
        prompt = await backend.tokens_of(text)
        assert len(prompt) == 10
        first, second = await backend.prefill(prompt, lambda _: None), await backend.prefill(prompt, print)
        assert (first.cached_tokens, second.cached_tokens) == (0, 9)
        assert [count.tokens for count in await backend.slot_counts()] == [10]
        assert (await backend.server_state()).process == server.models["a"].process  # type: ignore[union-attr]
        assert await backend.template_text() == "{{ toy }}"
        assert server.loads == []


async def test_following_the_cache_never_loads_a_model() -> None:
    async with LlamaSwapStandIn(*models(), ready="a") as server:
        backend = backend_at(server)
        await backend.identify()
        prompt = await backend.tokens_of(await backend.prompt_text(a_turn()))
        server.ready = "b"
        calls = (
            backend.prompt_text(a_turn()),
            backend.tokens_of("x"),
            backend.server_state(),
            backend.slot_counts(),
            backend.prefill(prompt, lambda _: None),
            backend.template_text(),
        )
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, BackendError) and "is not loaded" in result.sentence for result in results)
        assert (server.loads, server.ready) == ([], "b")


async def test_the_cache_of_another_kind_of_server_is_not_followed() -> None:
    async with LlamaSwapStandIn(OtherModel("v"), ready="v") as server:
        backend = backend_at(server)
        await backend.identify()
        with pytest.raises(BackendError) as caught:
            await backend.slot_counts()
    assert caught.value.status == 501  # whoever follows gives up for good


async def test_it_is_alive_while_a_model_is_loaded() -> None:
    async with LlamaSwapStandIn(*models()) as server:
        server.gate.clear()
        assert await backend_at(server).alive()
        assert server.loads == []


@pytest.mark.engine
async def test_the_cache_of_a_real_llama_server_is_followed_through_it() -> None:
    with running_server(context=1024) as real:
        model = RealModel("smol", urlsplit(real.base_url).port or 0)
        async with LlamaSwapStandIn(model, ready="smol") as server:
            backend = backend_at(server)
            info = await backend.identify()
            assert (info.context_size, info.slots, info.figures) == (1024, 1, Figures.BEFORE)
            turn = a_turn("Say one word. " * 20, parameters=Parameters(max_tokens=2))
            prompt = await backend.tokens_of(await backend.prompt_text(turn))
            read = await backend.prefill(prompt, lambda _: None)
            assert read.prompt_tokens == len(prompt) and read.cached_tokens == 0
            heard = Heard()
            await backend.chat(turn, heard)
            assert heard.reported.prompt_tokens == len(prompt)
            assert heard.reported.cached_tokens == len(prompt) - 1
            assert (await backend.slot_counts())[0].tokens >= len(prompt)
            assert (await backend.server_state()).process
            assert server.loads == []
