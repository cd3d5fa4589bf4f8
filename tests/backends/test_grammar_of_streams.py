"""Whatever way a server writes an answer: the text whole and once, the right calls, and never a fault of ours."""

from __future__ import annotations

import random

from grammar.streams import Stream, damaged, stream
from kvchat.backends.answer import ChatAnswer
from kvchat.backends.dialect import BackendError, Ended, ReasoningDelta, StreamEvent, TextDelta, WasThought
from kvchat.backends.errors import not_json
from kvchat.backends.http.stream import Decoder, NotAnAnswerError, StreamDone
from kvchat.prompt.message import State
from tries import tries

STREAMS = tries("answer_streams", 600)


class Heard:
    def __init__(self) -> None:
        self.text = self.reasoning = ""

    def __call__(self, event: StreamEvent) -> None:
        match event:
            case TextDelta(text):
                self.text += text
            case ReasoningDelta(text):
                self.reasoning += text
            case WasThought(text):
                self.text, self.reasoning = "", text


def read(found: Stream, seed: int) -> tuple[Heard, Ended]:
    """The answer, from a body that comes in pieces."""
    heard, decoder = Heard(), Decoder(found.label)
    answer = ChatAnswer("http://host", heard, None)
    size = random.Random(seed).choice([1 << 16, 700, 64, 7])
    try:
        for start in range(0, len(found.body), size):
            for item in decoder.feed(found.body[start : start + size]):
                if isinstance(item, StreamDone):
                    return heard, answer.ended()
                answer.take(item)
        for item in decoder.end():
            if not isinstance(item, StreamDone):
                answer.take(item)
    except BackendError as error:
        return heard, answer.ended(error)
    except NotAnAnswerError:
        return heard, answer.ended(not_json("http://host"))
    return heard, answer.ended()


def fault(found: Stream, heard: Heard, ended: Ended) -> str:
    """What is wrong with what was read; empty: nothing."""
    truth = found.truth
    if heard.text.strip() != truth.text:
        return f"text {heard.text!r}, not {truth.text!r}"
    if heard.reasoning.strip() != truth.reasoning:
        return f"reasoning {heard.reasoning!r}, not {truth.reasoning!r}"
    if ended.error is not None or ended.state is State.INTERRUPTED:
        return f"{ended.state}: {ended.error}"
    calls = [(call.name, call.given()) for call in ended.calls]
    if calls != list(truth.calls):
        return f"calls {[(call.name, call.arguments) for call in ended.calls]}, not {truth.calls}"
    ids = [call.id for call in ended.calls if call.id]
    if len({*ids}) < len(ids):
        return f"one id for two calls: {ids}"
    return ""


def test_answers_are_read_as_they_are_meant() -> None:
    for seed in range(STREAMS):
        found = stream(seed)
        wrong = fault(found, *read(found, seed))
        assert not wrong, f"seed {seed}: {wrong}\n{found.ways}\n{found.body.decode(errors='replace')}"


def test_of_what_comes_damaged_nothing_is_invented() -> None:
    for seed in range(STREAMS):
        found = damaged(stream(seed), seed)
        heard, ended = read(found, seed)
        about = f"seed {seed}: {found.ways}"
        assert (ended.error is not None) == (ended.state in (State.ERROR, State.INTERRUPTED)), about
        if "cut" in found.ways:
            assert found.truth.text.startswith(heard.text.strip()), about
            assert found.truth.reasoning.startswith(heard.reasoning.strip()), about
            calls = [(call.name, call.given()) for call in ended.calls]
            assert calls == list(found.truth.calls)[: len(calls)], about
