"""LM Studio: what is loaded, what is sent, and what it does without a word."""

from __future__ import annotations

import pytest
from backend_kit import Heard, a_turn, endpoint_of

from corpus import corpus
from kvchat.backends.dialect import BackendError, ServerOptions, Trouble
from kvchat.backends.dialects.lmstudio import LMStudioBackend, seconds_of
from kvchat.backends.kinds import Figures
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.text.notes import note_sentence
from standins.lmstudio import FIELDS, LMStudioStandIn
from standins.prefix import streamed
from toyserver import event, raw


async def at(server: LMStudioStandIn, *, keep_alive: str = "", api_key: str | None = None) -> LMStudioBackend:
    backend = LMStudioBackend(endpoint_of(server, api_key=api_key), options=ServerOptions(keep_alive=keep_alive))
    await backend.identify()
    return backend


async def test_its_models_are_told_with_what_is_loaded_and_how() -> None:
    async with LMStudioStandIn(context_size=8192, slots=4) as server:
        info = (await at(server)).info
        assert (info.kind, info.model, info.context_size, info.slots) == ("lmstudio", "toy-8b", 8192, 4)
        assert [(model.id, model.loaded, model.context_size, model.chats) for model in info.listing] == [
            ("text-embedding-nomic", False, None, False),
            ("sleepy-70b", False, None, True),
            ("toy-8b", True, 8192, True),
        ]
        assert info.listing[1].about == "8B, Q4_K_M, gguf, up to 131,072 tokens"
        assert info.figures is Figures.NONE
        assert info.unknown == ("cached tokens",)
        assert info.unloads == "after 60 min without use, if it was loaded on demand (server.keep_alive)"


async def test_a_version_before_0_4_tells_all_but_the_slots() -> None:
    async with LMStudioStandIn(version="0.3", context_size=2048) as server:
        info = (await at(server)).info
        assert (info.model, info.context_size, info.slots) == ("toy-8b", 2048, None)
        assert [model.loaded for model in info.listing] == [False, False, True]
        assert "slots" in info.unknown


async def test_a_version_without_a_listing_of_its_own_still_has_models() -> None:
    async with LMStudioStandIn(version="0.2") as server:
        info = (await at(server)).info
        assert (info.models, info.context_size) == (("text-embedding-nomic", "sleepy-70b", "toy-8b"), None)
        assert {model.loaded for model in info.listing} == {None}


async def test_two_loaded_instances_of_one_model_are_told_apart() -> None:
    async with LMStudioStandIn() as server:
        entry = server._entry("toy-8b")
        entry["loaded_instances"] = [
            {"id": "toy-8b", "config": {"context_length": 4096, "parallel": 4}},
            {"id": "toy-8b:2", "config": {"context_length": 512, "parallel": 1}},
        ]
        server.get("/api/v1/models", {"models": [entry]})
        info = (await at(server)).info
        assert [(model.id, model.context_size) for model in info.listing] == [("toy-8b", 4096), ("toy-8b:2", 512)]


async def test_only_documented_fields_are_sent_however_much_is_set(heard: Heard) -> None:
    async with LMStudioStandIn() as server:
        backend = await at(server, keep_alive="30m")
        parameters = Parameters(
            temperature=0.2,
            top_p=0.9,
            top_k=40,
            min_p=0.1,
            presence_penalty=0.1,
            seed=7,
            frequency_penalty=0.1,
            repeat_penalty=1.1,
            max_tokens=99,
            stop=("x",),
        )
        turn = a_turn(parameters=parameters, template_options={"enable_thinking": False, "reasoning_effort": "low"})
        assert (await backend.chat(turn, heard)).state is State.DONE
        body = server.chats[0].json
        assert body.keys() <= FIELDS
        assert (body["ttl"], body["reasoning_effort"], body["repeat_penalty"]) == (1800, "low", 1.1)


async def test_a_plain_request_is_these_bytes() -> None:
    async with LMStudioStandIn() as server:
        backend = await at(server)
        assert backend.body(a_turn("Hi")) == (
            b'{"model":"toy-8b","stream":true,"stream_options":{"include_usage":true},"messages":['
            b'{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]}'
        )


@corpus(
    ("told", "seconds"),
    [
        ("30m", 1800),
        ("1h", 3600),
        ("1h30m", 5400),
        ("90s", 90),
        ("300", 300),
        (" 5min ", 300),
        ("", None),
        ("-1", None),
        ("0", None),
        ("soon", None),
    ],
)
def test_a_time_to_stay_loaded_is_seconds(told: str, seconds: int | None) -> None:
    assert seconds_of(told) == seconds


async def test_a_model_that_is_not_loaded_is_loaded_on_demand_for_the_time_that_was_set(heard: Heard) -> None:
    async with LMStudioStandIn() as server:
        backend = await at(server, keep_alive="5m")
        ended = await backend.chat(a_turn(model="sleepy-70b"), heard)
        assert (ended.state, ended.model, ended.warnings) == (State.DONE, "sleepy-70b", ())
        assert server.ttl == 300
        assert backend.info.unloads.startswith("after 5 min")


async def test_that_another_model_answered_is_told(heard: Heard) -> None:
    async with LMStudioStandIn(loads_on_demand=False) as server:
        ended = await (await at(server)).chat(a_turn(model="sleepy-70b"), heard)
        assert ended.state is State.DONE
        told = tuple(map(note_sentence, ended.warnings))
        assert told == (
            "Another model answered: toy-8b, not sleepy-70b. LM Studio answers with the model "
            "that is loaded; load the other one there.",
        )


async def test_the_documented_error_in_a_stream_gives_both_numbers(
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "Trying to keep the first 14538 tokens when context the overflows."
    whole = f"{text} However, the model is loaded with context length of only 2048 tokens, which is not enough."
    failure = b"event: error\n" + event({"error": {"message": whole}, "message": text})
    async with LMStudioStandIn() as server:
        backend = await at(server)
        monkeypatch.setattr(server, "chat", lambda visit: streamed([failure]))
        ended = await backend.chat(a_turn(), heard)
        assert "the prompt has 14,538 tokens, but the server's window holds 2,048" in note_sentence(ended.note)
        assert "holds 2,048" in note_sentence(ended.note)


async def test_an_answer_without_a_word_says_that_the_window_may_be_full(heard: Heard) -> None:
    async with LMStudioStandIn() as server:
        backend = await at(server)
        server.is_mute = True
        ended = await backend.chat(a_turn(), heard)
        assert ended.state is State.EMPTY
        assert "larger context length in LM Studio" in note_sentence(ended.note)


async def test_a_model_that_went_away_while_idle_is_told_as_that(heard: Heard) -> None:
    async with LMStudioStandIn(loads_on_demand=False) as server:
        backend = await at(server)
        server.unload()
        ended = await backend.chat(a_turn(), heard)
        assert ended.error is not None
        assert ended.error.trouble is Trouble.REFUSED
        assert "has no model loaded. Load one there (or: lms load)" in note_sentence(ended.note)


async def test_a_model_it_cannot_load_says_what_to_do(heard: Heard) -> None:
    async with LMStudioStandIn() as server:
        ended = await (await at(server)).chat(a_turn(model="no-such"), heard)
        assert ended.error is not None
        assert ended.error.trouble is Trouble.REFUSED
        assert "could not load the model" in note_sentence(ended.note)


async def test_listings_full_of_nonsense_give_a_sentence_or_nothing() -> None:
    async with LMStudioStandIn() as server:
        server.get(
            "/api/v1/models",
            {
                "models": [
                    7,
                    {"key": "a"},
                    {"key": "b", "loaded_instances": [7, {"id": "b"}], "quantization": 4, "max_context_length": "x"},
                    {"key": ""},
                ]
            },
        )
        info = (await at(server)).info
        assert [(model.id, model.loaded, model.context_size) for model in info.listing] == [
            ("a", False, None),
            ("b", True, None),
        ]
        server.on("/api/v1/models", raw(b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"models": 4.}x'))
        with pytest.raises(BackendError):
            await at(server)
