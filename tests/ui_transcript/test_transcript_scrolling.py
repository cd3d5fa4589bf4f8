"""Following the end, and staying put."""

from __future__ import annotations

from typing import Any

import pytest
from textual.selection import SELECT_ALL

from kvchat.ui.widgets.transcript.widget import Transcript

SIZE = (80, 24)
TEXT = "\n\n".join(f"paragraph {number} of the answer" for number in range(40))


async def _drawn(pilot: Any) -> None:
    """Wait until streamed text is on the screen."""
    for _ in range(60):
        await pilot.pause(0.02)
        if pilot.app.transcript._stream.pending is None:
            break
    await pilot.pause()


async def test_a_conversation_opens_at_its_end(make_app: Any, items: Any) -> None:
    app = make_app(items.turns(30))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert app.transcript.following
        assert "word" in app.lines()[-1]
        assert "point 0" in "\n".join(app.lines()) and app.transcript.rows_below == 0


async def test_streaming_text_is_followed_at_the_end(make_app: Any, items: Any) -> None:
    app = make_app([items.question(1), items.streaming(1)])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        for end in range(45, len(TEXT), 161):
            app.transcript.stream_text("a1", TEXT[:end])
            await _drawn(pilot)
            last = [line for line in app.lines() if line][-1].strip()
            assert last.removesuffix("▍").strip() == TEXT[:end].rstrip().split("\n")[-1].strip()
            assert last.endswith("▍") and sum("▍" in line for line in app.lines()) == 1
        app.transcript.end_stream(items.answer(1, TEXT))
        await pilot.pause()
        assert app.lines()[-1].strip().endswith("paragraph 39 of the answer")


async def test_scrolling_up_while_it_streams_stays_put_to_the_row(make_app: Any, items: Any) -> None:
    app = make_app([*items.turns(12), items.streaming(99)])
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.stream_text("a99", TEXT[:600])
        await _drawn(pilot)
        app.transcript.scroll_relative(y=-1, animate=False)
        await pilot.pause()
        assert not app.transcript.following
        before = app.lines()
        for end in range(700, len(TEXT), 150):
            app.transcript.stream_text("a99", TEXT[:end])
            await _drawn(pilot)
            assert app.lines()[:-1] == before[:-1]
        assert "new text below" in app.lines()[-1]


async def test_scrolling_back_near_the_end_follows_again(make_app: Any, items: Any) -> None:
    app = make_app([*items.turns(12), items.streaming(99)])
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.stream_text("a99", TEXT[:600])
        await _drawn(pilot)
        app.transcript.scroll_relative(y=-5, animate=False)
        await pilot.pause()
        app.transcript.scroll_relative(y=3, animate=False)
        await pilot.pause()
        assert app.transcript.following
        app.transcript.stream_text("a99", TEXT[:900])
        await _drawn(pilot)
        assert TEXT[:900].split("\n")[-1] in app.lines()[-1]


async def test_end_jumps_to_the_end_and_follows(make_app: Any, items: Any) -> None:
    app = make_app(items.turns(30))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home")
        await pilot.pause()
        assert app.lines()[0].strip().startswith("▎ You") or "You" in app.lines()[0]
        assert not app.transcript.following
        await pilot.press("end")
        await pilot.pause()
        assert app.transcript.following and app.transcript.rows_below == 0
        changes = [(m.following, m.rows_below) for m in app.of(Transcript.FollowChanged)]
        assert changes[-1] == (True, 0) and any(not following and below > 0 for following, below in changes)


@pytest.mark.parametrize(("steps", "count"), [(1, 6), (5, 16), (17, 40)])
async def test_no_row_is_skipped_or_repeated_on_the_way_up(make_app: Any, items: Any, steps: int, count: int) -> None:
    """Messages above are drawn for the first time on the way, and are not as high as estimated."""
    app = make_app(items.turns(count))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        view = app.transcript
        below = app.lines()
        while view.scroll_y > 0:
            y = view.scroll_y
            view.scroll_relative(y=-steps, animate=False)
            await pilot.pause()
            lines = app.lines()
            shift = steps if view.scroll_y > 0 else min(steps, round(y))
            if view.scroll_y > 0:
                assert lines[shift:] == below[: len(lines) - shift]
            below = lines
        assert "You" in app.lines()[0]


async def test_the_top_row_stays_in_its_message_when_the_width_changes(make_app: Any, items: Any) -> None:
    app = make_app(items.turns(40))
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        app.transcript.select("q20")
        app.transcript.scroll_to(y=app.transcript._column.top(app.transcript._column.find("q20")), animate=False)
        await pilot.pause()
        before = app.lines()[1]
        await pilot.resize_terminal(60, 24)
        await pilot.pause()
        assert app.lines()[1] == before
        assert "question 20" in before


async def test_unfolding_above_the_view_does_not_move_it(make_app: Any, items: Any) -> None:
    app = make_app([items.answer(1, "text", reasoning="\n".join(f"thought {i}" for i in range(30))), *items.turns(20)])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        app.transcript.scroll_relative(y=-4, animate=False)
        await pilot.pause()
        before = app.lines()
        app.transcript._toggle(app.transcript._column.entry(0), "reasoning")
        await pilot.pause()
        assert app.lines() == before


async def test_ten_thousand_messages_draw_only_what_is_near_the_view(make_app: Any, items: Any) -> None:
    app = make_app(items.turns(5000))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        drawn = sum(entry.drawn for _, entry in app.transcript._column.made())
        assert 0 < drawn < 60
        assert len(app.query("Transcript > *")) == 0
        await pilot.press("home")
        await pilot.pause()
        assert "question 0" in "\n".join(app.lines())


async def test_a_followed_end_is_followed_through_every_size(make_app: Any, items: Any) -> None:
    app = make_app(items.turns(20))
    async with app.run_test(size=(80, 24)) as pilot:
        for size in ((80, 40), (50, 40), (120, 16), (30, 60)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert app.transcript.following and app.transcript.rows_below == 0
            assert "point" in app.lines()[-1] or "word" in app.lines()[-2]


async def test_a_message_whose_height_was_estimated_stays_findable_by_home_and_end(make_app: Any, items: Any) -> None:
    table = "| a | b |\n|---|---|\n" + "| c | d |\n" * 80
    app = make_app([items.question(1, "x" * 5000), *items.turns(3), items.answer(9, table)])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home")
        await pilot.pause()
        assert "You" in app.lines()[0] and app.transcript.scroll_y == 0
        await pilot.press("end")
        await pilot.pause()
        assert "c" in app.lines()[-1]


@pytest.mark.parametrize("wide", [False, True])
async def test_no_row_of_a_very_long_message_is_skipped_on_the_way_through_it(
    make_app: Any, items: Any, wide: bool
) -> None:
    numbers = [
        f"{'長い行' * (number % 40) if wide else 'x' * (number % 140)} line {number} end" for number in range(9000)
    ]
    turns = items.turns(4)
    app = make_app([*turns[:4], items.answer(9, "\n".join(numbers)), *turns[4:]])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        view = app.transcript
        for key, there in (("home", "question 0"), ("end", "question 3")):
            below = app.lines()
            for _ in range(60):
                old = round(view.scroll_y)
                view.scroll_relative(y=-7 if key == "home" else 7, animate=False)
                await pilot.pause()
                lines = app.lines()
                if view.scroll_y and not view.following:
                    assert lines[7:] == below[:-7] if key == "home" else lines[:-7] == below[7:], (old, view.scroll_y)
                below = lines
            await pilot.press(key)
            await pilot.pause()
            assert there in "\n".join(app.lines())
        assert len(numbers) > 8000 and view.find("line 4321 end") == 1
        await pilot.pause()
        assert any("line 4321 end" in line for line in app.lines())
        everything = view.get_selection(SELECT_ALL)
        assert everything is not None and all(number in everything[0] for number in numbers)
