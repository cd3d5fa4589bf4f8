"""Of a frame only what changes is written, and the terminal shows the same as if everything had been."""

from __future__ import annotations

import io
import re
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region, Size
from textual.strip import Strip

from corpus import corpus
from kvchat.ui.terminal.frame import Frame
from terminal_model import TerminalModel

WIDTH, HEIGHT = 24, 3
SIZE = Size(WIDTH, HEIGHT)
STYLES = [
    None,
    Style(),
    *map(
        Style.parse,
        (
            "red",
            "bold",
            "on blue",
            "#102030 on #405060",
            "#112233 on #405060",
            "bold #102030 on #405060",
            "dim italic on red",
            "underline",
            "reverse",
            "color(120)",
            "white on black",
            "link https://example.org",
            "bold red link http://x.y",
        ),
    ),
]
WORDS = ["a", "word", " ", "    ", "─│●", "日本語", "é", "e\u0301x", "👍", "👍🏽!", "🇫🇷", "x" * 9, "…·"]


def console(system: str = "truecolor") -> Console:
    return Console(file=io.StringIO(), color_system=system, force_terminal=True, width=WIDTH)


lines = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(STYLES)), max_size=8).map(
    lambda parts: Strip([Segment(text, style) for text, style in parts]).adjust_cell_length(WIDTH)
)
frames = st.lists(lines, min_size=HEIGHT, max_size=HEIGHT)


def whole(rows: list[Strip]) -> LayoutUpdate:
    return LayoutUpdate([[row] for row in rows], Region(0, 0, WIDTH, HEIGHT))


def part(rows: list[Strip], cuts: list[int], spans: list[tuple[int, int]]) -> ChopsUpdate:
    """An update of these columns, on rows that are cut where widgets begin: nowhere between a letter and its mark. Of
    such a cut Textual leaves the mark to the piece behind it, and each write of that would add it to the letter."""
    ends = sorted(
        {cut for cut in cuts if 0 < cut < WIDTH and not any(map(partial(_parts_a_mark, cut), rows))} | {WIDTH}
    )
    starts = [0, *ends[:-1]]
    chops = [dict(zip(starts, row.divide(ends), strict=True)) for row in rows]
    return ChopsUpdate(
        chops,
        [(y, *sorted(span)) for y, span in enumerate(spans) if span[0] != span[1]] or [(0, 0, WIDTH)],
        [ends] * HEIGHT,
    )


def _parts_a_mark(cut: int, row: Strip) -> bool:
    return row.divide([cut, WIDTH])[1].text.startswith("\u0301")


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_the_terminal_shows_what_it_would_if_everything_were_written(data) -> None:
    frame, all_, changed = Frame(), TerminalModel(WIDTH, HEIGHT), TerminalModel(WIDTH, HEIGHT)
    rows = data.draw(frames)
    for number in range(data.draw(st.integers(1, 5))):
        if number:
            rows = [data.draw(st.sampled_from(both)) for both in zip(rows, data.draw(frames), strict=True)]
        if number and data.draw(st.booleans()):
            place = st.integers(0, WIDTH)
            update = part(
                rows,
                data.draw(st.lists(place, max_size=4)),
                data.draw(st.lists(st.tuples(place, place), min_size=HEIGHT, max_size=HEIGHT)),
            )
        else:
            update = whole(rows)
        if data.draw(st.integers(0, 9)) == 0:
            frame.forget()
        all_.write(update.render_segments(console()))
        changed.write(frame.update(update, SIZE).render_segments(console()))
        assert changed.cells == all_.cells


@pytest.mark.parametrize(("system", "codes"), [("256", "38;5;22"), ("standard", "32"), ("truecolor", "38;2;1;99;1")])
def test_a_terminal_of_fewer_colours_gets_those_it_has(system: str, codes: str) -> None:
    style = Style(color=f"#01{99:x}01", bold=system == "256")
    row = Strip([Segment("a", style)]).adjust_cell_length(WIDTH)
    update = LayoutUpdate([[row]], Region(0, 0, WIDTH, 1))
    assert codes in Frame().update(update, Size(WIDTH, 1)).render_segments(console(system))


def test_what_is_shown_already_is_not_written() -> None:
    rows = [Strip([Segment("hello ", Style.parse("red")), Segment("there", None)]).adjust_cell_length(WIDTH)] * HEIGHT
    frame = Frame()
    first = frame.update(whole(rows), SIZE).render_segments(console())
    assert "hello" in first
    assert frame.update(whole(rows), SIZE).render_segments(console()) == ""
    rows[1] = Strip([Segment("hello ", Style.parse("red")), Segment("world", None)]).adjust_cell_length(WIDTH)
    changed = frame.update(whole(rows), SIZE).render_segments(console())
    assert changed.startswith("\x1b[2;7H") and "world" in changed and "hello" not in changed


def test_after_a_change_of_size_and_when_asked_everything_is_written() -> None:
    rows = [Strip([Segment("hello", None)]).adjust_cell_length(WIDTH)] * HEIGHT
    frame = Frame()
    first = frame.update(whole(rows), SIZE).render_segments(console())
    frame.forget()
    assert frame.update(whole(rows), SIZE).render_segments(console()) == first
    assert frame.update(whole(rows), Size(WIDTH, HEIGHT + 1)).render_segments(console()) == first


def test_a_style_goes_over_into_the_next_with_what_differs() -> None:
    parts = [
        ("a", "bold #102030 on #405060"),
        ("b", "bold #102031 on #405060"),
        ("c", "#102031 on #405060"),
        ("d", "#102031"),
        ("e", ""),
    ]
    row = Strip([Segment(text, Style.parse(style)) for text, style in parts])
    update = LayoutUpdate([[row]], Region(0, 0, 5, 1))
    assert Frame().update(update, Size(5, 1)).render_segments(console()) == (
        "\x1b[1;1H\x1b[0;1;38;2;16;32;48;48;2;64;80;96ma\x1b[38;2;16;32;49mb\x1b[0;38;2;16;32;49;48;2;64;80;96mc"
        "\x1b[0;38;2;16;32;49md\x1b[0me"
    )


@pytest.mark.parametrize("text", ["日本語", "e\u0301"])
def test_a_wide_character_is_written_whole_or_not_at_all(text: str) -> None:
    rows = [Strip([Segment(f"{text}x", None)]).adjust_cell_length(WIDTH)] * HEIGHT
    other = [Strip([Segment(f"{text}y", None)]).adjust_cell_length(WIDTH)] * HEIGHT
    frame = Frame()
    frame.update(whole(rows), SIZE).render_segments(console())
    assert f"{text}y" in frame.update(whole(other), SIZE).render_segments(console())


DISPUTED = ["👍🏽", "👩‍👩‍👧", "❤\ufe0f", "1\ufe0f\u20e3", "🇫🇷", "👍", "🫩", "नि"]


@pytest.mark.parametrize("counts", [1, 2, 3, 4, 6])
@corpus("text", DISPUTED)
def test_nothing_of_a_row_stays_behind_however_the_terminal_counts(text: str, counts: int) -> None:
    frame, terminal = Frame(), Counting(WIDTH, 1, text, counts)
    for words in (f"ab{text}cd|", f"abc{text}d{text}ef|", "plain|", f"{text}|", f"a{text}"):
        row = Strip([Segment(words, None)]).adjust_cell_length(WIDTH)
        update = LayoutUpdate([[row]], Region(0, 0, WIDTH, 1))
        terminal.write(frame.update(update, Size(WIDTH, 1)).render_segments(console()))
        for plain in filter(None, words.split(text)):
            at = cell_len(words[: words.index(plain)])
            assert terminal.row[at : at + len(plain)] == list(plain), terminal.row
        assert "".join(terminal.row[cell_len(words) + counts :]).strip() == ""


class Counting:
    """A terminal of one row that gives a text its own number of cells."""

    def __init__(self, width: int, height: int, text: str, counts: int) -> None:
        self.row = [" "] * (width + 9)
        self._text, self._counts = text, counts

    def write(self, output: str) -> None:
        x = 0
        for column, sgr, text, rest in re.findall(rf"\x1b\[1;(\d+)H|(\x1b\[[\d;]*m)|({self._text})|(.)", output):
            if column:
                x = int(column) - 1
            elif text:
                self.row[x : x + self._counts] = ["#"] * self._counts
                x += self._counts
            elif not sgr:
                self.row[x] = rest
                x += 1
