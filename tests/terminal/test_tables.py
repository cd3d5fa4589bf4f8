"""Plain tables fit the terminal and show every column."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvchat.cli.plain_output import TableColumn, cells, fitted, print_table, table, width_of

COLUMNS = (TableColumn("id"), TableColumn("turns", right=True), TableColumn("title", shrinks=True))
ROWS = [("4f2a", "3", "lighthouse log"), ("9c01", "12", "a much longer title about the history of tax notes")]


def test_a_table_lines_up() -> None:
    assert table(COLUMNS, ROWS) == [
        "id    turns  title",
        "4f2a      3  lighthouse log",
        "9c01     12  a much longer title about the history of tax notes",
    ]


def test_a_narrow_terminal_cuts_the_column_that_may_shrink() -> None:
    assert table(COLUMNS, ROWS, 34) == [
        "id    turns  title",
        "4f2a      3  lighthouse log",
        "9c01     12  a much longer title…",
    ]


def test_no_title_no_heading_and_no_row_no_line() -> None:
    assert table([TableColumn(), TableColumn()], [("a", "b")]) == ["a  b"]
    assert table([TableColumn(), TableColumn()], []) == []


def test_wide_characters_take_two_columns() -> None:
    lines = table([TableColumn(), TableColumn()], [("日本語", "x"), ("abc", "x"), ("e\u0301", "x")])
    assert lines == ["日本語  x", "abc     x", "e\u0301       x"]
    assert {cells(line) for line in lines} == {9}


@given(
    st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12), st.text(max_size=60)), max_size=4),
    st.integers(1, 60),
)
def test_no_line_is_wider_than_the_terminal_or_breaks(rows: list[tuple[str, str, str]], width: int) -> None:
    for line in table(COLUMNS, rows, width):
        assert cells(line) <= width and len(line.splitlines()) <= 1 and "\x1b" not in line


@pytest.mark.parametrize(("width", "text"), [(6, "abcdef"), (5, "abcd…"), (1, "…"), (0, "")])
def test_a_cut_text_says_so(width: int, text: str) -> None:
    assert fitted("abcdef", width) == text


def test_half_a_wide_character_is_never_shown() -> None:
    assert fitted("日本語", 4) == "日…"
    assert fitted("日本語", 5) == "日本…"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_whole_texts_and_a_terminal_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    pipe, terminal = io.StringIO(), Terminal()
    assert width_of(pipe) is None and width_of(terminal) == 30
    print_table(ROWS, stream=pipe)
    print_table(ROWS, stream=terminal)
    assert pipe.getvalue().splitlines()[1].endswith("history of tax notes")
    assert [cells(line) <= 30 for line in terminal.getvalue().splitlines()] == [True, True]
    assert terminal.getvalue().splitlines()[1].endswith("…")


def test_a_closed_stream_has_no_width() -> None:
    stream = io.StringIO()
    stream.close()
    assert width_of(stream) is None
