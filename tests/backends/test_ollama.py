"""Ollama by its native interface, against a stand-in that has its quirks: what a conversation costs, what is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from backend_kit import endpoint_of
from hypothesis import given
from hypothesis import strategies as st
from ollama_kit import NEWEST, Talk, connected, words

from kvchat.backends.base import OneTokenWarmUp
from kvchat.backends.dialect import ChatTurn, PrefillAccess, ServerOptions
from kvchat.backends.dialects.ollama.messages import keep_alive_of, keep_alive_seconds, messages, think_of, unloads
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.prompt.wire import canonical
from kvchat.text.notes import note_sentence
from standins.ollama import QWEN, OllamaStandIn, StandInModel

MARGIN = 8
"""Tokens a turn may read beyond what is new: the marks around messages, and the reply's last word."""


async def test_ten_turns_are_never_loaded_again_or_cut_and_read_only_what_is_new() -> None:
    async with OllamaStandIn(reports_cached=True, version=NEWEST) as server:
        talk = Talk(await connected(server))
        for number in range(10):
            ended = await talk.ask(words(200, f"q{number}x"))
            assert (ended.state, ended.warnings) == (State.DONE, ())
        assert [turn.loaded for turn in server.turns] == [True] + [False] * 9
        assert [turn.dropped for turn in server.turns] == [0] * 10
        for before, turn in zip(server.turns, server.turns[1:], strict=False):
            assert turn.evaluated <= turn.prompt - before.prompt - 4 + MARGIN
        assert [report.cached_tokens for report in talk.reports] == [t.prompt - t.evaluated for t in server.turns]
        assert not any(report.estimated for report in talk.reports)


async def test_the_openai_way_is_cut_without_a_word_and_read_anew_every_turn() -> None:
    """What the native way is for: the same conversation through the generic dialect loses its beginning."""
    async with OllamaStandIn(default_context=1000) as server:
        backend = OneTokenWarmUp(endpoint_of(server), options=ServerOptions(context_size=8192))
        await backend.identify()
        talk = Talk(backend)
        for number in range(10):
            ended = await talk.ask(words(200, f"q{number}x"))
            assert (ended.state, ended.warnings) == (State.DONE, ())
        assert server.turns[-1].dropped > 5
        assert all(turn.evaluated > 600 for turn in server.turns[6:])


async def test_mixing_in_the_openai_way_loads_the_model_again_and_it_is_told_why() -> None:
    async with OllamaStandIn(default_context=1000) as server:
        native = Talk(await connected(server))
        await native.ask("one")
        other = OneTokenWarmUp(endpoint_of(server))
        await other.identify()
        await Talk(other).ask("two")
        ended = await native.ask("three")
        assert server.engine.loads == 3
        assert [w for w in map(note_sentence, ended.warnings) if "loaded again (1.5 s)" in w and "another program" in w]


async def test_every_request_has_the_same_options_and_never_lets_the_server_cut() -> None:
    async with OllamaStandIn() as server:
        talk = Talk(
            await connected(server),
            parameters=Parameters(
                temperature=0.5,
                max_tokens=99,
                repeat_penalty=1.1,
                stop=("END",),
                seed=7,
                top_k=3,
                min_p=0.1,
                extra={"mirostat": 2, "num_gpu": 10, "dry_multiplier": 0.8},
            ),
        )
        await talk.ask("one")
        await talk.ask("two")
        assert isinstance(talk.backend, PrefillAccess)
        await talk.backend.prefill_messages(talk.turn("three"))
        first, second, ahead = server.asked
        assert first["options"] == {
            "num_ctx": 8192,
            "temperature": 0.5,
            "top_k": 3,
            "min_p": 0.1,
            "repeat_penalty": 1.1,
            "seed": 7,
            "num_predict": 99,
            "stop": ["END"],
            "mirostat": 2,
            "num_gpu": 10,
        }
        assert second["options"] == first["options"]
        assert ahead["options"] == {**first["options"], "num_predict": 1}
        assert all((body["truncate"], body["shift"]) == (False, False) for body in server.asked)
        assert first["dry_multiplier"] == 0.8
        assert "session_id" not in first and "stream_options" not in first
        assert server.visits[-1].headers["x-session-id"] == "s1"


async def test_a_longer_conversations_body_begins_with_the_shorter_ones() -> None:
    async with OllamaStandIn(QWEN) as server:
        talk = Talk(await connected(server), parameters=Parameters(temperature=0.5))
        await talk.ask("one")
        short = talk.turn("two")
        await talk.ask("two")
        longer = ChatTurn(talk.turn("three").wires, "s1", parameters=Parameters(temperature=0.9))
        begin = talk.backend.body(short).partition(b'],"options"')[0]
        assert talk.backend.body(longer).startswith(begin)
        assert b'"thinking":"hmm , question 1"' in begin and b"reasoning_content" not in begin


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, None),
        ({"enable_thinking": True}, True),
        ({"enable_thinking": False}, False),
        ({"reasoning_effort": "low"}, "low"),
        ({"reasoning_effort": "high", "enable_thinking": True}, "high"),
        ({"reasoning_effort": "high", "enable_thinking": False}, False),
        ({"reasoning_effort": "none"}, False),
        ({"preserve_reasoning": True}, None),
    ],
)
async def test_template_options_become_think(options: dict[str, Any], sent: object) -> None:
    assert think_of(options) == sent
    async with OllamaStandIn(QWEN) as server:
        ended = await Talk(await connected(server), template_options=options).ask("Hi")
        assert ended.state is State.DONE
        assert server.asked[0].get("think") == sent


async def test_a_model_that_cannot_think_is_not_asked_to() -> None:
    async with OllamaStandIn() as server:
        ended = await Talk(await connected(server), template_options={"enable_thinking": True}).ask("Hi")
        assert ended.state is State.DONE
        assert "think" not in server.asked[0]


async def test_a_model_that_refuses_to_think_is_asked_again_without_and_others_still_think() -> None:
    """Of a model that is not the chosen one it is not known before."""
    async with OllamaStandIn(QWEN, StandInModel("plain:1b"), StandInModel("plain:2b")) as server:
        backend = await connected(server)
        for model in ("plain:1b", "plain:1b", "plain:2b", "qwen3:8b"):
            ended = await Talk(backend, model=model, template_options={"enable_thinking": True}).ask("Hi")
            assert ended.state is State.DONE
        assert [(body["model"], body.get("think")) for body in server.asked] == [
            ("plain:1b", True),
            ("plain:1b", None),
            ("plain:1b", None),
            ("plain:2b", True),
            ("plain:2b", None),
            ("qwen3:8b", True),
        ]


@pytest.mark.parametrize(
    ("response_format", "sent"),
    [
        ({"type": "json_object"}, "json"),
        ({"type": "text"}, None),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}, {"type": "object"}),
    ],
)
async def test_a_response_format_becomes_format(response_format: dict[str, Any], sent: object) -> None:
    async with OllamaStandIn() as server:
        await Talk(await connected(server), parameters=Parameters(extra={"response_format": response_format})).ask("Hi")
        assert server.asked[0].get("format") == sent
        assert "response_format" not in server.asked[0]


@pytest.mark.parametrize(
    ("text", "sent", "seconds"),
    [
        ("30m", "30m", 1800),
        ("-1", -1, None),
        ("300", 300, 300),
        ("0", 0, 0),
        ("1h30m", "1h30m", 5400),
        ("", None, 300),
        ("-1m", "-1m", None),
    ],
)
async def test_keep_alive_goes_out_as_ollama_reads_it(text: str, sent: object, seconds: float | None) -> None:
    assert keep_alive_of(text) == sent and keep_alive_seconds(text) == seconds
    async with OllamaStandIn() as server:
        ended = await Talk(await connected(server, keep_alive=text)).ask("Hi")
        assert ended.state is State.DONE
        assert server.asked[0].get("keep_alive") == sent


def test_when_the_model_is_unloaded_is_told_in_words() -> None:
    assert unloads("").startswith("after 5 minutes without use")
    assert unloads("30m").startswith("after 30 min without use")
    assert unloads("-1") == unloads("-1m") == ""
    assert unloads("0").startswith("right after each answer")


texts = st.text(st.characters(codec="utf-8"), max_size=20)
wires = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant"]), "content": texts},
        optional={"reasoning_content": texts, "reasoning": texts, "thinking": texts},
    ).map(canonical),
    max_size=8,
)


@given(wires, st.integers(0, 8))
def test_messages_keep_a_prefix_a_prefix(stored: list[bytes], cut: int) -> None:
    made = messages(stored)
    assert messages(stored[:cut]) == made[:cut]
    assert messages(made) == made == messages(stored)
    for wire, message in zip(stored, made, strict=True):
        before, after = json.loads(wire), json.loads(message)
        assert (before["role"], before["content"]) == (after["role"], after["content"])
        if before["role"] == "assistant":
            assert not after.keys() & {"reasoning", "reasoning_content"}
            thoughts = before.get("reasoning_content") or before.get("reasoning") or before.get("thinking", "")
            assert after.get("thinking", "") == thoughts
        else:
            assert message == wire
