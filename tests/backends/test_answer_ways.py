"""However an answer is written: its text comes whole and once, and it ends in the right state."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answer_ways import WAYS, Way, said
from corpus import corpus
from kvchat.backends import errors
from kvchat.backends.answer import Alternatives, ChatAnswer
from kvchat.backends.dialect import (
    BackendError,
    Ended,
    OfAlternative,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    WasThought,
)
from kvchat.backends.http.stream import Decoder, StreamDone
from kvchat.prompt.message import PLACE, Message, Role, State
from kvchat.prompt.thoughts import end_marks, is_frame
from kvchat.text.notes import note_sentence


class Told:
    """What an answer came to, as a run of it keeps it."""

    def __init__(self) -> None:
        self.text = self.reasoning = ""
        self.field = "reasoning_content"

    def __call__(self, event: StreamEvent | Ended) -> None:
        match event:
            case TextDelta(text):
                self.text += text
            case ReasoningDelta(text, field):
                self.reasoning, self.field = self.reasoning + text, field
            case WasThought(text, field):
                self.text, self.reasoning, self.field = "", text, field

    @property
    def message(self) -> Message:
        return Message(Role.ASSISTANT, self.text, reasoning=self.reasoning, reasoning_field=self.field)


def read(body: bytes, label: str, size: int) -> tuple[Told, Ended]:
    """A body that comes in pieces of this size."""
    told, decoder = Told(), Decoder(label)
    answer = ChatAnswer("http://host", told, None)
    try:
        for start in range(0, len(body), size):
            for item in decoder.feed(body[start : start + size]):
                if isinstance(item, StreamDone):
                    return told, answer.ended()
                answer.take(item)
        for item in decoder.end():
            if not isinstance(item, StreamDone):
                answer.take(item)
    except BackendError as error:
        return told, answer.ended(error)
    return told, answer.ended()


def test_there_are_forty_ways_and_more() -> None:
    assert len(WAYS) >= 40


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "document"])
@corpus("way", WAYS.values())
def test_an_answer_is_read_whole_and_once_from_every_split(way: Way, streamed: bool) -> None:
    body = way.stream() if streamed else way.document()
    for size in (1, 3, 7, 64, len(body)):
        told, ended = read(body, way.label[not streamed], size)
        assert (told.text, told.reasoning, ended.state) == (way.text, way.thought, way.state), size
        assert way.note in note_sentence(ended.note) and bool(ended.note) == (way.state is not State.DONE)
    if PLACE in told.field and streamed:
        came = "".join(delta.get("content") or "" for delta in way.deltas)
        assert json.loads(told.message.wire())["content"] == came, "the wire is as it came"
        assert is_frame(told.field)


@corpus("way", WAYS.values())
def test_each_of_several_answers_is_read_whole_and_once(way: Way) -> None:
    for body, label in ((way.stream(2), way.label[0]), (way.document(2), way.label[1])):
        told = [Told(), Told()]
        ends: list[Ended] = []

        def hear(event: StreamEvent, told: list[Told] = told, ends: list[Ended] = ends) -> None:
            if isinstance(event, OfAlternative):
                told[event.at](event.event)
                ends += [event.event] if isinstance(event.event, Ended) else []

        answer, decoder = Alternatives("http://host", hear, None, 2), Decoder(label)
        error = None
        try:
            for item in [*decoder.feed(body), *decoder.end()]:
                if not isinstance(item, StreamDone):
                    answer.take(item)
        except BackendError as found:
            error = found
        answer.ended(error)
        expected = (way.text, way.thought)
        assert (told[0].text, told[0].reasoning) == expected
        assert ends[0].state is way.state and len(ends) == 2
        if not way.whole and way.state is not State.ERROR:
            assert (told[1].text, told[1].reasoning, ends[1].state) == (*expected, way.state)


@pytest.mark.parametrize(
    ("tail", "state", "words"),
    [
        (b"data: [DONE]\n\n", State.INTERRUPTED, "ended the answer without a reason (finish_reason)"),
        (b"", State.INTERRUPTED, "broke before the answer was complete"),
        (b'data: {"choices":[{"delta":{"con', State.INTERRUPTED, "broke before the answer was complete"),
        (b'data: {"msg":"out of memory"}\n\ndata: [DONE]\n\n', State.ERROR, "out of memory"),
        (b'event: error\ndata: {"msg":"boom"}', State.ERROR, "boom"),
        (b'data: [{"error":{"message":"boom"}}]\n\n', State.ERROR, "boom"),
        (b'data: {"choices":[{"del\n\ndata: {"choices":[{"finish_reason":"stop"}]}\n\n', State.DONE, "came damaged"),
    ],
)
def test_an_answer_that_does_not_end_well_keeps_its_text_and_says_why(tail: bytes, state: State, words: str) -> None:
    part = b'data: {"choices":[{"delta":{"content":"kept"}}]}\n\n'
    told, ended = Told(), None
    answer, decoder = ChatAnswer("http://host", told, None), Decoder("text/event-stream")
    try:
        for item in [*decoder.feed(part + tail), *decoder.end()]:
            if isinstance(item, StreamDone):
                ended = answer.ended(errors.unfinished("http://host"))
                break
            answer.take(item)
    except BackendError as error:
        ended = answer.ended(error)
    ended = ended or answer.ended()
    assert (told.text, ended.state) == ("kept", state) and words in note_sentence(ended.note)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"data: ping\n\n", "something that is not a chat answer"),
        (b'data: {"type":"ping"}\n\n', "something that is not a chat answer"),
        (b'{"detail":"no such model"}', "no such model"),
        (b'{"choices":[{"mess', "broke before the answer was complete"),
    ],
)
def test_what_holds_no_answer_is_no_answer(body: bytes, words: str) -> None:
    told, ended = read(body, "text/event-stream", 5)
    assert ended.state is not State.DONE and not told.text and words in note_sentence(ended.note)


PIECES = st.sampled_from([*"a\n <>[]/|`", "think", "<think>", "</think>", "[/THINK]", "<|im_end|>", "</s>", "```"])


@settings(deadline=None, max_examples=2000)
@given(st.lists(PIECES, max_size=10).map("".join))
def test_of_any_text_nothing_is_lost_or_told_twice(text: str) -> None:
    """What is told, with the frame around its thought, is what came, but for marks at its end."""
    whole, _ = read(said(text).stream(), "text/event-stream", 1 << 20)
    split, _ = read(said(*text).stream(), "text/event-stream", 1 << 20)
    assert (whole.text, whole.reasoning, whole.field) == (split.text, split.reasoning, split.field)
    came = json.loads(whole.message.wire())["content"]
    assert text.startswith(came) and end_marks("-" + text[len(came) :], ended=True) == len(text) - len(came)
