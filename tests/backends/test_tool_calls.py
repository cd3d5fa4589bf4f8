"""An answer that calls a tool, though it was offered none: it is told as one, by the tool's name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from backend_kit import Heard, a_turn, endpoint_of, llamacpp_at, openai_at
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus import corpus
from kvchat.backends.answer import ChatAnswer
from kvchat.backends.dialect import BackendError, Ended
from kvchat.backends.dialects.lmstudio import LMStudioBackend
from kvchat.backends.dialects.ollama.backend import OllamaBackend
from kvchat.backends.http.payload import PayloadError
from kvchat.backends.http.stream import Payload
from kvchat.backends.tool_calls import KEPT
from kvchat.prompt.message import State
from kvchat.text.notes import note_sentence
from toyserver import ToyServer, event, reply, sse

URL = "http://127.0.0.1:1"
REMEDY = "This conversation has no such tool; ask for an answer in words."


def part(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(index: int | None, name: str | None = None, arguments: str | None = None, **more: object) -> dict[str, Any]:
    """One fragment of a tool call."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    where = {} if index is None else {"index": index}
    return {"tool_calls": [{**where, **more, "function": function}]}


def told(*deltas: dict[str, Any], finish: str | None = "tool_calls") -> tuple[Ended, Heard]:
    heard = Heard()
    answer = ChatAnswer(URL, heard, None)
    for delta in deltas:
        answer.take(Payload(part(delta)))
    answer.take(Payload(part({}, finish)))
    return answer.ended(), heard


async def test_a_call_is_told_by_its_name_with_its_arguments(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(
            sse(
                [
                    event(part(delta))
                    for delta in (
                        {"role": "assistant", "content": None},
                        call(0, "get_weather", "", id="c1", type="function"),
                        call(0, None, '{"city":'),
                        call(0, None, ' "Oslo"}'),
                    )
                ]
                + [event(part({}, "tool_calls"))]
            )
        )
        ended = await llamacpp_at(server).chat(a_turn(), heard)
    assert (ended.state, heard.text) == (State.EMPTY, "")
    assert note_sentence(ended.note) == f'The model called the tool get_weather({{"city": "Oslo"}}). {REMEDY}'


async def test_a_call_in_an_answer_that_does_not_stream(heard: Heard) -> None:
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    async with ToyServer("openai") as server:
        server.on_chat(reply(200, {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}))
        ended = await openai_at(server).chat(a_turn(), heard)
    assert note_sentence(ended.note) == f"The model called the tool f({{}}). {REMEDY}"


@corpus(
    ("deltas", "words"),
    [
        (
            [call(0, "a", "{}"), call(1, "b", "1"), call(0, None, "x"), call(1, None, "2")],
            "The model called the tools a({}x) and b(12).",
        ),
        ([call(0, "get_"), call(0, "time")], "The model called the tool get_time()."),
        ([call(0, "f", "1"), call(0, "f", "2")], "The model called the tool f(12)."),  # the name with every fragment
        ([call(None, "f", "1"), call(None, None, "2"), call(None, "g")], "The model called the tools f(12) and g()."),
        (  # an id of its own with every fragment, one of which begins like arguments
            [call(0, "f", text, id=f"c{at}") for at, text in enumerate(('{"a": ', '"b"', "}"))],
            'The model called the tool f({"a": "b"}).',
        ),
        ([call(n, f"f{n}") for n in range(5)], "The model called the tools f0(), f1(), f2() and 2 more."),
        ([call(0, None, "{}")], "The model called a tool without a name({})."),
        (
            [{"function_call": {"name": "old", "arguments": "{"}}, {"function_call": {"arguments": "}"}}],
            "The model called the tool old({}).",
        ),
        ([call(0, "f", "x" * 500)], f"The model called the tool f({'x' * 79}…)."),
        ([call(0, "\x1b[31mf\n", "\u202e")], None),
    ],
)
def test_fragments_are_joined_by_their_index(deltas: list[dict[str, Any]], words: str | None) -> None:
    ended, heard = told(*deltas)
    assert ended.state is State.EMPTY and not heard.text
    if words is not None:
        assert note_sentence(ended.note) == f"{words} {REMEDY}"
    assert not {"\x1b", "\n", "\u202e"} & set(note_sentence(ended.note))


def test_two_calls_under_one_index_are_two() -> None:
    for more in ({"id": "c2"}, {}):
        ended, _ = told(call(0, "f", '{"a": 1}', **({"id": "c1"} if more else {})), call(0, "f", '{"a": 2}', **more))
        assert [one.arguments for one in ended.calls] == ['{"a": 1}', '{"a": 2}']


@pytest.mark.parametrize("before", [{"content": "Let me look."}, {"reasoning_content": "hm"}])
def test_words_before_a_call_stay_and_the_call_is_told_beside_them(before: dict[str, Any]) -> None:
    ended, heard = told(before, call(0, "f", "{}"))
    assert ended.state is State.DONE and (heard.text or heard.reasoning)
    assert note_sentence(ended.note) == f"The model called the tool f({{}}). {REMEDY}"


@corpus(
    "calls",
    [
        None,
        [],
        7,
        "x",
        [7],
        [None],
        [{}],
        [{"function": 7}],
        [{"index": 10**400}],
        [{"index": "1", "function": {"name": 7, "arguments": {"a": [1]}}}],
    ],
)
def test_odd_calls_cost_nothing(calls: object) -> None:
    ended, heard = told({"content": "Hello", "tool_calls": calls}, finish="stop")
    assert (ended.state, heard.text) == (State.DONE, "Hello")


def test_a_call_that_is_cut_off_is_an_interrupted_answer() -> None:
    ended, _ = told(call(0, "f", "{"), finish=None)
    assert ended.state is State.INTERRUPTED


def test_a_long_call_keeps_the_answer_moving_and_takes_no_memory_to_speak_of() -> None:
    answer = ChatAnswer(URL, Heard(), None)
    for _ in range(2000):
        answer.take(Payload(part(call(0, "f", "x" * 1000))))
    assert answer.moves == 2000
    assert sum(len(str(value)) for value in vars(answer._calls).values()) < 5 * KEPT


async def test_ollamas_call_has_its_arguments_as_an_object(heard: Heard) -> None:
    said = {
        "model": "m",
        "message": {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "get_time", "arguments": {"zone": "UTC"}}}],
        },
        "done": False,
    }
    lines = b"".join(
        json.dumps(line).encode() + b"\n"
        for line in (
            said,
            {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"},
        )
    )
    async with ToyServer() as server:
        server.on_chat(reply(200, lines, content_type="application/x-ndjson"))
        ended = await OllamaBackend(endpoint_of(server)).chat(a_turn(model="m"), heard)
    assert ended.state is State.EMPTY
    assert note_sentence(ended.note) == f'The model called the tool get_time({{"zone": "UTC"}}). {REMEDY}'


async def test_a_server_that_ends_long_conversations_without_a_word_is_not_blamed_for_a_call(heard: Heard) -> None:
    async with ToyServer("openai") as server:
        server.on_chat(sse([event(part(call(0, "f"))), event(part({}, "tool_calls"))]))
        ended = await LMStudioBackend(endpoint_of(server)).chat(a_turn(), heard)
    assert note_sentence(ended.note) == f"The model called the tool f(). {REMEDY}"


SIMPLE = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("\ud83d")
VALUES = st.recursive(
    SIMPLE,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["index", "function", "name", "arguments", "id", "type"]), inner, max_size=4)
    ),
)


@settings(deadline=None)
@given(st.lists(VALUES, max_size=4))
def test_whatever_stands_for_a_call_the_words_stay(values: list[object]) -> None:
    heard = Heard()
    answer = ChatAnswer(URL, heard, None)
    for value in values:
        try:
            answer.take(Payload(part({"content": "x", "tool_calls": value})))
        except (PayloadError, BackendError):
            raise AssertionError("a call cost the answer") from None
    answer.take(Payload(part({"content": "x"}, "stop")))
    ended = answer.ended()
    assert (ended.state, heard.text) == (State.DONE, "x" * (len(values) + 1))
    assert len(note_sentence(ended.note)) < 500
