"""Shapes of answers and of errors, from llama.cpp and from its cousins."""

from __future__ import annotations

import asyncio
import json
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from backend_kit import Heard, a_turn, llamacpp_at, openai_at
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corpus import corpus
from kvchat.backends.answer import ChatAnswer
from kvchat.backends.dialect import BackendError, Ended, Reported, Trouble
from kvchat.backends.errors import of_status, of_stream
from kvchat.backends.http.payload import PayloadError
from kvchat.backends.http.stream import Decoder, Payload
from kvchat.prompt.message import State
from kvchat.text.notes import note_sentence
from toyserver import SSE_HEAD, ToyServer, Visit, chunked, event, raw, sse, tokens

URL = "http://host"
HOSTILE = json.loads((Path(__file__).parents[1] / "fixtures/hostile_text.json").read_text(encoding="utf-8"))


def delta(finish: str | None = None, **fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def told(*values: object, context_size: int | None = None) -> tuple[Ended, Heard]:
    heard = Heard()
    answer = ChatAnswer(URL, heard, context_size)
    try:
        for value in values:
            answer.take(Payload(value))
    except BackendError as error:
        return answer.ended(error), heard
    return answer.ended(), heard


async def chatted(*events: bytes, heard: Heard) -> Ended:
    async with ToyServer() as server:
        server.on_chat(sse(events))
        return await llamacpp_at(server).chat(a_turn(), heard)


async def test_figures_come_with_progress_first_and_the_cache_hit_before_any_token(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("Hel", "lo", prompt=40, cached=32, prompt_ms=8.0, ms_per_token=5.0))
        ended = await llamacpp_at(server).chat(a_turn(), heard)
    assert heard.progress == [(40, 32, 32), (40, 32, 40)]
    assert heard.reported == Reported(40, 32, 2, 8.0, 10.0)
    assert (ended.state, heard.text, ended.model) == (State.DONE, "Hello", "toy")


def test_timings_of_a_half_read_prompt_are_not_reported_as_the_prompt() -> None:
    timings = {"cache_n": 0, "prompt_n": 256, "prompt_ms": 9.0, "predicted_n": 0, "predicted_ms": 0.0}
    half = {
        **delta(content=None),
        "timings": timings,
        "prompt_progress": {"total": 693, "cache": 0, "processed": 256, "time_ms": 9},
    }
    _, heard = told(half)
    assert heard.progress == [(693, 0, 256)] and heard.reported == Reported()


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Reported(9, None, 2)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None}, Reported(9, None, 2)),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}},
            Reported(9, 0, 2),
        ),
        ({"prompt_tokens": "9", "completion_tokens": -1}, Reported()),
        (None, Reported()),
        ([], Reported()),
        ({}, Reported()),
    ],
)
def test_a_figure_that_is_not_reported_is_unknown_and_never_0(usage: object, expected: Reported) -> None:
    ended, heard = told({**delta("stop", content="x"), "usage": usage})
    assert heard.reported == expected and ended.state is State.DONE


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_comes_apart_from_the_text_with_the_name_of_its_field(field: str) -> None:
    ended, heard = told(delta(**{field: "hm"}), delta(**{field: None, "content": "yes"}), delta("stop"))
    assert (heard.reasoning, heard.text, ended.state) == ("hm", "yes", State.DONE)
    assert heard.events[0].field == field  # type: ignore[union-attr]


def test_reasoning_sent_under_both_names_is_taken_once() -> None:
    _, heard = told(delta(reasoning="hm", reasoning_content="hm"), delta("stop"))
    assert heard.reasoning == "hm"


def test_halves_of_a_surrogate_pair_reach_the_listener_as_they_came() -> None:
    _, heard = told(delta(content="\ud83d"), delta(content="\ude00"), delta("stop"))
    assert heard.text == "\ud83d\ude00"


@corpus(
    ("finish", "values", "state"),
    [
        ("stop", [delta(content="x")], State.DONE),
        ("tool_calls", [delta(content="x")], State.DONE),
        ("stop", [delta(reasoning="x")], State.EMPTY),
        ("stop", [delta(content=" \n")], State.EMPTY),
        ("length", [delta(reasoning="x")], State.LENGTH),
        ("stop", [delta(role="assistant")], State.EMPTY),
        ("stop", [delta(content="")], State.EMPTY),
        ("length", [delta(content="x")], State.LENGTH),
        ("length", [delta(content="x"), {"usage": {"total_tokens": 99}}], State.LENGTH),
        ("length", [delta(content="x"), {"usage": {"total_tokens": 126}}], State.LENGTH),
        ("length", [delta(content="x"), {"usage": {"total_tokens": 127}}], State.CONTEXT_FULL),
        ("length", [delta(content="x"), {"usage": {"total_tokens": 128}}], State.CONTEXT_FULL),
        (
            "length",
            [delta(content="x"), {"timings": {"cache_n": 90, "prompt_n": 8, "predicted_n": 30}}],
            State.CONTEXT_FULL,
        ),
        ("abort", [delta(content="x")], State.INTERRUPTED),
        (None, [delta(content="x")], State.INTERRUPTED),
        (None, [], State.INTERRUPTED),
    ],
)
def test_the_state_an_answer_ends_in(finish: str | None, values: list[Any], state: State) -> None:
    ended, _ = told(*values, delta(finish), context_size=128)
    assert ended.state is state
    assert bool(ended.note) == (state is not State.DONE)


async def test_an_answer_is_complete_though_the_connection_breaks_after_its_finish(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(sse([event(delta(content="all")), event(delta("stop"))], end=False, then="reset"))
        ended = await llamacpp_at(server).chat(a_turn(), heard)
    assert (ended.state, heard.text) == (State.DONE, "all")


async def test_a_server_that_says_nothing_after_the_finish_is_not_waited_for(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvchat.backends.base.TAIL_S", 0.05)
    async with ToyServer() as server:
        server.on_chat(sse([event(delta(content="all")), event(delta("stop"))], end=False, then="hang"))
        ended = await llamacpp_at(server).chat(a_turn(), heard)
        await server.until_closed()
    assert (ended.state, heard.text) == (State.DONE, "all")


async def test_signs_of_life_behind_the_finish_do_not_prolong_an_answer(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvchat.backends.base.TAIL_S", 0.3)

    async def answer(visit: Visit) -> None:
        await visit.send(SSE_HEAD + chunked(event(delta(content="all"))) + chunked(event(delta("stop"))))
        while not visit.gone.is_set():
            await visit.send(chunked(b": ping\n\n"))
            await asyncio.sleep(0.01)

    async with ToyServer() as server:
        server.on_chat(answer)
        ended = await asyncio.wait_for(llamacpp_at(server).chat(a_turn(), heard), 60)
    assert (ended.state, heard.text) == (State.DONE, "all")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "content",
                    "index",
                    "finish_reason",
                    "usage",
                    "timings",
                    "prompt_progress",
                    "error",
                    "message",
                    "model",
                    "cache_n",
                    "prompt_tokens",
                    "total",
                    "reasoning",
                    "prompt_tokens_details",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
)


@settings(deadline=None)
@given(st.lists(JSON, max_size=4), st.booleans())
def test_no_json_value_makes_reading_crash(values: list[object], is_error: bool) -> None:
    answer = ChatAnswer(URL, Heard(), 100)
    for value in values:
        try:
            answer.take(Payload(value, is_error))
        except (PayloadError, BackendError):
            pass
    assert isinstance(answer.ended(), Ended)


@pytest.mark.parametrize(
    "body",
    [
        b'data: {"error":{"message":"boom","code":500}}\n\n',
        b'event: error\ndata: {"error":{"message":"boom"},"message":"boom"}\n\n',
        b'event: error\ndata: {"message":"boom"}\n\n',
        b"event: error\ndata: boom\n\n",
        b'data: {"error":"boom"}\n\n',
        b'{"error":"boom"}\n',
        b'data: {"object":"error","message":"boom"}\n\n',
    ],
)
async def test_an_error_inside_an_answer_is_found_in_any_dress(body: bytes, heard: Heard) -> None:
    ended = await chatted(event(delta(content="kept")), body, heard=heard)
    assert ended.state is State.ERROR and heard.text == "kept" and "boom" in note_sentence(ended.note)
    assert ended.error and ended.error.trouble is Trouble.SERVER_ERROR


def plain(body: bytes, content_type: str) -> bytes:
    return (f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body


LINES = b'{"choices":[{"delta":{"content":"a"}}]}\n\n{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}'
DOCUMENT = json.dumps({"choices": [{"message": {"content": "ab"}, "finish_reason": "stop"}]}, indent=2).encode()


@pytest.mark.parametrize("content_type", ["application/x-ndjson", "application/json", "text/plain", ""])
@pytest.mark.parametrize("body", [LINES, LINES + b"\n", DOCUMENT, b"\xef\xbb\xbf" + DOCUMENT])
async def test_json_lines_and_json_documents_are_read_whatever_their_label(body: bytes, content_type: str) -> None:
    data = plain(body, content_type)
    async with ToyServer() as server:
        for cuts in ([], range(len(data) - len(body) + 3, len(data), 7)):
            heard = Heard()
            server.on_chat(raw(data, cuts))
            ended = await openai_at(server).chat(a_turn(), heard)
            assert (ended.state, heard.text) == (State.DONE, "ab")


@pytest.mark.parametrize("label", ["text/plain", "", "application/octet-stream"])
async def test_events_are_read_though_their_label_is_wrong(label: str, heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(raw(plain(event(delta(content="a")) + event(delta("stop")), label)))
        ended = await openai_at(server).chat(a_turn(), heard)
    assert (ended.state, heard.text) == (State.DONE, "a")


async def test_an_error_line_after_json_lines_keeps_the_text(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(raw(plain(b'{"choices":[{"delta":{"content":"a"}}]}\n{"error":"broke"}\n', "x-ndjson")))
        ended = await openai_at(server).chat(a_turn(), heard)
    assert (ended.state, heard.text) == (State.ERROR, "a") and "broke" in note_sentence(ended.note)


async def test_an_answer_that_is_too_large_stops_and_is_kept(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kvchat.backends.http.stream.SseParser.__init__.__kwdefaults__",
        {"line_limit": 1000, "event_limit": 1000, "answer_limit": 1000},
    )
    many: Iterable[bytes] = [event(delta(content="word "))] * 50
    async with ToyServer() as server:
        server.on_chat(sse(many))
        ended = await llamacpp_at(server).chat(a_turn(), heard)
        await server.until_closed()
    assert ended.state is State.ERROR and "larger than" in note_sentence(ended.note)


DOCUMENTED = [
    (
        400,
        "You passed 1015 input tokens and requested 10 output tokens. However, the model's context length is only "
        "1024 tokens, resulting in a maximum input length of 1014 tokens.",
        1015,
        1024,
    ),
    (400, "This model's maximum context length is 1024 tokens. However, you requested 1029 tokens", 1029, 1024),
    (200, "Input length (600013 tokens) exceeds the maximum allowed length (536826 tokens).", 600013, 536826),
    (
        200,
        "Trying to keep the first 14538 tokens when context the overflows. However, the model is loaded with "
        "context length of only 2048 tokens, which is not enough.",
        14538,
        2048,
    ),
]


@pytest.mark.parametrize(("status", "message", "prompt", "window"), DOCUMENTED)
def test_a_prompt_that_is_too_long_is_told_with_the_servers_numbers(
    status: int, message: str, prompt: int, window: int
) -> None:
    body = {"error": {"message": message, "type": "BadRequestError"}}
    error = of_stream(URL, message, {}) if status == 200 else of_status(URL, status, json.dumps(body))
    assert error.trouble is Trouble.CONTEXT_OVERFLOW
    assert (error.prompt_tokens, error.context_size) == (prompt, window)
    if prompt > window:
        assert f"has {prompt:,} tokens, but the server's window holds {window:,}." in error.sentence
    else:  # the prompt alone would fit: only the server's own words say what does not
        assert message[:40] in error.sentence
    assert "Start a new conversation" in error.sentence


BIDI = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def strings(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


def test_hostile_text_from_a_server_is_one_clean_short_line_in_every_sentence() -> None:
    texts = [*strings(HOSTILE), "x" * 100_000, "\ud83d", "a\nb\r\nc"]
    assert len(texts) > 66
    for text in texts:
        for status in (400, 404, 429, 500, 503):
            error = of_status(
                URL, status, json.dumps({"error": {"message": text}}), headers={"retry-after": text[:100]}
            )
            assert not {unicodedata.category(char) for char in error.sentence} & {"Cc", "Cs", "Zl", "Zp"}
            assert not BIDI & set(error.sentence)
            assert len(error.sentence) < 450
            error.sentence.encode()
        in_stream = of_stream(URL, text, {}).sentence
        assert "\x1b" not in in_stream and "\n" not in in_stream and len(in_stream) < 450


@settings(deadline=None)
@given(st.integers(400, 599), st.text(max_size=200))
def test_any_error_body_becomes_a_sentence(status: int, body: str) -> None:
    assert URL in of_status(URL, status, body).sentence


def test_a_decoder_reads_the_same_from_every_split() -> None:
    for body in (LINES, DOCUMENT, event(delta(content="a")) + b"data: [DONE]\n\n"):
        whole = [*(d := Decoder("")).feed(body), *d.end()]
        for size in (1, 2, 5, 17):
            decoder = Decoder("")
            found = [item for at in range(0, len(body), size) for item in decoder.feed(body[at : at + size])]
            assert [*found, *decoder.end()] == whole


@pytest.mark.parametrize(
    "figures",
    [
        {"usage": {"prompt_tokens": 0, "prompt_tokens_details": {"cached_tokens": 9}}},
        {"usage": {"prompt_tokens": 8, "prompt_tokens_details": {"cached_tokens": 9}}},
        {"prompt_progress": {"total": 8, "cache": 9, "processed": 8}},
    ],
)
def test_more_cached_tokens_than_the_prompt_has_are_unknown(figures: dict[str, Any], heard: Heard) -> None:
    ChatAnswer("http://box", heard, None).take(Payload({"choices": [], **figures}))
    assert heard.reported.cached_tokens is None and not heard.progress
    if "usage" in figures:
        assert heard.reported.prompt_tokens == figures["usage"]["prompt_tokens"]


def test_an_estimate_that_cannot_be_is_none_in_any_dialect() -> None:
    known = Reported(prompt_tokens=8)
    assert replace(known, cached_tokens=9, estimated=True) == known
    assert replace(known, cached_tokens=8, estimated=True).cached_tokens == 8
