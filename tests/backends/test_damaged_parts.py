"""A part that a server wrote badly: it is read where its meaning is plain, and else the answer says that it is missing."""

from __future__ import annotations

import json

import pytest
from backend_kit import Heard

from kvchat.backends import errors
from kvchat.backends.answer import ChatAnswer
from kvchat.backends.dialect import BackendError, Ended, Trouble
from kvchat.backends.dialects.ollama.answer import OllamaAnswer, OllamaMemory, OllamaRequest
from kvchat.backends.http.payload import PayloadError, parsed
from kvchat.backends.http.stream import Decoder, StreamDone
from kvchat.prompt.message import State
from kvchat.text.notes import note_sentence

URL = "http://host"
LOST = "came damaged and is missing"
EVENTS, LINES = "text/event-stream", "application/x-ndjson"


def part(text: str, finish: str | None = None) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}).encode()


def line(text: str, *, done: bool = False) -> bytes:
    return json.dumps({"model": "m", "message": {"role": "assistant", "content": text}, "done": done}).encode()


def events(*parts: bytes) -> bytes:
    return b"".join(b"data: " + one + b"\n\n" for one in parts)


def lines(*parts: bytes) -> bytes:
    return b"".join(one + b"\n" for one in parts)


def read(answer: ChatAnswer, body: bytes, label: str, error: BackendError | None = None) -> Ended:
    decoder = Decoder(label)
    try:
        for item in [*decoder.feed(body), *decoder.end()]:
            if not isinstance(item, StreamDone):
                answer.take(item)
    except BackendError as found:
        error = found
    return answer.ended(error)


def of_openai(body: bytes, error: BackendError | None = None, label: str = EVENTS) -> tuple[str, Ended]:
    heard = Heard()
    ended = read(ChatAnswer(URL, heard, None), body, label, error)
    return heard.text, ended


def of_ollama(body: bytes, error: BackendError | None = None) -> tuple[str, Ended]:
    heard = Heard()
    asked = OllamaRequest("m", "s", (), {}, "", lambda: 0.0)
    ended = read(OllamaAnswer(URL, heard, asked, OllamaMemory()), body, LINES, error)
    return heard.text, ended


@pytest.mark.parametrize("control", ["\t", "\x1b", "\x07", "\x00", "\x0c", "\x1f"])
def test_a_control_character_that_stands_as_it_is_belongs_to_the_text(control: str) -> None:
    def rough(found: bytes) -> bytes:
        return found.replace(b"@", control.encode())

    for text, ended in (
        of_openai(rough(events(part("one"), part(" t@wo "), part("three", "stop")))),
        of_ollama(rough(lines(line("one"), line(" t@wo "), line("three", done=True)))),
    ):
        assert (text, ended.state, ended.note) == (f"one t{control}wo three", State.DONE, None)
    document = b'{"choices":[{"message":{"content":"one t@wo three"},"finish_reason":"stop"}]}'
    assert of_openai(rough(document), label="application/json")[0] == f"one t{control}wo three"


def test_line_ends_in_a_document_belong_to_the_text() -> None:
    text, ended = of_openai(
        b'{"choices":[{"message":{"content":"a\n\tb\r\nc"},"finish_reason":"stop"}]}', label="application/json"
    )
    assert (text, ended.state) == ("a\n\tb\r\nc", State.DONE)


DAMAGED = {
    "cut": b'{"choices":[{"delta":{"content":"lo',
    "a quotation mark": b'{"choices":[{"delta":{"content":"say "lost""}}]}',
    "Python's quotes": b"{'choices': [{'delta': {'content': 'lost'}}]}",
    "a bad escape": b'{"choices":[{"delta":{"content":"lost \\x1b"}}]}',
    "without its beginning": b'"choices":[{"delta":{"content":"lost"}}]}',
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize(
    ("finish", "state"),
    [("stop", State.DONE), ("length", State.LENGTH), ("content_filter", State.INTERRUPTED)],
)
def test_a_part_that_cannot_be_read_is_told_however_the_answer_ends(damage: bytes, finish: str, state: State) -> None:
    text, ended = of_openai(events(part("one "), damage, part("three", finish)))
    assert (text, ended.state) == ("one three", state)
    assert note_sentence(ended.note).count(LOST) == 1


def test_a_part_that_cannot_be_read_is_told_of_a_cut_answer() -> None:
    body = events(part("one "), DAMAGED["cut"], part("three"))
    _, ended = of_openai(body, errors.cut(URL, before_answer=False))
    assert ended.error is not None and ended.error.trouble is Trouble.CUT
    assert note_sentence(ended.note).startswith("The connection to") and LOST in note_sentence(ended.note)


def test_where_the_line_broke_inside_a_part_only_that_is_told() -> None:
    _, ended = of_openai(events(part("one "), DAMAGED["cut"]), errors.cut(URL, before_answer=False))
    assert LOST not in note_sentence(ended.note)


def test_a_sign_of_life_is_no_damaged_part() -> None:
    for alive in (b"keepalive", b"[ping]", b": 12", b"processing {...}"):
        _, ended = of_openai(events(part("one "), alive, part("two", "stop")))
        assert ended.note is None


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_line_of_ollama_that_cannot_be_read_is_told_wherever_it_is(place: int) -> None:
    parts = [line("one"), line("two"), line("three")]
    parts[place] = b'{"model":"m","message":{"content":"say "lost""},"done":false}'
    text, ended = of_ollama(lines(*parts, line("", done=True)))
    assert text == "".join(["one", "two", "three"][:place] + ["one", "two", "three"][place + 1 :])
    assert ended.state is State.DONE and LOST in note_sentence(ended.note)


def test_a_damaged_line_between_events_is_told() -> None:
    body = events(part("one ")) + b'{"choices":[{"delta":{"content":"say "lost""}}]}\n\n' + events(part("two", "stop"))
    text, ended = of_openai(body)
    assert text == "one two" and LOST in note_sentence(ended.note)


def test_what_is_no_json_stays_none() -> None:
    for text in ("{'a': 1}", '{"a": 1,}', '{"a": "\\x"}', "{a: 1}", '"'):
        with pytest.raises(PayloadError):
            parsed(text)


# -- an answer that is not alone, and one without words


@pytest.mark.parametrize("first", [0, 1])
def test_two_answers_in_one_stream_are_not_mixed(first: int) -> None:
    def of(index: int, text: str, finish: str | None = None) -> dict[str, object]:
        return {"index": index, "delta": {"content": text}, "finish_reason": finish}

    other = 1 - first
    body = events(
        json.dumps({"choices": [of(first, "one "), of(other, "eins ")]}).encode(),
        json.dumps({"choices": [of(other, "zwei", "length")]}).encode(),
        json.dumps({"choices": [of(first, "two", "stop")]}).encode(),
    )
    text, ended = of_openai(body)
    assert (text, ended.state) == ("one two", State.DONE)


@pytest.mark.parametrize(
    ("finish", "tokens", "said"),
    [
        ("stop", 12, "The model answered nothing (12 tokens, none visible). Try again."),
        (
            "length",
            12,
            "The model answered nothing (12 tokens, none visible): cut at max tokens. Try again, or raise max_tokens.",
        ),
        ("stop", None, "The model answered nothing. Try again."),
        ("stop", 0, "The model answered nothing. Try again."),
    ],
)
def test_of_an_empty_answer_what_is_known_is_told(finish: str, tokens: int | None, said: str) -> None:
    usage = json.dumps({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": tokens}}).encode()
    _, ended = of_openai(events(part("", finish), usage))
    assert ended.state is State.EMPTY and note_sentence(ended.note) == said
