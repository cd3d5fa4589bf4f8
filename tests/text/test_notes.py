"""Words for how an answer ended: every kind has a sentence, a fault has its own, old sentences stay."""

from __future__ import annotations

import pytest

from corpus import corpus
from kvchat.prompt.message import NoteKind
from kvchat.text.faults import Fault
from kvchat.text.notes import note_sentence
from kvchat.values import Argument, Statement, said

GIVEN: dict[str, Argument] = {
    "title": "LM Studio",
    "room": "load less",
    "call": "f",
    "why": "it was cut off",
    "calls": "f()\ng()\nh()",
    "more": 2,
    "made": 40,
    "most": 32,
    "size": 4096,
    "url": "http://gpu:8080",
    "answered": "a",
    "asked": "b",
    "host": "ollama.com",
    "model": "m",
    "seconds": 1.5,
    "known": True,
    "messages": 4,
    "tokens": 2048,
    "expected": 9000,
    "held": 1204,
}


@corpus("kind", NoteKind)
def test_every_kind_is_a_sentence(kind: NoteKind) -> None:
    sentence = note_sentence(said(kind, **GIVEN))
    assert sentence.endswith(".") and "{" not in sentence and "None" not in sentence and ".." not in sentence


def test_tool_calls_and_a_full_window_are_told_with_their_figures() -> None:
    assert note_sentence(said(NoteKind.TOOL_CALLS, **GIVEN)).startswith(
        "The model called the tools f(), g(), h() and 2 more. "
    )
    assert note_sentence(said(NoteKind.FILLS_WINDOW, size=4096)).startswith(
        "The conversation fills the server's window of 4,096 tokens. Start a new conversation, delete a turn, or give"
    )


def test_no_kind_is_named_like_a_fault() -> None:
    assert not NoteKind.__members__.keys() & Fault.__members__.keys()


@pytest.mark.parametrize(
    "strange",
    [
        Statement("of_a_later_version"),
        Statement("no_answer"),
        Statement("no_answer", (("seconds", "soon"),)),
        Statement(NoteKind.FILLS_WINDOW, (("size", "much"),)),
        Statement(NoteKind.MOVED),
    ],
)
def test_what_is_not_known_is_not_guessed(strange: Statement) -> None:
    assert note_sentence(strange) == ""
