"""Writing, sending, clearing, recalling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual import events

from kvchat.ui.screens.kit.rows import FilterInput
from kvchat.ui.widgets.composer.text import MOST_BLINKS
from kvchat.ui.widgets.composer.widget import DRAFT_DELAY, Composer

Writing = Callable[..., Any]
Hosting = Callable[..., Any]


async def test_enter_sends_and_empties(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.load("", key="c1")
        await pilot.press("h", "i", "enter")
        sent = host.heard(Composer.Submitted)
        assert [(m.question.text, m.question.blocks, m.key) for m in sent] == [("hi", (), "c1")]
        assert composer.text == ""


@pytest.mark.parametrize("key", ["shift+enter", "ctrl+j", "alt+enter"])
async def test_the_newline_keys_make_a_new_line(writing: Writing, key: str) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await pilot.press("a", key, "b")
        assert composer.text == "a\nb"
        assert not host.asked


async def test_a_trailing_backslash_makes_a_new_line(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await pilot.press("a", "backslash", "enter", "b")
        assert composer.text == "a\nb"


async def test_two_trailing_backslashes_are_sent(writing: Writing) -> None:
    host, _ = writing()
    async with host.run_test() as pilot:
        await pilot.press("a", "backslash", "backslash", "enter")
        assert [m.text for m in host.asked] == ["a\\\\"]


@pytest.mark.parametrize("key", ["shift+enter", "ctrl+j", "alt+enter", "ctrl+enter"])
async def test_swapped_enter_makes_a_line_and_the_others_send(writing: Writing, key: str) -> None:
    host, composer = writing(enter_sends=False)
    async with host.run_test() as pilot:
        await pilot.press("a", "enter", "b")
        assert composer.text == "a\nb"
        await pilot.press(key)
        assert [m.text for m in host.asked] == ["a\nb"]


async def test_keys_that_come_at_once_act_in_their_order(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        for key in ("a", "x", "backspace", "b", "ctrl+j", "c", "enter", "d"):
            host.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()
        assert [m.text for m in host.asked] == ["ab\nc"]
        assert composer.text == "d"


async def test_white_space_alone_is_not_sent(writing: Writing) -> None:
    host, _ = writing()
    async with host.run_test() as pilot:
        await pilot.press("space", "ctrl+j", "enter")
        assert not host.asked


async def test_the_keys_can_be_bound_anew(writing: Writing) -> None:
    host, _ = writing()
    async with host.run_test() as pilot:
        host.set_keymap({"composer.enter": "f9", "composer.newline": "enter"})
        await pilot.press("a", "enter", "b", "f9")
        assert [m.text for m in host.asked] == ["a\nb"]


async def test_it_grows_to_twelve_lines_and_then_scrolls(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test(size=(80, 40)) as pilot:
        for lines, height in ((1, 1), (5, 5), (12, 12), (30, 12)):
            composer.load("\n".join(["x"] * lines))
            await pilot.pause()
            assert composer.query_one("ComposerText").size.height == height


async def test_ctrl_c_copies_a_selection_and_keeps_the_text(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await pilot.press("a", "b", "shift+left", "ctrl+c")
        assert (host.clipboard, composer.text) == ("b", "ab")


async def test_ctrl_c_clears_the_text_and_ctrl_z_brings_it_back(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await pilot.press("a", "b", "ctrl+c")
        assert composer.text == ""
        await pilot.press("ctrl+z")
        assert composer.text == "ab"


@pytest.mark.parametrize("key", ["ctrl+c", "f11"])
async def test_the_key_that_interrupts_is_the_screens_in_an_empty_composer(writing: Writing, key: str) -> None:
    host, composer = writing()
    pressed: list[str] = []
    host.bind("f11", "help_quit")
    host.action_help_quit = lambda: pressed.append(key)  # what Textual's own app does for Ctrl+C
    async with host.run_test() as pilot:
        host.set_keymap({"composer.interrupt": key})
        await pilot.press("a", key)
        assert (pressed, composer.text) == ([], "")
        await pilot.press(key)
        assert pressed == [key]


async def test_ctrl_c_leaves_a_selection_in_the_transcript_to_be_copied(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await pilot.press("a")
        monkeypatch.setattr(host.screen, "get_selected_text", lambda: "from the transcript")
        await pilot.press("ctrl+c")
        assert (host.clipboard, composer.text) == ("from the transcript", "a")


async def test_escape_and_tab_are_the_apps_when_no_list_is_open(writing: Writing) -> None:
    host, composer = writing()
    pressed: list[str] = []
    host.bind("escape", "mark('escape')")
    host.action_mark = lambda key: pressed.append(key)
    async with host.run_test() as pilot:
        host.screen.focus_next = lambda: pressed.append("tab")
        await pilot.press("a", "escape", "tab")
        assert (pressed, composer.text) == (["escape", "tab"], "a")


async def test_the_swap_can_be_changed_while_writing(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test(size=(80, 40)) as pilot:
        composer.enter_sends = False
        await pilot.press("a", "enter", "b")
        assert composer.text == "a\nb"
        composer.replace_text("")
        await pilot.pause()
        assert "^J send" in "".join(strip.text for strip in host.screen._compositor.render_strips())


@pytest.mark.parametrize("key", ["ctrl+d", "f11"])
async def test_the_key_of_the_end_quits_only_when_empty(writing: Writing, key: str) -> None:
    host, composer = writing()
    quits: list[str] = []
    host.action_quit = lambda: quits.append(key)
    async with host.run_test() as pilot:
        host.set_keymap({"composer.end": key})
        await pilot.press("a", "b", "home", key)
        assert (composer.text, quits) == ("b", [])
        await pilot.press(key, key)
        assert (composer.text, quits) == ("", [key])


async def test_up_recalls_older_messages_and_down_comes_back(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_history(["newest\nof two lines", "older", "oldest"])
        newest, seen = "newest\nof two lines", []
        for key in ("up", "up", "up", "up", "down", "down", "down", "down"):
            await pilot.press(key)
            seen.append(composer.text)
        assert seen == [newest, "older", "oldest", "oldest", "older", newest, "", ""]


async def test_up_in_a_draft_only_moves_the_cursor(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_history(["sent"])
        await pilot.press("d", "up", "up", "x")
        assert composer.text == "xd"


async def test_an_edited_recalled_message_is_a_draft(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_history(["one", "two"])
        await pilot.press("up", "exclamation_mark", "up", "up")
        assert composer.text == "one!"


async def test_the_draft_is_announced_once_it_rests(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.load("old", key="c1")
        await pilot.press("x", "y")
        await pilot.pause(DRAFT_DELAY + 0.3)
        assert [(m.draft, m.key) for m in host.heard(Composer.DraftChanged)] == [("oldxy", "c1")]


async def test_leaving_a_conversation_announces_its_draft_under_its_own_key(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.load("", key="c1")
        await pilot.press("a")
        composer.load("other", key="c2")
        await pilot.pause(DRAFT_DELAY + 0.3)
        assert [(m.draft, m.key) for m in host.heard(Composer.DraftChanged)] == [("a", "c1")]
        assert composer.text == "other"


async def test_sending_announces_an_empty_draft(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.load("unsent", key="c1")
        await pilot.press("enter")
        assert [(m.draft, m.key) for m in host.heard(Composer.DraftChanged)] == [("", "c1")]


async def test_a_message_that_could_not_be_sent_comes_back_before_what_was_typed_since(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.insert("word\n" * 2000)
        await pilot.press("enter", "n", "e", "w")
        failed = host.asked[0]
        composer.load("new")
        composer.restore(failed.draft)
        assert composer.text == "[pasted 1: 2,000 lines]\n\nnew"
        assert composer.blocks == failed.blocks


async def test_paging_keys_are_left_to_the_transcript_while_the_message_is_short(writing: Writing) -> None:
    host, composer = writing()
    pressed: list[str] = []
    host.bind("pageup", "mark")
    host.action_mark = lambda: pressed.append("pageup")
    async with host.run_test(size=(80, 40)) as pilot:
        await pilot.press("a", "pageup")
        assert pressed == ["pageup"]
        composer.load("x\n" * 40)
        await pilot.pause()
        await pilot.press("pageup")
        assert pressed == ["pageup"]


@pytest.mark.parametrize(("text", "left"), [("abc", ""), ("", ""), ("one\ntwo", "one\n")])
async def test_cutting_the_last_line_takes_it(writing: Writing, text: str, left: str) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.load(text)
        await pilot.press("ctrl+x")
        assert composer.text == left


CLUSTERS = ["👩‍👩‍👧", "👍🏽", "🇫🇷", "e\u0301", "1\ufe0f\u20e3", "กำ", "नि", "각"]
CLUSTERS += ["\u0915\u094d\u0937", "\u1780\u17d2\u1798\u17bb", "\u1000\u103c\u1031", "\u0f66\u0f92\u0fb2"]
CLUSTERS += ["\u0e81\u0eb3", "\u05e9\u05c1\u05b8", "\u304b\u3099", "\u8fba\U000e0100"]


@pytest.mark.parametrize("cluster", CLUSTERS)
async def test_the_cursor_and_the_deleting_keys_go_by_what_is_one_character(writing: Writing, cluster: str) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.insert(f"a{cluster}{cluster}b")
        await pilot.press("left", "left", "x")
        assert composer.text == f"a{cluster}x{cluster}b"
        await pilot.press("delete", "backspace", "backspace")
        assert composer.text == "ab"


@pytest.mark.parametrize("cluster", CLUSTERS)
async def test_so_do_those_of_a_dialogs_line(hosting: Hosting, cluster: str) -> None:
    host = hosting(line := FilterInput())
    async with host.run_test() as pilot:
        line.value = f"a{cluster}{cluster}b"
        await pilot.press("end", "left", "left", "x")
        assert line.value == f"a{cluster}x{cluster}b"
        await pilot.press("delete", "backspace", "backspace")
        assert line.value == "ab"


async def test_undo_takes_back_what_was_typed(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await pilot.press("a", "ctrl+underscore")
        assert composer.text == ""


async def test_undo_is_the_act_s_where_one_came_after_what_was_typed(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await pilot.press("a")
        composer.act_done()
        await pilot.press("b")
        for _ in range(2):  # what was typed since, then the act
            await pilot.press("ctrl+underscore")
            assert composer.text == "a"
        composer.act_undone()
        await pilot.press("ctrl+underscore")
        assert composer.text == ""


async def test_the_cursor_rests_where_nobody_types_and_blinks_again_at_a_key(writing):
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.cursor_blink = True
        await pilot.pause()
        area = composer._area
        for _ in range(MOST_BLINKS + 1):
            area._toggle_cursor_blink_visible()
        assert area._cursor_visible and not area.blink_timer._active.is_set()
        await pilot.press("x")
        assert area.blink_timer._active.is_set()
