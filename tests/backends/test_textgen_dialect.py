"""text-generation-webui: its own fields, and the messages that it leaves out."""

from __future__ import annotations

import pytest
from backend_kit import Heard, a_turn, endpoint_of

from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import BackendError
from kvchat.backends.http.endpoint import BaseUrl
from kvchat.backends.identify import backend_of
from kvchat.backends.kinds import KINDS, Figures
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.text.notes import note_sentence
from standins.prefix import converse
from standins.textgen import TextGenStandIn


async def at(server: TextGenStandIn, *, api_key: str | None = None) -> HttpBackend:
    backend = backend_of(KINDS["text-generation-webui"])(endpoint_of(server, api_key=api_key))
    await backend.identify()
    return backend


async def test_what_it_cannot_tell_is_unknown() -> None:
    async with TextGenStandIn() as server:
        info = (await at(server)).info
        assert (info.kind, info.model, info.context_size, info.slots) == ("text-generation-webui", "toy-8b", None, None)
        assert [(model.id, model.loaded, model.about) for model in info.listing] == [("toy-8b", True, "llama.cpp")]
        assert info.figures is Figures.NONE
        assert info.unknown == ("cached tokens", "context size", "slots", "version")


async def test_messages_that_were_left_out_are_told_with_the_numbers() -> None:
    async with TextGenStandIn(context_size=700) as server:
        turns = await converse(await at(server), server, 6, words=60)
        assert [turn.read.prompt for turn in turns] == [73, 142, 149, 149, 149, 149], "two turns have room"
        assert [len(turn.ended.warnings) for turn in turns] == [0, 0, 1, 1, 1, 1]
        warning = note_sentence(turns[2].ended.warnings[0])
        assert warning.startswith("text-generation-webui read 149 tokens of a conversation that has about 1")
        assert warning.endswith("or load the model with a larger ctx-size in text-generation-webui.")
        assert turns[2].read.cached == 10, "all but the instructions is read anew"


async def test_a_question_asked_again_or_a_shorter_branch_is_no_loss(heard: Heard) -> None:
    async with TextGenStandIn() as server:
        backend = await at(server)
        for text in ("a long question " * 20, "a long question " * 20, "short"):
            assert (await backend.chat(a_turn(text), heard)).warnings == ()


async def test_a_loader_that_does_not_count_says_nothing_rather_than_nought(heard: Heard) -> None:
    async with TextGenStandIn(counts=False) as server:
        ended = await (await at(server)).chat(a_turn(), heard)
        assert (ended.state, ended.warnings) == (State.DONE, ())
        assert heard.reported.prompt_tokens is None


async def test_template_options_go_out_as_its_own_fields() -> None:
    async with TextGenStandIn() as server:
        backend = await at(server)
        turn = a_turn(
            "Hi",
            template_options={
                "enable_thinking": True,
                "reasoning_effort": "high",
                "odd": 1,
                "preserve_reasoning": True,
            },
            parameters=Parameters(repeat_penalty=1.2),
        )
        assert backend.body(turn) == (
            b'{"model":"toy-8b","stream":true,"stream_options":{"include_usage":true},"enable_thinking":true,'
            b'"reasoning_effort":"high","preserve_thinking":true,"messages":[{"role":"system","content":"Be brief."},'
            b'{"role":"user","content":"Hi"}],"repetition_penalty":1.2}'
        )


async def test_a_host_name_it_does_not_answer_to_says_what_to_change() -> None:
    async with TextGenStandIn() as server:
        endpoint = endpoint_of(server)
        elsewhere = backend_of(KINDS["text-generation-webui"])(
            type(endpoint)(BaseUrl("http", "box.lan", server.port), endpoint.place)
        )
        with pytest.raises(BackendError) as caught:
            await elsewhere.get_json("/v1/models")
        assert "start it with --listen" in caught.value.sentence


async def test_without_a_model_the_broken_stream_is_explained(heard: Heard) -> None:
    async with TextGenStandIn(model="None") as server:
        backend = await at(server)
        assert (backend.info.model, backend.info.listing) == ("", ())
        ended = await backend.chat(a_turn(), heard)
        told = note_sentence(ended.note)
        assert told == (
            f"text-generation-webui at {server.url} has no model loaded. Load one in its Model tab, then try again."
        )
        assert ended.error is not None
        assert ended.error.sentence == note_sentence(ended.note)
