"""LocalAI: what it tells the administrator, and its times."""

from __future__ import annotations

import pytest
from backend_kit import Heard, a_turn, endpoint_of, hurried

from kvchat.backends.dialect import Trouble
from kvchat.backends.dialects.rare import LocalAIBackend
from kvchat.backends.kinds import Figures
from kvchat.prompt.message import State
from kvchat.text.notes import note_sentence
from standins.localai import LocalAIStandIn
from standins.prefix import converse


async def at(server: LocalAIStandIn, *, api_key: str | None = None) -> LocalAIBackend:
    backend = LocalAIBackend(endpoint_of(server, api_key=api_key), clock=hurried())
    await backend.identify()
    return backend


async def test_the_administrator_is_told_windows_and_what_is_loaded() -> None:
    async with LocalAIStandIn(context_size=8192) as server:
        server.loaded = True
        info = (await at(server)).info
        assert (info.kind, info.model, info.context_size, info.build) == ("localai", "toy-8b", 8192, "v3.9.0 (abc)")
        assert [(model.id, model.loaded, model.chats, model.context_size) for model in info.listing] == [
            ("bert-embeddings", False, False, None),
            ("loose-file.gguf", False, True, None),
            ("toy-8b", True, True, 8192),
        ]
        assert (info.figures, info.unknown, info.slots) == (Figures.NONE, ("cached tokens", "slots"), None)


async def test_to_others_that_is_unknown() -> None:
    async with LocalAIStandIn(is_admin=False) as server:
        info = (await at(server)).info
        assert (info.model, info.context_size) == ("loose-file.gguf", None)
        assert {model.loaded for model in info.listing} == {None}
        assert info.unknown == ("cached tokens", "slots", "context size", "loaded models")


async def test_an_older_version_that_has_only_a_list_is_described_by_that() -> None:
    async with LocalAIStandIn() as server:
        for path in ("/v1/models/capabilities", "/system", "/api/models/config-json/toy-8b"):
            server.get(path, {"error": {"message": "no"}}, 404)
        assert (await at(server)).info.models == ("bert-embeddings", "loose-file.gguf", "toy-8b")


async def test_its_times_are_told_and_no_cached_tokens_are_made_of_them() -> None:
    async with LocalAIStandIn(ms_per_token=2.0) as server:
        server.loaded = True
        turns = await converse(await at(server), server, words=100)
        assert [turn.reported.prompt_ms for turn in turns] == [turn.read.evaluated * 2 for turn in turns]
        assert {(turn.reported.cached_tokens, turn.reported.estimated) for turn in turns} == {(None, False)}


async def test_messages_that_were_summed_up_are_told(heard: Heard) -> None:
    async with LocalAIStandIn() as server:
        backend = await at(server)
        server.left_out = 6
        ended = await backend.chat(a_turn(), heard)
        assert tuple(map(note_sentence, ended.warnings)) == (
            "LocalAI put a summary in the place of 6 earlier messages, so everything is prefilled again. Raise "
            "context_size "
            "in the model's YAML file, or turn compression off there.",
        )


@pytest.mark.parametrize(
    ("options", "effort"),
    [
        ({}, None),
        ({"reasoning_effort": "high"}, "high"),
        ({"enable_thinking": True}, None),
        ({"enable_thinking": False, "reasoning_effort": "high"}, "none"),
    ],
)
async def test_thinking_is_set_by_the_one_field_it_has(options: dict[str, object], effort: str | None) -> None:
    async with LocalAIStandIn() as server:
        backend = await at(server)
        server.loaded = True
        turn = a_turn("Hi", model="toy-8b", template_options=options)
        told = b'"reasoning_effort":"%s",' % effort.encode() if effort else b""
        assert backend.body(turn) == (
            b'{"model":"toy-8b","stream":true,"stream_options":{"include_usage":true},' + told + b'"messages":['
            b'{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]}'
        )


async def test_a_model_that_is_being_loaded_is_waited_for(heard: Heard) -> None:
    async with LocalAIStandIn(loading=2) as server:
        ended = await (await at(server)).chat(a_turn(model="toy-8b"), heard)
        assert (ended.state, server.posts) == (State.DONE, 3)
        assert {event.phase for event in heard.waiting} == {"loading"}


async def test_an_unknown_and_a_disabled_model_are_told_apart(heard: Heard) -> None:
    async with LocalAIStandIn() as server:
        backend = await at(server)
        ended = await backend.chat(a_turn(model="nope"), heard)
        assert 'model "nope" not found' in note_sentence(ended.note)
        assert ended.error is not None
        assert ended.error.trouble is Trouble.REFUSED
        server.is_disabled = True
        ended = await backend.chat(a_turn(model="toy-8b"), heard)
        assert ended.error is not None
        assert ended.error.trouble is Trouble.REFUSED, "not a matter of the key"
        assert "has the model disabled. Enable it on its System page" in note_sentence(ended.note)
