"""The event stream parser against the WHATWG vectors and an oracle that reads the whole stream at once."""

from __future__ import annotations

import base64
import json
import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus import corpus
from kvchat.backends.http.stream import (
    Decoder,
    Event,
    Payload,
    Piece,
    SseParser,
    Stray,
    StreamComment,
    StreamDone,
    StreamTooLargeError,
)
from tries import tries

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "fixtures/wire/sse_vectors.json").read_text(encoding="utf-8")
)


def pieces(data: bytes, cuts: list[int]) -> list[Piece]:
    parser = SseParser()
    found: list[Piece] = []
    start = 0
    for cut in [*sorted(cuts), len(data)]:
        found += parser.feed(data[start:cut])
        start = cut
    return found


def events(found: list[Piece]) -> list[tuple[str, str]]:
    return [(piece.type, piece.data) for piece in found if isinstance(piece, Event)]


def oracle(data: bytes) -> list[tuple[str, str]]:
    """The rules of the standard, applied to the decoded stream as a whole."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    found, buffer, kind = [], "", ""
    for line in re.split("\r\n|\r|\n", text)[:-1]:
        if line == "":
            if buffer:
                found.append((kind or "message", buffer[:-1]))
            buffer = kind = ""
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if name == "data":
                buffer += value + "\n"
            elif name == "event":
                kind = value
    return found


def splits(data: bytes) -> list[list[int]]:
    dice = random.Random(len(data))
    ways = [[], list(range(1, len(data)))]
    return ways + [sorted(dice.choices(range(len(data) + 1), k=n)) for n in (1, 3, 9)]


def test_there_are_31_vectors() -> None:
    assert len(VECTORS) == 31


@corpus("vector", VECTORS)
def test_a_vector_gives_its_events_in_every_split(vector: dict[str, Any]) -> None:
    data = base64.b64decode(vector["bytes_b64"])
    expected = [(event["type"], event["data"]) for event in vector["events"]]
    for cuts in splits(data):
        assert events(pieces(data, cuts)) == expected
    assert oracle(data) == expected


FRAGMENTS = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\n\n",
    b":",
    b": ping",
    b" ",
    b"data",
    b"data:",
    b"data: ",
    b"event: error",
    b"event",
    b"id: 1",
    b"retry: 5",
    b'{"a":1}',
    b"x",
    b"\x00",
    "\u2028".encode(),
    "\u0085".encode(),
    b"\x0b\x1c",
    "\U0001f600".encode(),
    b"\xff",
    b"\xe2\x80",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"[DONE]",
]


@settings(max_examples=5000, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=4)), max_size=40).map(b"".join),
    st.lists(st.integers(0, 120), max_size=6),
)
def test_any_bytes_in_any_split_mean_what_the_standard_says(data: bytes, cuts: list[int]) -> None:
    assert events(pieces(data, cuts)) == oracle(data)


def test_random_streams_in_random_splits_mean_what_the_standard_says() -> None:
    dice = random.Random(20_261)
    for _ in range(tries("sse_streams", 100_000)):
        data = b"".join(dice.choices(FRAGMENTS, k=dice.randrange(30)))
        cuts = [dice.randrange(len(data) + 1) for _ in range(dice.randrange(6))]
        found = events(pieces(data, cuts))
        assert found == oracle(data), (data, cuts)


def test_comments_and_bare_json_are_reported_in_order() -> None:
    data = b': keepalive 5/10\n\n:\n\ndata: x\n\n{"error":"m"}\nfoo: bar\n\n'
    for cuts in splits(data):
        assert pieces(data, cuts) == [
            StreamComment("keepalive 5/10"),
            StreamComment(""),
            Event("x"),
            Stray('{"error":"m"}'),
        ]


@pytest.mark.parametrize(
    ("limits", "data"),
    [
        ({"line_limit": 10}, b"data: 12345"),
        ({"line_limit": 10}, b"data: 12345\n\n"),
        ({"event_limit": 10}, b"data: 12345\ndata: 67890\n\n"),
        ({"answer_limit": 30}, b"data: b\n\ndata: c\n\ndata: d\n\n"),
    ],
)
def test_what_is_too_large_stops_after_what_was_good(limits: dict[str, int], data: bytes) -> None:
    for size in (1, 7, len(data)):
        parser, found = SseParser(**limits), list[Piece]()
        found += parser.feed(b"data: a\n\n")
        with pytest.raises(StreamTooLargeError):
            for start in range(0, len(data), size):
                found.extend(parser.feed(data[start : start + size]))
        assert found[0] == Event("a")


def test_a_line_of_7_mib_passes_whatever_the_chunks() -> None:
    line = b"data: " + b"x" * (7 << 20) + b"\n\n"
    for size in (1000, 65_536, len(line)):
        parser = SseParser()
        found = [piece for start in range(0, len(line), size) for piece in parser.feed(line[start : start + size])]
        assert len(found) == 1 and isinstance(found[0], Event) and len(found[0].data) == 7 << 20


def test_comments_reach_whoever_asks_for_them_in_any_split_and_are_no_values() -> None:
    data = b': keepalive 0/7\n\ndata: {"a":1}\n: keepalive 7/7\n\ndata: [DONE]\n\n'
    for cuts in splits(data):
        decoder = Decoder("text/event-stream")
        heard: list[str] = []
        decoder.on_comment = heard.append
        values = [item for start, end in pairwise([0, *cuts, len(data)]) for item in decoder.feed(data[start:end])]
        assert heard == ["keepalive 0/7", "keepalive 7/7"]
        assert values == [Payload({"a": 1}), StreamDone()]


@pytest.mark.parametrize("first", ["[warn] one slot\n\n", "{\0\n", "\r\n[\r\n", '{"a":1,\n"b":2}\n'])
def test_events_are_read_behind_a_line_that_looks_like_json_in_any_split(first: str) -> None:
    stream = f'{first}data: {{"a":1}}\n\ndata: [DONE]\n\n'
    own = [Payload({"a": 1, "b": 2})] if "b" in first else []
    for data in (stream.encode(), stream.replace("\n", "\r").encode()):
        for cuts in splits(data):
            decoder = Decoder("text/event-stream")
            values = [item for start, end in pairwise([0, *cuts, len(data)]) for item in decoder.feed(data[start:end])]
            assert values == [*own, Payload({"a": 1}), StreamDone()]
