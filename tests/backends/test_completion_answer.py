"""The answer of llama.cpp's `/completion`: its thoughts, its ids and its end are those of a chat answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.backends.calls import CallShape
from kvchat.backends.completion import CompletionAnswer, completion_fields, schema_of
from kvchat.backends.dialect import (
    BackendError,
    CallWritten,
    HostClass,
    Progressed,
    ReasoningDelta,
    Sampled,
    ServerInfo,
    TextDelta,
    TokenPrompt,
)
from kvchat.backends.http.payload import Model
from kvchat.backends.http.stream import Payload
from kvchat.cache.tokens import Tokens
from kvchat.prompt.message import State
from kvchat.prompt.thoughts import NO_TAGS, Thoughts, ThoughtTags, tags_in

TAGS = ThoughtTags("<think>", "</think>", "\n</think>\n\n")


def part(text: str = "", *ids: int, **more: object) -> dict[str, object]:
    return {"index": 0, "content": text, "tokens": list(ids), "stop": False, **more}


def end(stop_type: str, **more: object) -> dict[str, object]:
    return {"index": 0, "content": "", "tokens": [], "stop": True, "stop_type": stop_type, "model": "qwen", **more}


def read(*parts: dict[str, object], begins: str = "start", tags: ThoughtTags = TAGS, window: int | None = None):
    """The text, the reasoning, the ids, how it ended."""
    told: list[object] = []
    answer = CompletionAnswer("http://127.0.0.1", told.append, window, TokenPrompt(Tokens([1]), begins, tags))
    for one in parts:
        answer.take(Payload(one))
    ended = answer.ended()
    return (
        "".join(e.text for e in told if isinstance(e, TextDelta)),
        "".join(e.text for e in told if isinstance(e, ReasoningDelta)),
        [id for e in told if isinstance(e, Sampled) for id in e.ids],
        ended,
        told,
    )


def test_a_whole_answer_with_a_thought():
    text, thought, ids, ended, _ = read(
        part("<th", 1),
        part("ink>\nI", 2),
        part(" think", 3),
        part("\n</thi", 4),
        part("nk>", 5),
        part("\n\n", 6),
        part("So", 7),
        part(" be it. ", 8),
        part("", 9),
        end("eos"),
    )
    assert (text, thought, ids, ended.state, ended.model) == (
        "So be it. ",
        "I think",
        [1, 2, 3, 4, 5, 6, 7, 8],
        State.DONE,
        "qwen",
    )


def test_a_thought_that_the_prompt_opened_and_one_that_is_empty():
    assert read(part("hm</think>\n\nYes", 1), end("eos"), begins="thought")[:2] == ("Yes", "hm")
    assert read(part("<think>\n\n</think>\n\nYes", 1), end("eos"))[:2] == ("Yes", "")
    assert read(part("  Yes <think>", 1), end("eos"))[:2] == ("  Yes <think>", "")
    assert read(part("more</think> x", 1), end("eos"), begins="answer")[:2] == ("more</think> x", "")


@pytest.mark.parametrize(
    ("stop_type", "ids", "state"),
    [("eos", [1, 2], State.DONE), ("word", [1], State.DONE), ("limit", [1, 2, 3], State.LENGTH)],
)
def test_what_belongs_to_the_answer_is_kept(stop_type, ids, state):
    """The token that ends it is the template's; a stop word is not shown, so the model does not see it either."""
    _, _, found, ended, _ = read(part("abc", 1), part("", 2), part("", 3), end(stop_type))
    assert (found, ended.state) == (ids, state)


def test_progress_has_no_tokens_and_figures_are_read():
    progress = {"total": 6, "cache": 2, "processed": 6, "time_ms": 1}
    timings = {"cache_n": 2, "prompt_n": 4, "predicted_n": 5, "prompt_ms": 3.0, "predicted_ms": 4.0}
    _, _, ids, ended, told = read(
        part("", 0, prompt_progress=progress, timings=timings), part("a", 7), end("limit", timings=timings), window=11
    )
    assert ids == [7] and any(isinstance(event, Progressed) for event in told)
    assert ended.state is State.CONTEXT_FULL


def test_an_error_and_a_stream_that_breaks_off():
    answer = CompletionAnswer("http://127.0.0.1", lambda event: None, None, TokenPrompt(Tokens([1])))
    with pytest.raises(BackendError):
        answer.take(Payload({"error": {"code": 500, "message": "no room", "type": "server_error"}}))
    text, thought, ids, ended, _ = read(part("<think>hm ", 1), part("and </th", 2), part("", 3))
    assert (text, thought, ids, ended.state) == ("", "hm and </th", [1, 2], State.INTERRUPTED)


@pytest.mark.parametrize(
    ("shape", "pieces", "seen"),
    [
        (
            CallShape.OBJECT,
            (
                "I look.",
                "<tool",
                '_call>\n{"name": "read_f',
                'ile", "arguments": {"pa',
                'th": "a.txt"}}',
                "</tool_call>",
            ),
            [("read_file", '{"pa'), *[("read_file", '{"path": "a.txt"}}')] * 2],
        ),
        (
            CallShape.PARAMETERS,
            ("<tool_call>\n<func", "tion=read_file>\n<parameter=path>\na", ".txt\n</parameter>"),
            [("read_file", "<parameter=path>\na"), ("read_file", "<parameter=path>\na.txt\n</parameter>")],
        ),
        (
            CallShape.CHANNELS,
            ("<|channel|>commentary to=functions.read_file <|message|>", '{"path"', ': "a.txt"}'),
            [("read_file", ""), ("read_file", '{"path"'), ("read_file", '{"path": "a.txt"}')],
        ),
        (CallShape.OBJECT, ("The tag ", "<tool_call>", " begins a call."), []),
        (CallShape.OBJECT, ("a <", "b"), []),
    ],
)
def test_a_call_is_told_while_it_is_written(shape, pieces, seen):
    told: list[object] = []
    prompt = TokenPrompt(Tokens([1]), "start", NO_TAGS, calls=shape)
    answer = CompletionAnswer("http://127.0.0.1", told.append, None, prompt)
    for id, text in enumerate(pieces):
        answer.take(Payload(part(text, id)))
    assert [
        (one.call.name, one.call.arguments) for one in told if isinstance(one, CallWritten) and one.call.name
    ] == seen


@given(
    st.lists(st.sampled_from([" ", "\n", "a", "<", "</", "think>", "<think>", "</think>", "b c"]), max_size=14),
    st.sampled_from(["start", "thought", "answer"]),
    st.data(),
)
def test_it_does_not_matter_how_a_text_comes(pieces, begins, data):
    whole = "".join(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)))))
    parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]

    def split(texts):
        thoughts, found = Thoughts(TAGS, begins), {"content": "", "reasoning_content": ""}
        for kind, words in [*(one for text in texts for one in thoughts.take(text)), *thoughts.ended()]:
            found[kind] += words
        return found

    told = split(parts)
    assert told == split([whole])
    thought, rest = "", whole
    opened = begins == "start" and whole.lstrip().startswith(TAGS.begin)
    if opened or begins == "thought":
        thought, _, rest = (whole.lstrip()[len(TAGS.begin) :] if opened else whole).partition(TAGS.end)
    assert "".join(told["reasoning_content"].split()) == "".join(thought.split())
    assert "".join(told["content"].split()) == "".join(rest.split())


def test_tags_are_those_of_the_template():
    def seen(rendered: str) -> ThoughtTags:
        return tags_in(rendered, "Hmm", "Yes")

    assert seen("<|im_start|>assistant\n<think>\nHmm\n</think>\n\nYes") == TAGS
    assert seen("[INST]hi[/INST][THINK]Hmm[/THINK]Yes") == ThoughtTags("[THINK]", "[/THINK]", "[/THINK]")
    assert seen("<|channel|>analysis<|message|>Hmm<|end|><|start|>assistant<|message|>Yes") == NO_TAGS
    assert seen("assistant\nYes") == NO_TAGS == seen("")
    assert TAGS.leaves_open("assistant\n<think>\n") and not TAGS.leaves_open("<think>\n\n</think>\n\n")
    assert not NO_TAGS.leaves_open("")


def test_the_fields_of_a_request():
    head = {"model": "qwen", "stream": True, "cache_prompt": True, "stream_options": {}, "chat_template_kwargs": {}}
    tail = {"temperature": 0.5, "max_tokens": 7, "response_format": {"type": "json_object"}, "grammar": "root"}
    assert completion_fields(head, TokenPrompt(Tokens([4, 5]), "start", TAGS), tail) == {
        "model": "qwen",
        "stream": True,
        "cache_prompt": True,
        "prompt": [4, 5],
        "return_tokens": True,
        "preserved_tokens": ["<think>", "</think>"],
        "temperature": 0.5,
        "n_predict": 7,
        "json_schema": {},
        "grammar": "root",
    }
    assert schema_of({"type": "json_schema", "json_schema": {"schema": {"type": "array"}}}) == {"type": "array"}
    assert schema_of({"type": "text"}) is None and schema_of(None) is None


def test_which_servers_are_sent_token_ids():
    """llama.cpp on the person's own machines, where no template option keeps what was thought."""

    def server(**more: object) -> ServerInfo:
        return replace(
            ServerInfo(
                "llama.cpp",
                "http://127.0.0.1:8080",
                HostClass.LOOPBACK,
                "qwen",
                (Model("qwen", vocabulary=151936), Model("other")),
            ),
            **more,
        )

    assert server().vocabulary("") == server().vocabulary("qwen") == "qwen 151936"
    assert server(host_class=HostClass.LAN).vocabulary("qwen")
    assert not server().vocabulary("other") and not server().vocabulary("missing")
    for other in (
        server(kind="ollama"),
        server(kind="llama-swap"),
        server(host_class=HostClass.CLOUD),
        server(replicas=True),
        server(reasoning_option=("preserve_reasoning", True)),
    ):
        assert other.vocabulary("qwen") == ""
