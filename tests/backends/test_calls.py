"""Calls of tools in an answer's own text: read as a server would give them, however the text comes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_templates import CALLING, CHATML, FORGETFUL
from corpus import corpus
from kvchat.backends.calls import CallShape, shape_in
from kvchat.backends.completion import CompletionAnswer, completion_fields
from kvchat.backends.dialect import Ended, ReasoningDelta, TextDelta, TokenPrompt
from kvchat.backends.http.stream import Payload
from kvchat.cache.tokens import Tokens
from kvchat.prompt.message import State
from kvchat.prompt.thoughts import Begins, ThoughtTags
from kvchat.prompt.tools import ToolDefinition, frozen_tools

TAGS = ThoughtTags("<think>", "</think>", "\n</think>\n\n")
ARGUMENTS = {
    "query": {"type": "string"},
    "count": {"type": "integer"},
    "place": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "exact": {"type": "boolean"},
    "odd": {"type": {"a": 1}, "anyOf": None},
}
TOOLS = frozen_tools([ToolDefinition("search", "Search.", {"type": "object", "properties": ARGUMENTS})])
OBJECT, PARAMETERS, CHANNELS = CallShape.OBJECT, CallShape.PARAMETERS, CallShape.CHANNELS


def read(
    shape: CallShape, *texts: str, begins: Begins = "start", stop: str = "eos"
) -> tuple[str, str, list[tuple[str, str]], Ended]:
    """The text, the reasoning, the calls, how it ended."""
    told: list[object] = []
    prompt = TokenPrompt(Tokens([1]), begins, TAGS, shape, TOOLS)
    answer = CompletionAnswer("http://127.0.0.1", told.append, None, prompt)
    for text in texts:
        answer.take(Payload({"content": text, "tokens": [1], "stop": False}))
    answer.take(Payload({"content": "", "tokens": [], "stop": True, "stop_type": stop}))
    ended = answer.ended()
    return (
        "".join(event.text for event in told if isinstance(event, TextDelta)),
        "".join(event.text for event in told if isinstance(event, ReasoningDelta)),
        [(call.name, call.arguments) for call in ended.calls],
        ended,
    )


@corpus(
    ("shape", "text", "thought", "said", "calls"),
    [
        (
            OBJECT,
            '<think>\nhm\n</think>\n\nLet me look.\n<tool_call>\n{"name": "search", "arguments": {"query":  "a b"}}\n'
            "</tool_call>",
            "hm",
            "Let me look.",
            [("search", '{"query":  "a b"}')],
        ),
        (
            OBJECT,
            '<tool_call>{"name":"a","arguments":{}}</tool_call>\n<tool_call>{"name":"b"}</tool_call>\n',
            "",
            "",
            [("a", "{}"), ("b", "{}")],
        ),
        (
            PARAMETERS,
            "<tool_call>\n<function=search>\n<parameter=query>\n12\n</parameter>\n<parameter=count>\n3\n</parameter>\n"
            "</function>\n</tool_call>",
            "",
            "",
            [("search", '{"query": "12", "count": 3}')],
        ),
        (
            PARAMETERS,
            "<tool_call><function=search><parameter=place>12</parameter><parameter=exact>True</parameter><parameter=odd>[1]</parameter></function>"
            "</tool_call> <tool_call><function=search><parameter=place>null</parameter></function></tool_call>",
            "",
            "",
            [("search", '{"place": "12", "exact": true, "odd": [1]}'), ("search", '{"place": null}')],
        ),
        (
            OBJECT,
            '<tool_call>{"name": "a", "arguments": {"x": "</tool_call><tool_call>"}}</tool_call> Done.',
            "",
            " Done.",
            [("a", '{"x": "</tool_call><tool_call>"}')],
        ),
        (
            OBJECT,
            '<tool_call>{"name": "a", "arguments": "{\\"x\\": 1}"}</tool_call>'
            '<tool_call>{"name": "b", "parameters": {"x": 2}}</tool_call>'
            '<tool_call>{"name": "c", "arguments": null}</tool_call>',
            "",
            "",
            [("a", '{"x": 1}'), ("b", '{"x": 2}'), ("c", "{}")],
        ),
        (
            PARAMETERS,
            "<tool_call>\n<function=other>\n<parameter=lines>\nx = 1\n\ny = 2\n</parameter>\n</function>\n</tool_call>",
            "",
            "",
            [("other", '{"lines": "x = 1\\n\\ny = 2"}')],
        ),
        (
            CHANNELS,
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>Let me look."
            "<|end|><|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>"
            '{"query": "a"}',
            "hm",
            "Let me look.",
            [("search", '{"query": "a"}')],
        ),
        (
            CHANNELS,
            ' to=functions.search<|channel|>commentary json<|message|>{"query": "a"}<|call|>',
            "",
            "",
            [("search", '{"query": "a"}')],
        ),
        (
            CHANNELS,
            "<|channel|>analysis<|message|>a < b<|end|><|start|>assistant<|channel|>final<|message|>Yes <|b|>.",
            "a < b",
            "Yes <|b|>.",
            [],
        ),
        (CHANNELS, "No channel at all.", "", "No channel at all.", []),
        (
            CHANNELS,
            "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
            "",
            "Let me see.\n\nYes.",
            [],
        ),
        (
            CHANNELS,
            "<|channel|>commentary to=functions.a<|message|>{}<|end|><|start|>assistant to=functions.b<|message|>{}",
            "",
            "",
            [("a", "{}")],
        ),
        (OBJECT, "A model writes <tool_call> and then <tool", "", "A model writes <tool_call> and then <tool", []),
        (OBJECT, " a < b  ", "", " a < b  ", []),
    ],
)
def test_what_an_answer_says_and_calls(shape, text, thought, said, calls):
    for texts in ([text], list(text)):
        assert read(shape, *texts)[:3] == (said, thought, calls)


def test_a_text_that_speaks_of_calls_comes_as_it_is_written():
    told: list[object] = []
    answer = CompletionAnswer("http://127.0.0.1", told.append, None, TokenPrompt(Tokens([1]), calls=OBJECT))
    answer.take(Payload({"content": "A model writes <tool_call> and then more.", "tokens": [1], "stop": False}))
    assert "".join(event.text for event in told if isinstance(event, TextDelta)).endswith("and then more.")


def test_while_a_call_is_written_the_answer_has_begun_and_goes_on():
    told: list[object] = []
    answer = CompletionAnswer("http://127.0.0.1", told.append, None, TokenPrompt(Tokens([1]), calls=OBJECT))
    for number, text in enumerate(('<tool_call>{"na', 'me": "a"}')):
        answer.take(Payload({"content": text, "tokens": [number], "stop": False}))
        assert answer.has_begun and answer.moves == number + 1
    assert [event for event in told if isinstance(event, TextDelta)] == [TextDelta("")]


def test_what_ends_an_answer_is_no_mark_of_it():
    """A server sends the text of a token that is to be kept, and that one would be taken for a part of the answer."""
    assert {"<|call|>", "<|return|>"}.isdisjoint(CHANNELS.marks)


def test_where_a_prompt_has_opened_a_message():
    assert read(CHANNELS, "hm<|end|><|start|>assistant<|channel|>final<|message|>Yes", begins="thought")[:2] == (
        "Yes",
        "hm",
    )
    assert read(CHANNELS, '{"a": 1}', begins="answer")[:3] == ('{"a": 1}', "", [])


@pytest.mark.parametrize(
    ("shape", "text", "name"),
    [
        (OBJECT, '<tool_call>\n{"name": "search", "arguments": {"query": "a', "search"),
        (OBJECT, '<tool_call>\n{"name": "search", "arguments": {query: 1}}\n</tool_call>', "search"),
        (OBJECT, '<tool_call>\n{"name": "search", "arguments": ' + "[" * 50_000, "search"),
        (PARAMETERS, "<tool_call>\n<function=search>\n<parameter=query>\na", "search"),
        (CHANNELS, '<|channel|>commentary to=functions.search json<|message|>{"query": "a', "search"),
    ],
)
def test_a_call_that_is_broken_or_cut_says_so(shape, text, name):
    _, _, _, ended = read(shape, text, stop="limit")
    (call,) = ended.calls
    assert call.name == name
    assert call.fault.startswith("its arguments are not JSON")
    assert ended.state in (State.EMPTY, State.LENGTH)


@given(st.data())
def test_it_does_not_matter_how_a_text_comes(data):
    shape = data.draw(st.sampled_from(list(CallShape)))
    pieces = {
        OBJECT: ["<tool_call>", "</tool_call>", '{"name": "search"}', "<", "tool", " ", "\n", "a", "<think>"],
        PARAMETERS: ["<tool_call>", "</tool_call>", "<function=a>", "</function>", "<parameter=b>", "1", "\n", "<"],
        CHANNELS: [*CHANNELS.marks, "analysis", "final", " to=functions.a", "<|", "x", "<"],
    }[shape]
    whole = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=12)))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)))))
    parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert read(shape, *parts)[:3] == read(shape, whole)[:3]


def test_the_shape_is_that_of_the_template():
    assert {name: shape_in(text) for name, text in CALLING.items()} == {
        "object": OBJECT,
        "parameters": PARAMETERS,
        "channels": CHANNELS,
    }
    assert shape_in(CHATML) is shape_in(FORGETFUL) is shape_in("") is None
    assert shape_in("{{ message.tool_calls }}{{ '<tool_call>' + call.name }}<arg_key>{{ key }}</arg_key>") is None
    assert shape_in('Write <tool_call>\n{"name": ...}\n</tool_call>. {{ message.content }}') is None, "it prints none"


def test_what_a_template_puts_behind_a_call():
    assert OBJECT.behind('"}}\n</tool_call><|im_end|>\n') == "<|im_end|>\n"
    assert CHANNELS.behind('"}<|call|><|start|>tool') == "<|call|><|start|>tool"
    assert OBJECT.behind("<|im_end|>") is CHANNELS.behind("<|im_end|>") is None


def test_the_request_keeps_the_marks_and_leaves_out_the_tools():
    head = {"model": "m", "tools": json.loads(TOOLS), "tool_choice": "none"}
    fields = completion_fields(head, TokenPrompt(Tokens([1]), "start", TAGS, OBJECT, TOOLS), {})
    assert fields.keys().isdisjoint({"tools", "tool_choice"})
    assert fields["preserved_tokens"] == ["<think>", "</think>", "<tool_call>", "</tool_call>"]
