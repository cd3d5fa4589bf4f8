"""Causes told by the service where they really happen: real llama.cpp servers with tiny models, a proxy that meddles,
and toy servers of other kinds. One scenario per cause."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from causes_kit import (
    THOUGHTS,
    WORDS,
    Start,
    another_program_asks,
    free_port,
    meddling,
    served,
    sleeps,
    thinking,
    told,
    until,
)

from kvchat.backends.engine.gguf import read_header
from kvchat.backends.engine.options import model_shape
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.chat.cache import warm_up
from kvchat.chat.question import Question
from kvchat.figures.cause import Cause
from kvchat.prompt.request import Parameters
from kvchat.text.findings import remedy_sentence
from standins.ollama import OllamaStandIn, StandInModel
from toyserver import Answer, ToyServer, event, loading, reply, sse, tokens

pytestmark = pytest.mark.engine


# -- the server is gone ------------------------------------------------------------------------------------------------


async def test_a_server_that_was_restarted(models: dict[str, Path], start: Start) -> None:
    port = free_port()
    with served(models["dense"], port=port) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.turns(id, 2)
    with served(models["dense"], port=port):
        figures = await chat.say(id)
        told(figures, Cause.RESTARTED, "The server restarted")
        assert "--slot-save-path" in remedy_sentence(figures.remedy), "with it the states would have come back"
        assert (await chat.say(id)).cause is None


@pytest.mark.parametrize("kind", ["dense", "sliding", "hybrid"])
async def test_no_flag_that_is_on_is_named_after_a_restart(
    models: dict[str, Path], start: Start, tmp_path: Path, kind: str
) -> None:
    """It said to start the server with --slot-save-path to who had done so."""
    port, folder = free_port(), tmp_path / "slots"
    folder.mkdir()
    with served(models[kind], port=port, slot_save_path=f"{folder}/") as url:
        chat = start(url)
        id = await chat.begin()
        await chat.turns(id, 2)
    with served(models[kind], port=port, slot_save_path=f"{folder}/"):
        figures = await chat.say(id)
        told(figures, Cause.RESTARTED, "The server restarted")
        remedy = remedy_sentence(figures.remedy)
        assert "--slot-save-path" not in remedy
        assert "The server saves slots" in remedy and "kvchat ask saves nothing" in remedy


async def test_a_restart_is_no_cause_of_what_was_read_since(models: dict[str, Path], start: Start) -> None:
    """A newer turn has read the branch again: what an edit of an old question misses is a checkpoint."""
    port = free_port()
    with served(models["hybrid"], port=port) as url:
        chat = start(url)
        id = await chat.begin("You keep a light.")
        await chat.turns(id, 4, words=12)
    with served(models["hybrid"], port=port):
        told(await chat.say(id), Cause.RESTARTED, "The server restarted")
        fork = await chat.service.branches.fork(id, chat.questions(id)[1].id)
        await chat.service.turns.send(fork.id, Question("Something else."))
        figures = await chat.answered(fork.id)
        assert figures.wasted_tokens and figures.cause == Cause.CHECKPOINT, figures


async def test_a_server_that_was_restarted_while_kvchat_was_closed(models: dict[str, Path], start: Start) -> None:
    port = free_port()
    with served(models["dense"], port=port) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.turns(id, 2)
        await chat.close()
    with served(models["dense"], port=port) as url:
        chat = start(url)
        await chat.service.conversations.open(id)
        told(await chat.say(id), Cause.RESTARTED, "The server restarted")


async def test_a_model_that_slept(models: dict[str, Path], start: Start) -> None:
    with served(models["dense"], sleep_idle_seconds=1) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.turns(id, 2)
        await until(lambda: sleeps(url))
        told(await chat.say(id), Cause.UNLOADED, "The model slept", "--sleep-idle-seconds")
        assert (await chat.say(id)).cause is None


async def test_a_model_that_had_to_be_loaded_again(start: Start) -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("One", prompt=900), loading(), tokens("Two", prompt=910))
        chat = start(server.url)
        id = await chat.begin()
        await chat.say(id)
        told(await chat.say(id), Cause.UNLOADED, "The model had to be loaded again")


async def test_another_model_at_the_same_address(models: dict[str, Path], start: Start) -> None:
    port = free_port()
    with served(models["dense"], port=port) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.turns(id, 2)
    with served(models["hybrid"], port=port):
        await chat.service.servers.link(id).connector.restart()
        await chat.service.options.set_model(id, str(models["hybrid"]))
        told(await chat.say(id), Cause.OTHER_MODEL, "hybrid.gguf answered in place of dense.gguf")


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("kinds", [("dense", "hybrid"), ("hybrid", "sliding")])
async def test_another_model_by_the_same_name(
    models: dict[str, Path], start: Start, kinds: tuple[str, str], closed: bool
) -> None:
    """As an alias has it; it was taken for a restart, and the cache for that of the model before."""
    port, (first, then) = free_port(), kinds
    with served(models[first], port=port, model_alias=["local"]) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.turns(id, 2)
        if closed:
            await chat.close()
    with served(models[then], port=port, model_alias=["local"]) as url:
        if closed:
            chat = start(url)
            await chat.service.conversations.open(id)
        told(await chat.say(id), Cause.OTHER_MODEL, f"{then}.gguf answered in place of {first}.gguf")
        cache = chat.service.servers.link(id).cache
        assert cache is not None and cache.simulated.best.shape.rewind is model_shape(read_header(models[then])).rewind
        assert (await chat.say(id)).cause is None


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("kind", ["dense", "sliding"])
async def test_a_server_that_was_restarted_with_another_window(
    models: dict[str, Path], start: Start, kind: str, closed: bool
) -> None:
    port = free_port()
    with served(models[kind], port=port) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.turns(id, 2)
        if closed:
            await chat.close()
    with served(models[kind], port=port, n_ctx=8192) as url:
        if closed:
            chat = start(url)
            await chat.service.conversations.open(id)
        told(await chat.say(id), Cause.OTHER_WINDOW, "8,192 tokens in place of 4,096", "Keep the server's window")
        assert (await chat.say(id)).cause is None


async def test_another_window_that_the_user_asks_ollama_for(start: Start) -> None:
    """No restart is seen, nor that the model is loaded. It is no cause of what a newer turn has read since."""
    async with OllamaStandIn(StandInModel(), reports_cached=True) as server:
        chat = start(server.url, Parameters(), window=4096)
        id = await chat.begin()
        await chat.turns(id, 2)
        await chat.close()
        chat = start(server.url, Parameters(), window=8192)
        await chat.service.conversations.open(id)
        told(await chat.say(id), Cause.OTHER_WINDOW, "8,192 tokens in place of 4,096", "server.context_size")
        await chat.say(await chat.begin("Something else entirely."))
        fork = await chat.service.branches.fork(id, chat.questions(id)[1].id)
        await chat.service.turns.send(fork.id, Question("And then?"))
        figures = await chat.answered(fork.id)
        assert figures.notable_waste and figures.cause != Cause.OTHER_WINDOW, figures


async def test_a_window_that_is_only_told_differently_is_no_cause(start: Start) -> None:
    """As a list of models may, of one that is loaded by now."""

    def listed(window: int) -> Answer:
        return reply(200, {"data": [{"id": "toy", "owned_by": "somebody", "context_length": window}]})

    async with ToyServer("openai") as server:
        server.on_chat(tokens("One", prompt=900), tokens("Two", prompt=910))
        chat = start(server.url, Parameters())
        id = await chat.begin()
        windows = []
        for window in (32_768, 4_096):
            server.on("/v1/models", listed(window))
            await chat.service.servers.link(id).connector.restart()
            figures = await chat.say(id)
            windows.append(figures.context_size)
        assert windows == [32_768, 4_096] and figures.notable_waste and figures.cause != Cause.OTHER_WINDOW, figures


async def test_another_server(models: dict[str, Path], start: Start) -> None:
    with served(models["dense"]) as url, served(models["dense"]) as other:
        chat = start(url)
        id = await chat.begin()
        await chat.turns(id, 2)
        await chat.service.chooser.use(id, other)
        told(await chat.say(id), Cause.OTHER_MODEL, "Another server answers now")


# -- others use it -----------------------------------------------------------------------------------------------------


async def test_another_program_that_used_the_slot(models: dict[str, Path], start: Start) -> None:
    with served(models["dense"], cache_ram_mib=0) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.turns(id, 2)
        another_program_asks(url)
        told(await chat.say(id), Cause.OTHER_CLIENT, "Another program used the model", "slot 0 holds")


async def test_a_slot_taken_by_a_conversation_with_the_same_system_prompt(
    models: dict[str, Path], start: Start
) -> None:
    with served(models["dense"], slots=2) as url:
        chat = start(url, detour=False)
        id, other = await chat.begin(), await chat.begin()
        await chat.turns(id, 2)
        await chat.turns(other, 1)
        told(await chat.say(id), Cause.SLOT_TAKEN, "took this conversation's slot", "cache.warm_up")


async def test_another_branch_that_took_the_slot(models: dict[str, Path], start: Start) -> None:
    with served(models["dense"], cache_ram_mib=0) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.turns(id, 4)
        await chat.service.turns.edit(id, chat.questions(id)[1].id, "Something else, then?")
        assert (await chat.answered(id)).cause is None
        assert await chat.service.branches.undo(id)
        told(await chat.say(id), Cause.SLOT_TAKEN, "Another branch of this conversation took its slot")


async def test_our_own_reading_ahead_that_took_the_slot(
    models: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_up, "REST_S", 0.0)
    with served(models["dense"], cache_ram_mib=0) as url:
        chat = start(url)
        id, other = await chat.begin(), await chat.begin("Another keeper wrote this. " * 60)
        await chat.turns(other, 1)
        await chat.turns(id, 1)
        told(await chat.say(other), Cause.SLOT_TAKEN, "took this conversation's slot", "--cache-ram 8192")
        told(await chat.say(id), Cause.SLOT_TAKEN)
        chat.service.warm_up.enabled = True
        await chat.service.conversations.open(other)
        await chat.service.warm_up.ended()
        told(await chat.say(id), Cause.OWN_REQUEST, "warm-up")


async def test_a_state_that_is_parked_and_not_looked_up(models: dict[str, Path], start: Start) -> None:
    with served(models["dense"]) as url:
        chat = start(url, detour=False)
        first, second = await chat.begin("A keeper. " * 60), await chat.begin("Some ships. " * 60)
        for one in (first, second, first):  # it came back: this server parks
            await chat.turns(one, 1)
        id, other = await chat.begin(), await chat.begin()
        await chat.turns(id, 4, words=20)
        await chat.turns(other, 1)
        told(await chat.say(id), Cause.NOT_LOOKED_UP, "were parked", "cache.detour")


@pytest.mark.parametrize("known", [False, True], ids=["learnt", "known"])
async def test_a_state_that_was_pushed_out_of_the_server_memory(
    models: dict[str, Path], start: Start, known: bool
) -> None:
    """With a server whose memory is known from the start, and with one that was seen to park states."""
    with served(models["dense"], cache_ram_mib=1) as url:
        chat = start(url)
        if known:
            shape = Shape(ram_bytes=1 << 20, token_bytes=268.0)
            chat.service.servers.link().connector.cache_shape = lambda: shape  # type: ignore[method-assign]
        ids = [await chat.begin(f"Keeper {name} wrote this. {WORDS * 60}") for name in "ABCDEF"]
        for id in ids[:2]:
            await chat.turns(id, 1)
        await chat.turns(ids[0], 1)  # it was parked, and came back
        for id in ids[1:]:
            await chat.turns(id, 1)
        told(await chat.say(ids[0]), Cause.CACHE_FULL, "ran out of cache memory", "--cache-ram")


# -- what the model's cache cannot do ----------------------------------------------------------------------------------


async def test_a_model_that_cannot_go_back(models: dict[str, Path], start: Start) -> None:
    with served(models["hybrid"], n_ctx_checkpoints=1) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.turns(id, 5)
        await chat.service.turns.edit(id, chat.questions(id)[2].id, "Something else, then?")
        told(await chat.answered(id), Cause.CHECKPOINT, "This model can only go back to token", "--ctx-checkpoints")


async def test_a_server_that_keeps_whole_blocks(start: Start) -> None:
    async with ToyServer("openai") as server:
        server.on("/v1/models", reply(200, {"data": [{"id": "toy", "owned_by": "vllm"}]}))
        server.on_chat(
            tokens("One", prompt=910),
            *(tokens("More", prompt=910 + 126 * turn, cached=768 + 128 * turn) for turn in (1, 2, 3)),
        )
        chat = start(server.url)
        id = await chat.begin()
        for _ in range(3):
            assert (await chat.say(id)).cause is None  # what a usual block of 16 loses is not worth a word
        told(await chat.say(id), Cause.BLOCKS, "whole blocks of 128 tokens")


# -- what was sent -----------------------------------------------------------------------------------------------------


async def test_template_options_that_the_person_changed(models: dict[str, Path], start: Start) -> None:
    with served(models["forgetful"]) as url:
        chat = start(url, parameters=THOUGHTS)
        id = await chat.begin("You keep the light.")
        for _ in range(4):
            await chat.say(id, WORDS * 4)
        await chat.service.options.set_template_options(id, {"preserve_reasoning": False})
        figures = await chat.say(id)
        told(figures, Cause.OUR_BYTES, "You changed the template's options")
        assert figures.remedy is None


async def test_a_template_that_forgets_thoughts(models: dict[str, Path], start: Start) -> None:
    with served(models["forgetful"]) as url:
        chat = start(url, parameters=THOUGHTS)
        id = await chat.begin()
        await chat.service.options.set_template_options(id, {"preserve_reasoning": False})
        await chat.say(id)
        told(await chat.say(id), Cause.REASONING, "forgets thoughts", "preserve_reasoning")


async def test_a_template_that_drops_its_empty_thinking_block(models: dict[str, Path], start: Start) -> None:
    with served(models["forgetful"]) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.service.options.set_template_options(id, {"enable_thinking": False, "preserve_reasoning": False})
        await chat.say(id)
        told(await chat.say(id), Cause.REASONING, "empty thinking block")


async def test_a_template_that_writes_the_time(models: dict[str, Path], start: Start) -> None:
    with served(models["clock"]) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.say(id)
        await asyncio.sleep(1.1)
        told(await chat.say(id), Cause.TEMPLATE, "The chat template wrote")


async def test_a_template_that_moves_the_system_prompt(models: dict[str, Path], start: Start) -> None:
    with served(models["moving"]) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.say(id)
        told(await chat.say(id), Cause.TEMPLATE, "moves the system prompt")


async def test_an_answer_that_reads_back_as_other_tokens(models: dict[str, Path], start: Start) -> None:
    with served(models["dense"]) as url:
        chat = start(url, parameters=Parameters(temperature=2.0, seed=7, max_tokens=60))
        id = await chat.begin()
        await chat.say(id)
        told(await chat.say(id), Cause.RETOKENISED, "reads back as other tokens")


async def test_a_window_that_was_shifted(models: dict[str, Path], start: Start) -> None:
    """Only thoughts that the template leaves out can fill the window and still leave room for the next turn."""
    with served(models["forgetful"], n_ctx=512, ctx_shift=True) as url:
        chat = start(url, parameters=thinking("The lamp turns. " * 250, 200))
        id = await chat.begin()
        await chat.service.options.set_template_options(id, {"preserve_reasoning": False})
        await chat.say(id)
        told(await chat.say(id), Cause.SHIFTED, "dropped old text", "--no-context-shift")


# -- a proxy that meddles, a server that says little ------------------------------------------------------------------


async def test_a_prompt_that_was_cut(models: dict[str, Path], start: Start) -> None:
    def cut(request: dict[str, Any]) -> None:
        if len(request["messages"]) > 5:
            del request["messages"][1:3]

    with served(models["dense"]) as real:
        async with meddling(real, cut) as url:
            chat = start(url)
            id = await chat.begin()
            await chat.turns(id, 2)
            told(await chat.say(id), Cause.CUT, "cut the prompt silently", "--ctx-size")


async def test_caching_that_is_switched_off_on_the_way(models: dict[str, Path], start: Start) -> None:
    with served(models["dense"]) as real:
        async with meddling(real, lambda request: request.update(cache_prompt=False)) as url:
            chat = start(url)
            id = await chat.begin()
            await chat.say(id)
            told(await chat.say(id), Cause.REPORTED_COLD, "reports 0 cached tokens")
            told(await chat.say(id), Cause.REPORTED_COLD, "reports 0 cached tokens")
            told(await chat.say(id), Cause.CACHING_OFF, "reused nothing in 3 turns", "proxy")


async def test_a_server_that_does_not_report(start: Start) -> None:
    async with ToyServer("openai") as server:
        server.on("/v1/models", reply(200, {"data": [{"id": "toy", "owned_by": "vllm"}]}))
        server.on_chat(
            sse(
                [
                    event({"choices": [{"index": 0, "delta": {"content": "Yes."}, "finish_reason": "stop"}]}),
                    event(
                        {"choices": [], "usage": {"prompt_tokens": 900, "completion_tokens": 2, "total_tokens": 902}}
                    ),
                    b"data: [DONE]\n\n",
                ]
            )
        )
        chat = start(server.url)
        id = await chat.begin()
        await chat.say(id)
        told(await chat.say(id), Cause.NOT_REPORTED, "does not report", "--enable-prompt-tokens-details")
