"""Several answers to one request come mixed: each gets its own text, figures and end, however they are mixed."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kvchat.backends.answer import Alternatives
from kvchat.backends.dialect import ChatTurn, Ended, HostClass, OfAlternative, Reported, ServerInfo, TextDelta
from kvchat.backends.dialects.llamacpp import LlamaCppBackend
from kvchat.backends.http.endpoint import BaseUrl, Endpoint, ResolvedServer
from kvchat.backends.http.stream import Payload
from kvchat.backends.kinds import KINDS
from kvchat.prompt.message import Message, Role, State

QUESTION = Message(Role.USER, "Go on").wire()
FINISH = {"stop": State.DONE, "length": State.LENGTH}


def part(at: int, finish: str | None = None, **delta: object) -> dict[str, object]:
    return {"choices": [{"index": at, "delta": delta, "finish_reason": finish}]}


def end(at: int, count: int, finish: str) -> list[dict[str, object]]:
    """As llama.cpp sends it in one go: the finish with its number, the figures without."""
    return [
        part(at, finish),
        {
            "choices": [],
            "usage": {"prompt_tokens": 40, "completion_tokens": count},
            "timings": {
                "cache_n": 10,
                "prompt_n": 30,
                "prompt_ms": 5.0,
                "predicted_n": count,
                "predicted_ms": 2.0 * count,
            },
        },
    ]


@given(st.data())
def test_every_mixture_gives_each_answer_its_own(data: st.DataObject) -> None:
    texts = data.draw(
        st.lists(st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=6), min_size=2, max_size=5)
    )
    finishes = [data.draw(st.sampled_from(sorted(FINISH))) for _ in texts]
    order = data.draw(st.permutations([at for at, words in enumerate(texts) for _ in words]))
    sizes = data.draw(st.booleans())
    heard: dict[int, list[object]] = {at: [] for at in range(len(texts))}

    def hear(event: object) -> None:
        assert isinstance(event, OfAlternative)
        assert not heard[event.at] or not isinstance(heard[event.at][-1], Ended), "nothing comes behind the end"
        heard[event.at].append(event.event)

    answer = Alternatives("http://host", hear, None, len(texts))
    left = [list(words) for words in texts]
    for at in order:
        answer.take(Payload(part(at, content=left[at].pop(0))))
        if not left[at]:
            for value in end(at, len(texts[at]), finishes[at]):
                if sizes or value["choices"]:
                    answer.take(Payload(value))
    assert answer.finished
    answer.ended()
    for at, words in enumerate(texts):
        assert "".join(event.text for event in heard[at] if isinstance(event, TextDelta)) == "".join(words)
        *_, last = heard[at]
        assert isinstance(last, Ended)
        assert last.state is (FINISH[finishes[at]] if "".join(words).strip() else State.EMPTY), (
            "white space only is empty"
        )
        reported = [event for event in heard[at] if isinstance(event, Reported)]
        assert reported == ([Reported(40, 10, len(words), 5.0, 2.0 * len(words))] if sizes else [])


def test_a_request_asks_for_as_many_and_only_where_the_slots_are_known() -> None:
    backend = LlamaCppBackend(
        Endpoint(BaseUrl("http", "127.0.0.1", 9), ResolvedServer(HostClass.LOOPBACK, ("127.0.0.1",)))
    )
    assert json.loads(backend.body(ChatTurn((QUESTION,), "s", "m", answers=3)))["n"] == 3
    assert "n" not in json.loads(backend.body(ChatTurn((QUESTION,), "s", "m")))

    def most(kind: str, slots: int | None, replicas: bool = False) -> int:
        return ServerInfo(kind, "http://127.0.0.1:9", HostClass.LOOPBACK, slots=slots, replicas=replicas).most_answers

    assert {kind for kind in KINDS if most(kind, 4) == 4} == {"llama.cpp"}
    assert (most("llama.cpp", None), most("llama.cpp", 4, replicas=True)) == (1, 1)
