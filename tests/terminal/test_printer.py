"""Plain output is safe for the terminal, whatever the text and however it is cut into pieces."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus import corpus
from kvchat.cli.plain_output import Printer
from kvchat.sanitize import clean

CORPUS = json.loads((Path(__file__).parents[1] / "fixtures" / "hostile_text.json").read_text("utf-8"))
TEXTS = st.text(max_size=30) | st.text(alphabet="\r\n\x1b[a\u202e\ud83d\ude00", max_size=30)


def printed(*pieces: str, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    printer = Printer(stream)
    for piece in pieces:
        printer.write(piece)
    printer.end()
    return raw.getvalue().decode(encoding)


@given(TEXTS, st.lists(st.integers(0, 30), max_size=4))
def test_where_a_text_is_cut_into_pieces_makes_no_difference(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(text)]
    assert printed(*(text[a:b] for a, b in pairwise(edges))) == printed(text)


@corpus("item", CORPUS)
def test_no_hostile_text_reaches_the_terminal_even_character_by_character(item: dict[str, str]) -> None:
    text = printed(*item["text"])
    assert not {char for char in text if unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t"}
    assert not set(text) & set("\u202e\u2066\u2069\u200e\u200b\ufeff")


def test_an_escape_sequence_split_over_pieces_is_shown_and_not_obeyed() -> None:
    assert printed("a\x1b", "[2Jb") == "a␛[2Jb\n"


def test_a_line_end_and_an_emoji_split_over_pieces_are_whole() -> None:
    assert printed("one\r", "\ntwo \ud83d", "\ude00") == "one\ntwo 😀\n"


def test_a_text_ends_with_exactly_one_line_end() -> None:
    assert printed("one") == printed("one\n") == "one\n"
    assert printed() == "" and printed("") == ""
    assert printed("one\n\n") == "one\n\n"


def test_what_was_held_back_comes_at_the_end() -> None:
    assert printed("one\r") == clean("one\r") + "\n"


def test_what_was_held_back_at_the_end_of_one_answer_does_not_come_again_in_the_next() -> None:
    stream = io.StringIO()
    printer = Printer(stream)
    printer.write("one\r")
    printer.end()
    printer.write("two\ud83d")
    printer.end()
    printer.line("three")
    assert stream.getvalue() == printed("one\r") + printed("two\ud83d") + "three\n"


def test_a_terminal_without_unicode_gets_question_marks_not_an_error() -> None:
    assert printed("é 😀 ok", encoding="ascii") == "? ? ok\n"


def test_a_line_starts_a_new_line() -> None:
    stream = io.StringIO()
    printer = Printer(stream)
    printer.write("half")
    printer.line("whole \x1b")
    printer.line()
    assert stream.getvalue() == "half\nwhole ␛\n\n"


def test_every_piece_is_shown_at_once() -> None:
    raw = io.BytesIO()
    printer = Printer(io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8"))  # type: ignore[arg-type]
    printer.write("now")
    assert raw.getvalue() == b"now"


def test_a_reader_that_has_gone_is_noticed_and_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        printer = Printer(stream)
        printer.write("one")
        assert printer.gone
        printer.write("two")
        printer.end()


@pytest.mark.process
def test_a_process_whose_reader_has_gone_ends_without_a_word() -> None:
    code = (
        "import sys; from kvchat.cli.plain_output import Printer; p = Printer(sys.stdout)\n"
        "while not p.gone: p.line('x')"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(120) == 0
    process.stderr.close()
