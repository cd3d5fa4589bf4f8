"""LiteLLM: how it is known, how a conversation stays on its replica, and fields that it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from backend_kit import Heard, a_turn, endpoint_of

from kvchat.backends.dialect import BackendError, ChatTurn, ServerOptions, Trouble
from kvchat.backends.dialects.rare import LiteLLMBackend
from kvchat.backends.http.payload import Response
from kvchat.backends.kinds import Figures
from kvchat.backends.recognition import is_of
from kvchat.prompt.message import State
from kvchat.text.notes import note_sentence
from standins.litellm import KEY, LiteLLMStandIn

SESSIONS = ("0" * 31 + "a", "0" * 31 + "b")


def backend_at(server: LiteLLMStandIn, **options: Any) -> LiteLLMBackend:
    key = options.pop("api_key", None)
    return LiteLLMBackend(endpoint_of(server, api_key=key), **options)


@pytest.mark.parametrize(
    ("path", "response", "is_it"),
    [
        ("/health/liveliness", Response(200, {}, b'"I\'m alive!"'), True),
        ("/health/liveliness", Response(200, {}, b"I'm alive!"), True),
        ("/v1/models", Response(401, {"x-litellm-version": "1.109.1"}, b"{}"), True),
        ("/health/liveliness", Response(404, {}, b'"I\'m alive!"'), False),
        ("/health/liveliness", Response(200, {}, b'"I am alive"'), False),
        ("/v1/models", Response(200, {"x-request-id": "1"}, b'{"data":[{"id":"a","owned_by":"openai"}]}'), False),
    ],
)
def test_it_is_known_by_its_sign_of_life_or_its_headers(path: str, response: Response, is_it: bool) -> None:
    assert is_of(LiteLLMBackend.kind, {path: response}) is is_it


async def test_it_tells_its_models_their_sizes_and_what_it_does_not_know() -> None:
    async with LiteLLMStandIn() as server:
        info = await backend_at(server).identify()
        assert await backend_at(server).alive()
    assert (info.kind, info.model, info.context_size) == ("litellm", "chat", 32768)
    assert [(model.id, model.chats) for model in info.listing] == [("vectors", False), ("chat", True)]
    assert info.figures is Figures.AFTER and info.unknown == ("slots", "which server answers")
    assert not info.takes_local_extras


async def test_a_missing_key_is_told() -> None:
    async with LiteLLMStandIn(key=KEY) as server:
        with pytest.raises(BackendError) as caught:
            await backend_at(server).identify()
        assert caught.value.trouble is Trouble.UNAUTHORIZED and "server.api_key_env" in caught.value.sentence
        assert (await backend_at(server, api_key=KEY).identify()).model == "chat"


async def two_conversations(server: LiteLLMStandIn, backend: LiteLLMBackend) -> list[tuple[int, int]]:
    """Two conversations that alternate five turns each: per turn, the tokens evaluated and those that were new."""
    await backend.identify()
    paths = {session: a_turn(f"I am {session}").wires for session in SESSIONS}
    known = dict.fromkeys(SESSIONS, 0)
    work = []
    for _ in range(5):
        for session in SESSIONS:
            heard = Heard()
            await backend.chat(ChatTurn(paths[session], session), heard)
            told = heard.reported
            assert told.prompt_tokens is not None and told.cached_tokens is not None
            work.append((told.prompt_tokens - told.cached_tokens, told.prompt_tokens - known[session]))
            known[session] = told.prompt_tokens + (told.predicted_tokens or 0)
            reply = json.dumps({"role": "assistant", "content": heard.text}).encode()
            paths[session] = (*paths[session], reply, b'{"role":"user","content":"And then?"}')
    return work


async def test_two_conversations_stay_on_their_replicas_and_read_only_what_is_new() -> None:
    async with LiteLLMStandIn() as server:
        work = await two_conversations(server, backend_at(server))
        assert sorted(server.sessions.values()) == [0, 1]
    assert all(evaluated <= new for evaluated, new in work)


async def test_the_field_alone_keeps_a_conversation_on_its_replica_too() -> None:
    async with LiteLLMStandIn() as server:
        work = await two_conversations(server, backend_at(server, options=ServerOptions(session_headers=())))
        assert set(server.sessions) == set(SESSIONS)
        assert all(visit.json["litellm_session_id"] in SESSIONS for visit in server.chats)
    assert all(evaluated <= new for evaluated, new in work)


async def test_without_any_session_the_replicas_take_turns_and_the_work_is_done_twice() -> None:
    async with LiteLLMStandIn() as server:
        options = ServerOptions(session_headers=(), session_fields=())
        backend = backend_at(server, options=options)
        await backend.identify()
        wires = a_turn("Only me").wires
        for _ in range(2):
            heard = Heard()
            await backend.chat(ChatTurn(wires, SESSIONS[0]), heard)
        assert heard.reported.cached_tokens == 0 and not server.sessions


async def test_a_field_that_the_model_does_not_support_is_left_out_from_then_on(heard: Heard) -> None:
    async with LiteLLMStandIn(unsupported=("stream_options",)) as server:
        backend = backend_at(server)
        await backend.identify()
        for _ in range(2):
            assert (await backend.chat(a_turn(), heard)).state is State.DONE
        assert ["stream_options" in visit.json for visit in server.chats] == [True, False, False]
        assert all(visit.json["litellm_session_id"] for visit in server.chats)


async def test_with_drop_params_nothing_is_sent_twice(heard: Heard) -> None:
    async with LiteLLMStandIn(unsupported=("stream_options",), drop_params=True) as server:
        backend = backend_at(server)
        await backend.identify()
        await backend.chat(a_turn(), heard)
        assert server.posts == 1


async def test_an_unknown_model_is_told_with_what_to_do(heard: Heard) -> None:
    async with LiteLLMStandIn() as server:
        ended = await backend_at(server).chat(a_turn(model="gone"), heard)
    assert ended.error and ended.error.trouble is Trouble.REFUSED
    assert "does not have the model" in note_sentence(ended.note) and "model=gone" in note_sentence(ended.note)


async def test_no_field_of_one_kind_of_server_is_sent(heard: Heard) -> None:
    async with LiteLLMStandIn() as server:
        backend = backend_at(server)
        await backend.identify()
        await backend.chat(a_turn(slot=0, template_options={"enable_thinking": False}), heard)
        assert server.chats[0].json.keys() == {
            "model",
            "litellm_session_id",
            "stream",
            "stream_options",
            "chat_template_kwargs",
            "messages",
        }
