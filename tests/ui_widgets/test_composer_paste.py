"""Pastes and chips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual import events

from kvchat.prompt.drafts import decoded, labelled

Writing = Callable[..., Any]
LONG = "line of text\n" * 2040
LABEL = "[pasted 1: 2,040 lines]"


async def test_a_pasted_newline_never_sends(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.query_one("ComposerText").post_message(events.Paste("one\rtwo\r\nthree\n"))
        await pilot.pause()
        assert composer.text == "one\ntwo\nthree\n"
        assert not host.asked


async def test_control_characters_in_a_paste_do_not_reach_the_text_or_the_screen(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.insert("a\x07b\x9bc\x7f\x0ed\u202ee")
        await pilot.pause()
        assert composer.text == "abcd\u202ee"
        drawn = "".join(strip.text for strip in host.screen._compositor.render_strips())
        assert "abcd" in drawn and "\u202e" not in drawn


async def test_a_long_paste_is_a_chip_and_goes_out_beside_the_text(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await pilot.press("s", "e", "e", "space")
        composer.insert(LONG)
        await pilot.press("space", "o", "k")
        assert composer.text == f"see {LABEL} ok"
        await pilot.press("enter")
        sent = host.asked[0]
        assert sent.text == f"see {LABEL} ok"
        assert [(b.kind, b.source, b.text) for b in sent.blocks] == [("paste", "pasted 1 (2,040 lines)", LONG)]


async def test_one_very_long_line_is_a_chip(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test():
        composer.insert("x" * 2049)
        assert composer.text == "[pasted 1: 2,049 characters]"


async def test_a_short_paste_is_text(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test():
        composer.insert("x" * 2048 + "\n" + "y" * 2047)
        assert composer.blocks == () and len(composer.text) == 4096


@pytest.mark.parametrize("keys", [["backspace"], ["left", "delete"], ["ctrl+w"], ["shift+left", "x", "backspace"]])
async def test_a_chip_is_removed_as_a_unit(writing: Writing, keys: list[str]) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await pilot.press("a", "space")
        composer.insert(LONG)
        await pilot.press(*keys)
        assert composer.text == "a "
        assert composer.blocks == ()


async def test_undo_brings_a_removed_chip_back_with_its_text(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.insert(LONG)
        await pilot.press("backspace", "ctrl+z")
        assert composer.text == LABEL
        assert [b.text for b in composer.blocks] == [LONG]


async def test_the_cursor_steps_over_a_chip(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.insert(LONG)
        await pilot.press("left", "a", "right", "b")
        assert composer.text == f"a{LABEL}b"


async def test_a_click_into_a_chip_cannot_split_it(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.insert(LONG)
        await pilot.click("ComposerText", offset=(8, 0))
        await pilot.press("x")
        assert composer.text in (f"x{LABEL}", f"{LABEL}x")


async def test_a_second_paste_gets_the_next_number_even_across_messages(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test():
        composer.set_history(["about [pasted 3: 99 lines]"])
        composer.insert(LONG)
        composer.insert(LONG)
        assert composer.text == "[pasted 4: 2,040 lines][pasted 5: 2,040 lines]"
        assert len(composer.blocks) == 2


async def test_undoing_a_paste_that_scrolled_takes_it_back(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.insert("x\n" * 40)
        await pilot.pause()
        await pilot.press("ctrl+z")
        assert composer.text == ""


async def test_a_draft_keeps_its_pastes(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test():
        composer.insert(LONG)
        stored = composer.draft
        composer.load("")
        assert composer.blocks == ()
        composer.load(stored)
        assert composer.text == LABEL
        assert [b.text for b in composer.blocks] == [LONG]


async def test_a_recalled_message_keeps_its_paste(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.insert(LONG)
        await pilot.press("enter")
        composer.set_history([LABEL])
        await pilot.press("up", "enter")
        assert [b.text for m in host.asked for b in m.blocks] == [LONG, LONG]


def test_a_damaged_stored_draft_keeps_its_text() -> None:
    assert decoded("text [pasted 1: 9 lines]\x1e[[1").text == "text [pasted 1: 9 lines]"


def test_a_label_typed_by_hand_sends_nothing() -> None:
    assert not [*labelled("[pasted 1: 9 lines]", {}.get)]
