"""The list of conversations."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace
from textual.geometry import Offset

from corpus import corpus
from kvchat.reports.warmth import UNKNOWN, Heat, Warmth
from kvchat.ui.widgets.sidebar import Sidebar
from kvchat.ui.widgets.sidebar_rows import (
    GLYPHS,
    WORDS,
    SidebarRow,
    described,
    lines_of,
    until_midnight,
)
from still import until

Listing = Callable[..., Any]
NOW = datetime(2025, 3, 19, 0, 10).timestamp()
HOUR, DAY = 3600, 86400


def fixed() -> float:
    return NOW


def cold(tokens: int) -> Warmth:
    return Warmth(Heat.COLD, 0, tokens)


def many(count: int, **fields: Any) -> list[SidebarRow]:
    return [SidebarRow(f"c{i}", f"conversation {i}", NOW - i * HOUR, **fields) for i in range(count)]


def drawn(sidebar: Sidebar) -> list[str]:
    return [sidebar.render_line(y).text.rstrip() for y in range(sidebar.size.height)]


def grouped(now: float, *ages: float) -> list[str]:
    rows = [SidebarRow(str(i), "t", now - age) for i, age in enumerate(ages)]
    return [line for line in lines_of(rows, now) if isinstance(line, str)]


def test_ten_minutes_after_midnight_an_answer_of_twenty_minutes_ago_is_yesterdays() -> None:
    assert grouped(NOW, 0, 20 * 60) == ["Today", "Yesterday"]
    assert grouped(NOW + 23 * HOUR, 0, 22 * HOUR) == ["Today"]


def test_the_groups_follow_each_other_and_each_is_named_once() -> None:
    ages = (0, DAY, 2 * DAY, 7 * DAY, 8 * DAY, 10 * DAY, 40 * DAY, 300 * DAY, 400 * DAY, 4000 * DAY)
    assert grouped(NOW, *ages) == ["Today", "Yesterday", "Last week", "March", "February", "May", "Older"]


def test_last_week_is_the_seven_days_before_today() -> None:
    assert grouped(NOW, 7 * DAY) == ["Last week"]
    assert grouped(NOW, 8 * DAY) == ["March"]


def test_a_clock_that_went_back_leaves_the_newest_in_today() -> None:
    assert grouped(NOW, -DAY) == ["Today"]


def test_where_the_clock_was_wrong_no_group_is_named_twice() -> None:
    assert grouped(NOW, 0, 20_000 * DAY, DAY, 20_000 * DAY) == ["Today", "Yesterday", "Older"]
    assert grouped(NOW, DAY, -400 * DAY, DAY, 2 * DAY) == ["Yesterday", "Last week"]


def test_midnight_is_at_the_next_local_day() -> None:
    then = datetime.fromtimestamp(NOW + until_midnight(NOW))
    assert (then.hour, then.minute, then.day) == (0, 0, 20)


def test_every_mark_has_a_glyph_of_one_cell_and_words() -> None:
    assert set(GLYPHS) == set(WORDS)
    assert len(set(GLYPHS.values())) == len(GLYPHS)


@corpus(
    ("warmth", "row", "words"),
    [
        (Warmth(Heat.WARM, 3843, 1, NOW - 250), {}, "warm · 3,843 tokens in the cache, used 4 min ago"),
        (
            Warmth(Heat.PARKED, 1930, 412, NOW - 7500),
            {},
            "partly warm · 412 tokens to prefill · 1,930 in the cache, used 2 h ago",
        ),
        (Warmth(Heat.PARKED, 1930, 3, NOW - 7500), {}, "warm · 1,930 tokens in the cache, used 2 h ago"),
        (Warmth(Heat.COLD), {"held": 2}, "cold; 2 queued, waiting for you"),
        (Warmth(Heat.COLD, 0, 8120), {"unread": True}, "cold · 8,120 tokens to prefill; there is an unread answer"),
        (Warmth(Heat.COLD), {}, "cold"),
        (UNKNOWN, {}, WORDS["unknown"]),
        (Warmth(Heat.WARM, 3843), {"streaming": True}, WORDS["streaming"]),
    ],
)
def test_a_mark_is_told_with_what_is_known_and_nothing_else(warmth: Warmth, row: dict[str, Any], words: str) -> None:
    assert described(SidebarRow("a", "t", NOW, **row), warmth, NOW) == words


async def test_a_row_shows_mark_and_title_and_in_words_what_waits(listing: Listing) -> None:
    known = {"a": Warmth(Heat.WARM, 3843, 1), "b": Warmth(Heat.PARKED, 1930, 412), "c": cold(8120), "d": UNKNOWN}
    host, sidebar = listing(fixed, known.__getitem__)
    async with host.run_test(size=(80, 24)):
        sidebar.set_rows(
            [
                SidebarRow("a", "warm one", NOW),
                SidebarRow("b", "parked one", NOW),
                SidebarRow("c", "cold two", NOW, held=2),
                SidebarRow("d", "new answer", NOW, unread=True),
            ]
        )
        lines = drawn(sidebar)
        assert lines[:2] == [" Today", " ● warm one"]
        assert lines[2] == " ◐ parked one", "a number alone would say nothing"
        assert lines[3].startswith(" ○ cold two ") and lines[3].endswith(" 2 queued")
        assert lines[4] == " · new answer •"


async def test_a_title_is_cut_by_cells_and_cannot_carry_markup_or_escapes(listing: Listing) -> None:
    host, sidebar = listing(fixed, lambda id: cold(8120) if id == "a" else UNKNOWN)
    async with host.run_test(size=(80, 24)):
        sidebar.set_rows([SidebarRow("a", "漢字" * 30, NOW, held=3), SidebarRow("b", "[/b]\x1b]52;c;x\x07\nend", NOW)])
        width = sidebar.scrollable_content_region.width
        assert sidebar.render_line(1).cell_length == width
        assert "…" in sidebar.render_line(1).text and sidebar.render_line(1).text.rstrip().endswith("3 queued")
        assert drawn(sidebar)[2] == " · [/b]␛]52;c;x␇ end"


async def test_keys_move_the_cursor_over_the_groups_and_enter_opens(listing: Listing) -> None:
    host, sidebar = listing(fixed)
    async with host.run_test(size=(80, 24)) as pilot:
        sidebar.set_rows(many(100))
        sidebar.focus()
        ids = []
        for key in ("down", "down", "up", "pagedown", "end", "down", "pageup", "home", "up"):
            await pilot.press(key)
            ids.append(sidebar.cursor_id)
        assert ids == ["c1", "c2", "c1", "c24", "c99", "c99", "c76", "c0", "c0"]
        await pilot.press("down", "enter")
        assert [message.id for message in host.heard(Sidebar.Opened)] == ["c1"]


@pytest.mark.parametrize(
    ("key", "act"), [("m", "menu"), ("r", "rename"), ("d", "delete"), ("delete", "delete"), ("f7", "rename")]
)
async def test_a_key_does_its_act_with_the_row_under_the_cursor(listing: Listing, key: str, act: str) -> None:
    host, sidebar = listing(fixed)
    done: list[tuple[str, str | None]] = []
    async with host.run_test(size=(80, 24)) as pilot:
        host.screen.action_do = lambda id: done.append((id, sidebar.cursor_id))
        if key == "f7":
            host.set_keymap({"sidebar.rename": key})
        sidebar.set_rows(many(3))
        sidebar.focus()
        await pilot.press("down", key)
        assert done == [(f"sidebar.{act}", "c1")]


async def test_the_keys_of_lists_in_the_settings_move_its_cursor_too(listing: Listing) -> None:
    host, sidebar = listing(fixed)
    async with host.run_test(size=(80, 24)) as pilot:
        host.set_keymap({"rows.down": "n", "rows.last": "f7"})
        sidebar.set_rows(many(100))
        sidebar.focus()
        ids = []
        for key in ("n", "down", "f7"):
            await pilot.press(key)
            ids.append(sidebar.cursor_id)
        assert ids == ["c1", "c1", "c99"]


async def test_the_cursor_stays_in_view_and_home_shows_the_first_group(listing: Listing) -> None:
    host, sidebar = listing(fixed)
    async with host.run_test(size=(80, 24)) as pilot:
        sidebar.set_rows(many(100))
        sidebar.focus()
        await pilot.press("end")
        assert any("conversation 99" in line for line in drawn(sidebar))
        await pilot.press("home")
        assert drawn(sidebar)[0] == " Today"


async def test_a_click_opens_and_the_right_button_asks_for_the_menu(listing: Listing) -> None:
    host, sidebar = listing(fixed)
    done: list[tuple[str, str | None]] = []
    async with host.run_test(size=(80, 24)) as pilot:
        sidebar.set_rows(many(100))
        await pilot.click(Sidebar, offset=(5, 0))  # the name of a group
        await pilot.click(Sidebar, offset=(5, 3))
        assert [message.id for message in host.heard(Sidebar.Opened)] == ["c1"]
        host.screen.action_do = lambda id: done.append((id, sidebar.cursor_id))
        await pilot.click(Sidebar, offset=(5, 1), button=3)
        assert (done, len(host.said)) == ([("sidebar.menu", "c0")], 1)


async def test_the_wheel_scrolls(listing: Listing) -> None:
    host, sidebar = listing(fixed)
    async with host.run_test(size=(80, 24)) as pilot:
        sidebar.set_rows(many(100))
        await pilot.pause()
        await pilot._post_mouse_events([__import__("textual.events").events.MouseScrollDown], Sidebar, offset=(5, 5))
        await pilot.pause()
        assert sidebar.scroll_offset.y > 0


async def test_new_rows_keep_the_cursor_and_the_view(listing: Listing) -> None:
    host, sidebar = listing(fixed)
    async with host.run_test(size=(80, 24)) as pilot:
        rows = many(200)
        sidebar.set_rows(rows)
        sidebar.focus()
        await pilot.press("end")
        await pilot.pause()
        top, cursor = drawn(sidebar)[1:], sidebar.cursor_id
        newer = [SidebarRow(f"n{i}", "new", NOW) for i in range(5)]
        sidebar.set_rows([*newer, *rows])
        await pilot.pause()
        assert sidebar.cursor_id == cursor
        assert drawn(sidebar)[1:] == top


async def test_a_row_that_goes_leaves_the_cursor_at_its_place(listing: Listing) -> None:
    host, sidebar = listing(fixed)
    async with host.run_test(size=(80, 24)) as pilot:
        rows = many(5)
        sidebar.set_rows(rows)
        sidebar.focus()
        await pilot.press("down", "down")
        sidebar.set_rows([*rows[:2], *rows[3:]])
        assert sidebar.cursor_id == "c3"
        sidebar.set_rows([])
        assert sidebar.cursor_id is None
        await pilot.press("down", "enter", "end", "home", "pagedown")
        assert not host.said
        assert drawn(sidebar)[0] == " No conversations yet"


async def test_opening_puts_the_cursor_there_and_scrolls_it_into_view(listing: Listing) -> None:
    host, sidebar = listing(fixed)
    async with host.run_test(size=(80, 24)) as pilot:
        sidebar.set_rows(many(100))
        sidebar.set_open("c70")
        await pilot.pause()
        assert sidebar.cursor_id == "c70"
        assert any("conversation 70" in line for line in drawn(sidebar))
        plain, opened = (sidebar._row(i, 28) for i in (3, 70))
        assert [s.style.bgcolor for s in plain if s.style] != [s.style.bgcolor for s in opened if s.style]


async def test_a_list_shown_later_has_its_open_conversation_in_view(listing: Listing) -> None:
    host, sidebar = listing(fixed)
    sidebar.display = False
    async with host.run_test(size=(80, 24)) as pilot:
        sidebar.set_rows(many(100))
        sidebar.set_open("c70")
        sidebar.display = True
        await pilot.pause()
        assert any("conversation 70" in line for line in drawn(sidebar))


async def test_the_spinner_runs_only_while_something_streams(listing: Listing) -> None:
    host, sidebar = listing(fixed)
    host.animation_level = "full"
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        rows = many(3)
        sidebar.set_rows(rows)
        assert sidebar._spinner is None
        sidebar.set_rows([replace(rows[0], streaming=True), *rows[1:]])
        assert sidebar._spinner is not None
        before = drawn(sidebar)[1]
        await until(host, lambda: drawn(sidebar)[1] != before)
        assert before[2:] == drawn(sidebar)[1][2:]
        sidebar.set_rows(rows)
        assert sidebar._spinner is None


async def test_a_mark_is_explained_where_the_mouse_rests(listing: Listing) -> None:
    known = {"a": cold(412)}
    host, sidebar = listing(fixed, known.__getitem__)
    async with host.run_test(size=(80, 24)) as pilot:
        sidebar.set_rows([SidebarRow("a", "[/x] title", NOW)])
        await pilot.hover(Sidebar, offset=Offset(3, 1))
        assert str(sidebar.tooltip) == "[/x] title\ncold · 412 tokens to prefill"
        known["a"] = Warmth(Heat.WARM, 412, 1, NOW)
        sidebar.refresh_marks()
        assert str(sidebar.tooltip) == "[/x] title\nwarm · 412 tokens in the cache, used 0 s ago"
        await pilot.hover(Sidebar, offset=Offset(3, 8))
        assert sidebar.tooltip is None


async def test_a_mark_that_changes_draws_its_own_line_and_nothing_else(
    listing: Listing, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: dict[str, Warmth] = {}
    host, sidebar = listing(fixed, lambda id: known.get(id, UNKNOWN))
    async with host.run_test(size=(80, 24)) as pilot:
        rows = many(10)
        sidebar.set_rows(rows)
        await pilot.pause()
        calls: list[int] = []
        row = Sidebar._row
        monkeypatch.setattr(Sidebar, "_row", lambda self, i, w: calls.append(i) or row(self, i, w))
        sidebar.set_rows([*rows])
        sidebar.refresh_marks()
        await pilot.pause()
        assert calls == []
        known["c4"] = cold(8120)
        sidebar.refresh_marks()
        await pilot.pause()
        assert set(calls) == {4}
        sidebar.set_rows([*rows[:6], replace(rows[6], title="renamed"), *rows[7:]])
        await pilot.pause()
        assert set(calls) == {4, 6}
        assert any("○ conversation 4" in line for line in drawn(sidebar))


async def test_at_midnight_the_groups_change_and_the_cursor_stays(listing: Listing) -> None:
    now = [NOW]
    host, sidebar = listing(lambda: now[0])
    async with host.run_test(size=(80, 24)) as pilot:
        sidebar.set_rows(many(1))
        sidebar.focus()
        await pilot.pause()
        assert drawn(sidebar)[0] == " Today"
        now[0] += DAY
        sidebar.regroup()
        assert drawn(sidebar)[0] == " Yesterday"
        assert sidebar.cursor_id == "c0"


@pytest.mark.parametrize("count", [10_000])
async def test_ten_thousand_conversations_are_one_widget_and_draw_only_what_is_seen(
    listing: Listing, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    host, sidebar = listing(fixed, lambda id: asked.append(id) or UNKNOWN)
    async with host.run_test(size=(120, 40)) as pilot:
        calls: list[int] = []
        row = Sidebar._row
        monkeypatch.setattr(Sidebar, "_row", lambda self, i, w: calls.append(i) or row(self, i, w))
        sidebar.set_rows(many(count))
        await pilot.pause()
        assert not sidebar.children
        assert 0 < len(set(calls)) <= 40
        assert len(asked) <= 40
        assert sidebar.virtual_size.height > count


def test_grouping_ten_thousand_rows_measures_the_clock_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: pytest.fail("the clock is the app's"))
    assert len(lines_of(many(10_000), NOW)) > 10_000
