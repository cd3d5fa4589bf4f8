"""Fields that a server refuses by name: which go, and which refusals are told as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from backend_kit import Heard, a_turn, llamacpp_at, openai_at

from corpus import corpus
from kvchat.backends.dialect import Trouble
from kvchat.backends.errors import unknown_field
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.text.notes import note_sentence
from toyserver import Answer, ToyServer, error, reply, tokens

ECHOED = "what do session_id and cache_prompt mean?"
SENT = ("model", "session_id", "stream", "cache_prompt", "stream_options", "temperature", "user", "messages")


def of_pydantic(
    field: object,
    message: str = "Extra inputs are not permitted",
    type: str = "extra_forbidden",
    echoed: object = ECHOED,
) -> dict[str, Any]:
    return {"type": type, "loc": ["body", field], "msg": message, "input": echoed}


def fields(server: ToyServer) -> list[set[str]]:
    return [set(visit.json) for visit in server.visits if visit.is_chat]


@pytest.mark.parametrize(
    "refusal",
    [
        error(400, "Unexpected role 'user' after role 'tool'"),
        error(400, "Unexpected field in the message, see session_id_v2"),
        reply(422, {"detail": [of_pydantic("temperature", "temperature 9 is not supported")]}),
        error(422, f"temperature 9 is not supported (input: {ECHOED})"),
    ],
)
async def test_a_refusal_of_nothing_that_could_go_is_told_and_not_sent_again(refusal: Answer, heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(refusal)
        turn = a_turn(ECHOED, parameters=Parameters(temperature=9, extra={"user": "u"}))
        ended = await llamacpp_at(server).chat(turn, heard)
        assert server.posts == 1
    assert ended.error and "refuses the field" not in note_sentence(ended.note)
    assert "Unexpected" in note_sentence(ended.note) or "temperature 9 is not supported" in note_sentence(ended.note)


@pytest.mark.parametrize(
    "refusal",
    [
        error(400, "Unrecognized request argument supplied: cache_prompt"),
        reply(400, {"error": {"message": "Unknown argument.", "param": "cache_prompt"}}),
        reply(422, {"detail": [of_pydantic("cache_prompt")]}),
        reply(422, {"object": "error", "message": {"detail": [of_pydantic("cache_prompt")]}}),
        error(400, str([of_pydantic("cache_prompt")])),
        error(
            400,
            "1 validation error for ChatRequest\ncache_prompt\n  Extra inputs are not permitted "
            "[type=extra_forbidden, input_value='session_id', input_type=str]",
        ),
    ],
)
async def test_a_field_that_is_refused_by_name_goes_for_good_and_no_other_does(refusal: Answer, heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(refusal, tokens("Hello"))
        backend = llamacpp_at(server)
        for _ in range(2):
            assert (await backend.chat(a_turn(ECHOED), heard)).state is State.DONE
        first, *later = fields(server)
        assert later == [first - {"cache_prompt"}] * 2


async def test_options_of_the_template_never_go_in_silence(heard: Heard) -> None:
    async with ToyServer("openai") as server:
        server.on_chat(error(400, "Extra inputs are not permitted: chat_template_kwargs"))
        turn = a_turn(template_options={"enable_thinking": False})
        ended = await openai_at(server).chat(turn, heard)
        assert server.posts == 1
    told = note_sentence(ended.note)
    assert ended.error and ended.error.trouble is Trouble.REFUSED and "chat_template_kwargs" in told


async def test_a_field_that_two_requests_sent_at_once_goes_from_both(heard: Heard) -> None:
    async with ToyServer("openai") as server:
        refusal = error(400, "Unknown field session_id")
        server.on_chat(refusal, tokens("Hello"))
        backend = openai_at(server)
        turn = a_turn()
        assert (await backend.chat(turn, heard)).state is State.DONE
        # As a request that had gone out before the refusal of the other came.
        body = json.dumps({**json.loads(backend.body(turn)), "session_id": "s"}).encode()
        server.on_chat(refusal, tokens("Hello"))
        sendable, bodies = backend._sendable, iter([body])
        backend._sendable = lambda turn: next(bodies, None) or sendable(turn)  # type: ignore[method-assign]
        assert (await backend.chat(turn, heard)).state is State.DONE


async def test_no_request_goes_out_twice_with_the_same_bytes(heard: Heard) -> None:
    async with ToyServer("openai") as server:
        server.on_chat(error(400, "Unknown field session_id"))
        await openai_at(server).chat(a_turn(), heard)
        bodies = [visit.body for visit in server.visits if visit.is_chat]
    assert len(bodies) == len(set(bodies)) == 2


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Unknown field temperature; allowed are session_id and user", "temperature"),
        ("Unsupported parameter: 'stream_options' is not supported with this model.", "stream_options"),
        ("Unknown model session_id/7b", "session_id"),
        ("session_id: too long", ""),
        ("The roles of the messages are unexpected: user", ""),
        ("unknown field resession_id", ""),
    ],
)
def test_the_first_field_that_a_message_names_is_the_refused_one(message: str, field: str) -> None:
    assert unknown_field(json.dumps({"error": {"message": message}}), SENT) == field


@corpus(
    ("place", "field"),
    [
        (["body", "session_id"], "session_id"),
        (["session_id"], "session_id"),
        (["body", "ChatRequest", "session_id"], "session_id"),
        (["body", "stream_options", "more"], "stream_options"),
        (["body", "messages", 0, "user"], "messages"),
        (["body", "other"], ""),
        ([], ""),
        ([None, 1], ""),
    ],
)
def test_the_place_of_a_problem_names_the_field_at_the_top(place: list[object], field: str) -> None:
    problem = {"type": "extra_forbidden", "loc": place, "msg": "Extra inputs are not permitted"}
    assert unknown_field(json.dumps({"detail": [problem]}), SENT) == field
