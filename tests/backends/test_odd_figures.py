"""Figures that are none: the figure is unknown then, and the answer is worth what it was."""

from __future__ import annotations

from typing import Any

import pytest
from backend_kit import Heard, a_turn, endpoint_of, llamacpp_at
from hypothesis import given, settings
from hypothesis import strategies as st

from kvchat.backends.answer import ChatAnswer
from kvchat.backends.dialect import Ended, Progressed, Reported
from kvchat.backends.dialects.ollama.backend import OllamaBackend
from kvchat.backends.http.payload import parsed
from kvchat.backends.http.stream import MIB, Decoder, Payload
from kvchat.chat.conversations.live import LiveAnswer
from kvchat.figures.accounting import TurnFigures, measured_speed, samples_of, totals
from kvchat.figures.speed import fit
from kvchat.prompt.message import State
from kvchat.text.notes import note_sentence
from kvchat.ui.view_models import live_row
from kvchat.ui.widgets.status_text import running, settled
from kvchat.ui.widgets.statusline import live_of
from toyserver import ToyServer, reply, sse

DEEP = "[" * 5000 + "]" * 5000
ODD = {
    "infinite": "1e999",
    "less than all": "-1e999",
    "no number": "NaN",
    "a word for infinite": "-Infinity",
    "of 5,000 digits": "9" * 5000,
    "less than nothing": "-5",
    "a truth": "true",
    "a text": '"7"',
    "a list": "[7]",
    "an object": '{"a":{"b":1}}',
    "very deep": DEEP,
    "very deep objects": '{"a":' * 5000 + "1" + "}" * 5000,
    "as large as numbers get": "1e308",
    "as small as numbers get": "5e-324",
    "a large number": "9007199254740991",
    "half": "7.5",
    "nothing": "null",
    "deep beside brackets in a text": f'["[[{{\\"[", {DEEP}, "]"]',
}


def chunk(content: str | None, finish: str | None = None, **figures: str) -> bytes:
    """A part of an answer; `figures` are JSON as it is written."""
    delta = f'{{"content":"{content}"}}' if content is not None else "{}"
    ends = f'"{finish}"' if finish else "null"
    more = "".join(f',"{key}":{value}' for key, value in figures.items())
    return f'data: {{"choices":[{{"index":0,"finish_reason":{ends},"delta":{delta}}}]{more}}}\n\n'.encode()


def stream(odd: str) -> list[bytes]:
    """A whole answer whose every figure is `odd`."""
    timings = (
        "{"
        + ",".join(
            f'"{key}":{odd}'
            for key in ("cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "prompt_per_second")
        )
        + "}"
    )
    usage = (
        f'{{"prompt_tokens":{odd},"completion_tokens":{odd},"total_tokens":{odd},'
        f'"prompt_tokens_details":{{"cached_tokens":{odd}}}}}'
    )
    progress = f'{{"total":{odd},"cache":{odd},"processed":{odd},"time_ms":{odd}}}'
    return [
        chunk(None, prompt_progress=progress),
        chunk("Hel", timings=timings),
        chunk("lo", timings=odd, usage=odd),
        chunk(None, "stop", timings=timings, usage=usage, prompt_progress=odd, created=odd, model=odd),
    ]


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_figure_is_lost_and_the_answer_is_not(odd: str, heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(sse(stream(ODD[odd])))
        ended = await llamacpp_at(server).chat(a_turn(), heard)
    assert (ended.state, ended.note, heard.text) == (State.DONE, None, "Hello")
    known = heard.reported
    for tokens in (known.prompt_tokens, known.cached_tokens, known.predicted_tokens):
        assert tokens is None or tokens < 2**24


async def test_figures_beside_an_odd_one_stay(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(
            sse(
                [
                    chunk("Hello"),
                    chunk(
                        None,
                        "stop",
                        timings=(
                            '{"cache_n":30,"prompt_n":12,"prompt_ms":1e999,"predicted_n":2,"predicted_ms":{"a":[1]}}'
                        ),
                    ),
                ]
            )
        )
        ended = await llamacpp_at(server).chat(a_turn(), heard)
    assert ended.state is State.DONE
    assert heard.reported == Reported(prompt_tokens=42, cached_tokens=30, predicted_tokens=2)


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_figure_of_ollamas_is_lost_and_the_answer_is_not(odd: str, heard: Heard) -> None:
    figures = ",".join(
        f'"{key}":{ODD[odd]}'
        for key in (
            "total_duration",
            "load_duration",
            "prompt_eval_count",
            "prompt_eval_duration",
            "eval_count",
            "eval_duration",
        )
    )
    lines = (
        b'{"model":"m","message":{"role":"assistant","content":"Hello"},"done":false}\n'
        b'{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop",'
        + figures.encode()
        + b"}\n"
    )
    async with ToyServer() as server:
        server.on_chat(reply(200, lines, content_type="application/x-ndjson"))
        ended = await OllamaBackend(endpoint_of(server)).chat(a_turn(model="m"), heard)
    assert (ended.state, heard.text) == (State.DONE, "Hello")
    assert all(len(warning) < 400 for warning in map(note_sentence, ended.warnings))


LITERALS = st.sampled_from(
    [
        *(value for name, value in ODD.items() if "deep" not in name),
        "0",
        "1",
        "40",
        "4096",
        "0.001",
        "12.5",
        "1e12",
        "1e-9",
        "16777215",
        "4294967296",
    ]
)
FIGURES = st.fixed_dictionaries(
    dict.fromkeys(("cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms"), LITERALS)
)


@settings(deadline=None)
@given(st.lists(FIGURES, min_size=1, max_size=4))
def test_whatever_is_reported_can_be_summed_and_shown(turns: list[dict[str, str]]) -> None:
    """All that is made of figures, from what a server may say."""
    found: list[TurnFigures] = []
    for figures in turns:
        heard = Heard()
        answer = ChatAnswer("http://x", heard, 4096)
        answer.take(
            Payload(
                parsed(
                    '{"choices":[],"timings":{' + ",".join(f'"{key}":{value}' for key, value in figures.items()) + "}}"
                )
            )
        )
        assert isinstance(answer.ended(), Ended)
        said = heard.reported
        found.append(
            TurnFigures(
                said.prompt_tokens,
                said.cached_tokens,
                said.predicted_tokens,
                said.prompt_tokens,
                12.0,
                said.prompt_ms,
                said.predicted_ms,
                4096,
            )
        )
    totals(found)
    measured_speed(found)
    speeds = [figures.prefill_speed for figures in found] + [figures.decode_speed for figures in found]
    assert all(speed is None or 0 < speed < 1e14 for speed in speeds)
    if (fitted := fit(samples_of(found))) is not None:
        assert fitted.seconds(0, 4096) >= 0
    for width in (40, 80, 120):
        settled(found, width)


@settings(deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(("total", "cache", "processed", "time_ms"), LITERALS)))
def test_whatever_progress_is_reported_can_be_shown(progress: dict[str, str]) -> None:
    heard = Heard()
    figures = ",".join(f'"{key}":{value}' for key, value in progress.items())
    ChatAnswer("http://x", heard, 4096).take(Payload(parsed(f'{{"choices":[],"prompt_progress":{{{figures}}}}}')))
    live = LiveAnswer("n", 0.0)
    for event in heard.events:
        assert isinstance(event, Progressed)
        live.progress = event.progress
        row = live_row(live, 12.0, None)
        assert row is not None and row(80)
    for width in (40, 120):
        running(live_of(live, 12.0), width)


def test_what_stands_too_deep_is_left_out_whatever_is_around_it() -> None:
    assert parsed(f'{{"a":{DEEP},"b":"[[\\"{{","c":[1,{DEEP}]}}')["b"] == '[["{'  # type: ignore[index]
    assert parsed('{"a":' * 50 + '"x"' + "}" * 50) == _nested(50)


def _nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = {"a": value}
    return value


def test_the_largest_odd_event_is_read_in_one_pass() -> None:
    """A line that is nothing but brackets takes time in proportion to its length, not more."""
    body = b'data: {"choices":[{"delta":{"content":"x"}}],"usage":' + b"[" * MIB + b"]" * MIB + b"}\n\n"
    (item,) = Decoder("text/event-stream").feed(body)
    assert isinstance(item, Payload) and isinstance(item.value, dict)
