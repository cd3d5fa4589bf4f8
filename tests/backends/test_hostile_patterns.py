"""Texts that a server sends are read in one pass, however they were made to be hard to read."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvchat.backends import errors
from kvchat.backends.dialects import cloud
from kvchat.backends.dialects.ollama import backend as ollama
from kvchat.backends.dialects.ollama import models as ollama_models
from kvchat.backends.discovery import _FIELD
from kvchat.backends.template import facts_of_text

SMALL, LARGE, MOST_GROWTH = 20_000, 200_000, 40.0
SHORTEST_S = 0.001
"""A run that takes less says more about the clock than about the reading."""

READERS: dict[str, Callable[[str], object]] = {
    "Ollama's template": ollama_models.template_facts,
    "Ollama's facts": lambda text: ollama_models.facts_in({"template": text, "parameters": text}),
    "a template": facts_of_text,
    "an error": lambda text: errors.of_status("http://box", 400, text),
    "an error with a message": lambda text: errors.of_stream("http://box", text, {}),
    "a refused field": lambda text: errors.unknown_field(text, ("session_id", "user")),
    "a missing model": ollama._NO_SUCH_MODEL.search,
    "a model without thoughts": ollama._NO_THINKING.search,
    "a version": ollama._version,
    "a model's name": cloud._NOT_CHAT.search,
    "a header": lambda text: _FIELD.match(f"X:{text}\0\r\n"),
}
HARD = (
    "{{if ",
    "{{ ",
    "{{else ",
    "{{if len",
    " ",
    "\n",
    "\t",
    "(",
    "$last",
    "$last ",
    "eq $a ",
    "eq $",
    "$a",
    "{{$",
    "{{.Role ",
    "len ",
    "now ",
    "num_ctx ",
    "num_ctx 1 ",
    "raise_exception('",
    'raise_exception("',
    "raise_exception(",
    "split( ",
    "split('</",
    "system ",
    "system",
    "loop.last ",
    "loop.last and ",
    "$.System ",
    "(eq (len (slice $.Messages $",
    "today ",
    "context ",
    "context",
    "exceed ",
    "model ",
    "model '",
    "'",
    '"',
    "does not ",
    "x",
    "1",
    "1.",
    "1h",
    "only user ",
    "requested ",
    "user",
    "unknown ",
    "input ",
    "embed",
)


def seconds_of(read: Callable[[str], object], text: str) -> float:
    took = []
    for _ in range(3):
        began = time.thread_time()
        read(text)
        took.append(time.thread_time() - began)
    return max(min(took), SHORTEST_S)


def grows_no_faster_than_the_text(read: Callable[[str], object], start: str, repeated: str) -> bool:
    small, large = (start + repeated * (size // len(repeated)) for size in (SMALL, LARGE))
    return any(seconds_of(read, large) < MOST_GROWTH * seconds_of(read, small) for _ in range(5))


@pytest.mark.parametrize(
    ("reader", "start", "repeated"),
    [
        ("Ollama's template", "", "{{if "),
        ("Ollama's template", "{{if .Thinking len", " "),
        ("Ollama's facts", "", "{{if "),
        ("a template", "", "$last "),
        ("a template", "raise_exception('system", " "),
        ("a header", "", " "),
        ("a header", "a", "\t"),
    ],
)
def test_a_text_made_to_be_hard_is_read_in_one_pass(reader: str, start: str, repeated: str) -> None:
    assert grows_no_faster_than_the_text(READERS[reader], start, repeated)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(READERS)),
    st.lists(st.sampled_from(HARD), max_size=3).map("".join),
    st.lists(st.sampled_from(HARD), min_size=1, max_size=2).map("".join),
)
def test_any_repeated_beginning_is_read_in_one_pass(reader: str, start: str, repeated: str) -> None:
    assert grows_no_faster_than_the_text(READERS[reader], start, repeated)


def test_the_conditions_of_a_long_template_are_still_found() -> None:
    facts = ollama_models.template_facts("x" * 50_000 + "{{ if and $last .Thinking }}{{ .Thinking }}{{ end }}")
    assert facts.drops_reasoning
    assert facts_of_text("think {{ if $last and $last not .Thinking }}").drops_reasoning
