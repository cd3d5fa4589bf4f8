"""An image as rows: two pixels in a cell, nothing to copy, nothing where it does not fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvchat.prompt.context import IMAGE, ContextBlock
from kvchat.prompt.images import Thumbnail
from kvchat.prompt.message import Role
from kvchat.ui.widgets.transcript.render.message import Folds, TranscriptItem, foot_rows
from kvchat.ui.widgets.transcript.render.picture import picture_rows
from kvchat.ui.widgets.transcript.render.rows import copied, text_of

RED, BLUE = b"\xff\x00\x00", b"\x00\x00\xff"


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 30))
def test_it_has_its_width_and_half_its_height_or_no_rows(width: int, height: int, room: int) -> None:
    rows = picture_rows(Thumbnail(width, height, RED * width * height), room)
    assert text_of(rows) == (["▀" * width] * -(-height // 2) if width <= room else [])
    assert not copied(rows).strip()


def test_a_cell_has_the_upper_pixel_over_the_lower_and_equal_ones_are_one_span() -> None:
    (row,) = picture_rows(Thumbnail(3, 2, RED * 3 + RED * 2 + BLUE), 80)
    assert [(run.text, run.tone) for run in row.runs] == [("▀▀", "#ff0000/#ff0000"), ("▀", "#ff0000/#0000ff")]


def test_it_stands_over_the_context_of_its_message() -> None:
    block = ContextBlock(IMAGE, "lamp.png", "640x480", f"/lamp.png#{'a' * 64}")
    item = TranscriptItem("n", Role.USER, "You", text="What?", blocks=(block,))
    without = text_of(foot_rows(item, 60, Folds()))
    with_it = text_of(foot_rows(item, 60, Folds(), pictures={"a" * 64: Thumbnail(4, 4, RED * 16)}))
    assert without == ["▸ image: lamp.png 640x480", ""] and with_it == ["▀▀▀▀", "▀▀▀▀", *without]
