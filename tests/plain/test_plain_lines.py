"""The lines of plain mode: several that are one message, and what ends them."""

from __future__ import annotations

import io

import pytest

from kvchat.plain.chat import Typed
from kvchat.plain.lines import Lines


def messages(text: str) -> list[Typed]:
    lines, found = Lines(lambda _: None, io.StringIO(text)), []
    try:
        while True:
            found.append(lines.message())
    except EOFError:
        return found


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("one\ntwo\n", [Typed("one"), Typed("two")]),
        ("one\\\ntwo\nthree\n", [Typed("one\ntwo"), Typed("three")]),
        ("a path C:\\\\\nnext\n", [Typed("a path C:\\\\"), Typed("next")]),
        ('"""\none\n\n/exit\n"""\nafter\n', [Typed("one\n\n/exit", True), Typed("after")]),
        ('"""one\ntwo"""\n', [Typed("one\ntwo", True)]),
        ('"""one"""\n', [Typed("one", True)]),
        ("last", [Typed("last")]),
    ],
)
def test_lines_are_messages(typed: str, expected: list[Typed]) -> None:
    assert messages(typed) == expected


def test_quotes_that_are_never_closed_send_nothing() -> None:
    assert messages('"""\nhalf\n') == []
