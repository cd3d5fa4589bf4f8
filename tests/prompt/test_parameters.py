"""Sampling parameters: what goes out, what never can, and how they are put over each other and kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus import corpus
from kvchat.prompt.request import RESERVED, Parameters, chat_body, merged, reserved
from kvchat.prompt.wire import canonical
from kvchat.store.rows import parameters_of, parameters_to_json

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.one_of(
    st.sampled_from(sorted(RESERVED)),
    st.sampled_from(sorted(RESERVED)).map(str.upper),
    st.sampled_from(["meſſages", "temperature", "seed", "mirostat", 'a":1,"messages', "messages ", "\ud800"]),
    st.text(max_size=8),
)
TABLES = st.dictionaries(NAMES, JSON, max_size=4)
NUMBERS = st.none() | st.floats(-10, 10)
WHOLE = st.none() | st.integers(-1, 2**31)
STOPS = st.lists(st.text(min_size=1, max_size=8) | st.just('"messages":['), max_size=2).map(tuple)
PARAMETERS = st.builds(
    Parameters,
    temperature=NUMBERS,
    top_p=NUMBERS,
    top_k=WHOLE,
    min_p=NUMBERS,
    presence_penalty=NUMBERS,
    frequency_penalty=NUMBERS,
    repeat_penalty=NUMBERS,
    seed=WHOLE,
    max_tokens=WHOLE,
    stop=STOPS,
    extra=TABLES,
    response_format=st.none() | TABLES.filter(bool),
)
WIRES = st.lists(st.text(max_size=12).map(lambda text: canonical({"role": "user", "content": text})), max_size=3)
HEAD = {"model": "m", "session_id": "s", "stream": True}


@given(PARAMETERS, WIRES)
def test_no_parameter_changes_what_stands_before_the_end_of_the_messages(
    parameters: Parameters, wires: list[bytes]
) -> None:
    plain = chat_body(HEAD, wires, {})
    body = chat_body(HEAD, wires, parameters.given())
    assert body.startswith(plain[:-1])
    pairs: list[tuple[str, Any]] = json.loads(body, object_pairs_hook=list)
    names = [name.casefold() for name, _ in pairs]
    for name in (*HEAD, "messages"):
        assert names.count(name) == 1
    assert json.loads(body)["messages"] == [json.loads(wire) for wire in wires]


@given(PARAMETERS)
def test_no_parameter_sends_a_field_of_the_prompt_the_session_or_the_stream(parameters: Parameters) -> None:
    sent = parameters.given()
    assert not {name.casefold() for name in sent} & RESERVED.keys()
    assert all(sent[name] == value for name, value in parameters.extra.items() if reserved(name) is None)


@corpus(
    "name",
    [
        "messages",
        "Messages",
        "MEſſAGES",
        "model",
        "stream",
        "stream_options",
        "session_id",
        "tools",
        "n",
        "id_slot",
        "cache_prompt",
        "cache_salt",
        "prompt_cache_key",
        "chat_template_kwargs",
        "reasoning_effort",
        "enable_thinking",
        "truncate_prompt_tokens",
        "prompt_logprobs",
        "lora",
        "num_ctx",
        "keep_alive",
    ],
)
def test_a_field_that_would_cost_the_cache_is_closed_with_a_reason(name: str) -> None:
    assert reserved(name)
    assert Parameters(extra={name: 1}).given() == {}


def test_parameters_go_out_in_a_fixed_order_and_what_is_not_set_is_left_to_the_server() -> None:
    assert Parameters().given() == {}
    parameters = Parameters(
        extra={"mirostat": 2}, response_format={"type": "json_object"}, stop=("###",), seed=4, temperature=0.0
    )
    assert list(parameters.given().items()) == [
        ("temperature", 0.0),
        ("seed", 4),
        ("stop", ["###"]),
        ("response_format", {"type": "json_object"}),
        ("mirostat", 2),
    ]


@given(PARAMETERS, PARAMETERS)
def test_parameters_put_over_others_send_both_and_win_where_both_say_something(
    base: Parameters, over: Parameters
) -> None:
    assert merged(base, over).given() == {**base.given(), **over.given()}
    assert merged(base, Parameters()) == merged(Parameters(), base) == base


@given(PARAMETERS, PARAMETERS, PARAMETERS)
def test_it_does_not_matter_which_two_are_put_together_first(a: Parameters, b: Parameters, c: Parameters) -> None:
    assert merged(merged(a, b), c) == merged(a, merged(b, c))


@given(PARAMETERS)
def test_stored_parameters_come_back(parameters: Parameters) -> None:
    assert parameters_of(parameters_to_json(parameters) or "").given() == json.loads(canonical(parameters.given()))


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ('{"temperature":0.5,"stop":["a"],"extra":{"x":1}}', Parameters(temperature=0.5, stop=("a",), extra={"x": 1})),
        ('{"top_p":0.9,"of_a_later_version":1}', Parameters(top_p=0.9)),
        ('{"seed":1,"stop":7,"extra":[1],"response_format":"json"}', Parameters(seed=1)),
        ("[", Parameters()),
        ("7", Parameters()),
    ],
)
def test_parameters_of_other_versions_and_damaged_ones_load(text: str, parameters: Parameters) -> None:
    assert parameters_of(text) == parameters
