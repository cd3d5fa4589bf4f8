"""The lines over the composer with what waits in the queue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kvchat.prompt.queued import HoldKind
from kvchat.text.messages import held_words
from kvchat.ui.runs import plain
from kvchat.ui.widgets.queue_lines import queue_lines


def drawn(texts: list[str], held: str = "", most: int = 3, width: int = 60) -> list[str]:
    return [plain(line) for line in queue_lines(texts, held, most, width)]


def test_each_message_has_a_line_and_the_last_one_the_hint() -> None:
    assert drawn(["And the oil?", "And\nthe wick?"]) == [
        "queued 1  And the oil?",
        "queued 2  And the wick?" + " " * 30 + "↑ edits",
    ]


def test_what_holds_them_stands_first_and_says_what_to_do() -> None:
    held = held_words(HoldKind.STOPPED, "Enter")
    assert drawn(["one"], held) == ["Queue held: answer stopped · Enter sends · ↑ edits", "queued 1  one"]


def test_what_does_not_fit_is_counted() -> None:
    assert [line.rstrip() for line in drawn([str(n) for n in range(9)], "held")] == [
        "held",
        "queued 1  0",
        "queued 2  1",
        "… and 7 more",
    ]


def test_every_hold_is_one_short_clause() -> None:
    assert all(len(held_words(kind, "Ctrl+J")) <= 62 for kind in HoldKind)


@given(
    texts=st.lists(st.text(max_size=80), min_size=1, max_size=9),
    held=st.sampled_from(["", "held · " * 9]),
    width=st.integers(10, 90),
)
def test_no_line_is_wider_than_there_is_room(texts: list[str], held: str, width: int) -> None:
    assert all(cell_len(line) <= max(width, 12) for line in drawn(texts, held, 3, width))
