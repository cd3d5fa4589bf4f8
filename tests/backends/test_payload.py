"""JSON from a server: any bytes give a value or one kind of error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus import corpus
from kvchat.backends.http.payload import (
    PayloadError,
    as_object,
    count_at,
    figure_at,
    figures_at,
    list_at,
    object_at,
    parsed,
    text_at,
)


@corpus(
    "text",
    [
        "",
        "{",
        "nope",
        "[" * 100_000,
        '{"a":' * 50_000,
        "9" * 5000 + "x",
        '"\\ud83',
        "\x00",
    ],
)
def test_bad_json_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(PayloadError):
        parsed(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NaN", None),
        ("[Infinity]", [None]),
        ('{"a":-Infinity}', {"a": None}),
        ("1e999", None),
        ("9" * 5000, None),
        ("[-" + "9" * 5000 + ",7]", [None, 7]),
        ("[" * 5000 + "]" * 5000, "[" * 100 + "null" + "]" * 100),
    ],
)
def test_what_nobody_can_count_with_is_null(text: str, value: object) -> None:
    assert parsed(text) == (json.loads(value) if isinstance(value, str) else value)


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_value_or_a_payload_error(text: str) -> None:
    try:
        parsed(text)
    except PayloadError:
        pass


def test_half_a_surrogate_pair_is_left_for_whoever_joins_the_deltas() -> None:
    assert parsed('"\\ud83d"') == "\ud83d"
    assert parsed('"\\ud83d\\ude00"') == "\U0001f600"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@settings(deadline=None)
@given(VALUES)
def test_a_value_of_any_type_is_read_or_refused(value: object) -> None:
    holder = {"k": value}
    for read in (object_at, list_at, text_at):
        try:
            read(holder, "k")
        except PayloadError as error:
            assert '"k"' in str(error)
    assert as_object(holder, "it") is holder
    count, figure = count_at(holder, "k"), figure_at(holder, "k")
    assert count is None or count >= 0
    assert figure is None or figure >= 0
    assert isinstance(figures_at(holder, "k"), dict)


@corpus(
    ("given_value", "count"),
    [
        (0, 0),
        (7, 7),
        (7.0, 7),
        (7.5, None),
        (-1, None),
        (True, None),
        ("7", None),
        (None, None),
        (10**400, None),
    ],
)
def test_a_count_is_a_whole_number_or_not_reported(given_value: object, count: int | None) -> None:
    assert count_at({"n": given_value}, "n") == count
    assert count_at({}, "n") is None


def test_what_is_missing_or_null_reads_as_nothing() -> None:
    empty = json.loads('{"k":null}')
    assert (object_at(empty, "k"), list_at(empty, "k"), text_at(empty, "k")) == ({}, (), None)
    assert (object_at({}, "k"), list_at({}, "k"), text_at({}, "k")) == ({}, (), None)
