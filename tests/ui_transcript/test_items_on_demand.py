"""Of a long conversation only the items near the view are made; what is done with the others is as if they were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from kvchat.ui.widgets.transcript.render.message import TranscriptItem, as_text

SIZE = (80, 24)
NEAR = 120
"""Messages that a few screens hold at most."""


class CountingSource:
    """Items, of which it is known which were asked for."""

    def __init__(self, items: Sequence[TranscriptItem]) -> None:
        self._items = items
        self.ids = [item.node_id for item in items]
        self.made: set[str] = set()

    def texts(self) -> Sequence[str]:
        return [item.text for item in self._items]

    def item(self, index: int) -> TranscriptItem:
        self.made.add(self.ids[index])
        return self._items[index]


class Long:
    """An app with a conversation of 6,000 messages, and the same with all of its items made."""

    def __init__(self, make_app: Any, items: Any, more: Sequence[TranscriptItem] = ()) -> None:
        self.items = [*items.turns(3000), *more]
        self.source = CountingSource(self.items)
        self.app, self.whole = make_app(), make_app(self.items)

    async def compare(self, steps: Callable[[Any, Any], Any]) -> list[str]:
        """Do the same in both; what both show at the end."""
        shown = []
        for app, source in ((self.app, self.source), (self.whole, None)):
            async with app.run_test(size=SIZE) as pilot:
                if source is not None:
                    app.transcript.set_source(source)
                else:
                    assert [*app.transcript._column] == self.items
                    for index in range(len(self.items)):
                        app.transcript._column.entry(index)
                await pilot.pause()
                await steps(app, pilot)
                await pilot.pause()
                shown.append((app.lines(), app.transcript.selected, app.transcript.following))
        assert shown[0][0] == shown[1][0]
        assert shown[0] == shown[1]
        return shown[0][0]


@pytest.fixture
def long(make_app: Any, items: Any) -> Long:
    return Long(make_app, items)


async def test_it_opens_at_its_end(long: Long) -> None:
    async def open_(app: Any, pilot: Any) -> None:
        assert app.transcript.following and app.transcript.rows_below == 0

    assert "word" in (await long.compare(open_))[-1]
    assert 0 < len(long.source.made) < NEAR


@pytest.mark.parametrize(
    ("keys", "sees"),
    [
        (("home",), "question 0"),
        (("home", "end"), "word"),
        (("pageup",) * 4, "word"),
        (("home", "pagedown", "pagedown"), "question"),
        (("up",) * 8, "question"),
        (("home", "down", "down", "shift+down"), "question 1"),
    ],
    ids=lambda one: "-".join(one) if isinstance(one, tuple) else "",
)
async def test_keys_go_where_they_went(long: Long, keys: tuple[str, ...], sees: str) -> None:
    async def press(app: Any, pilot: Any) -> None:
        for key in keys:
            await pilot.press(key)
            await pilot.pause()

    assert sees in "\n".join(await long.compare(press))
    assert len(long.source.made) < 2 * NEAR


@pytest.mark.parametrize("sizes", [[(50, 24)], [(120, 16), (30, 60)], [(80, 40), (80, 24)]])
async def test_a_resize_keeps_what_is_read(long: Long, sizes: list[tuple[int, int]]) -> None:
    async def resize(app: Any, pilot: Any) -> None:
        app.transcript.select("q1500")
        await pilot.pause()
        for size in sizes:
            await pilot.resize_terminal(*size)
            while app.transcript.size.width != size[0] or app.transcript.size.height != size[1] - 3:
                await pilot.pause()
            await pilot.pause()

    assert "question 1500" in "\n".join(await long.compare(resize))
    assert len(long.source.made) < 4 * NEAR


async def test_a_match_is_found_in_an_item_that_is_not_made(long: Long) -> None:
    async def find(app: Any, pilot: Any) -> None:
        assert app.transcript.find("question 77") == 11  # 77, 770 to 779
        for _ in range(3):
            assert app.transcript.find_next(1) > 0
            await pilot.pause()
        app.transcript.select_match()

    assert "question 771" in "\n".join(await long.compare(find))
    assert len(long.source.made) < 6 * NEAR


async def test_text_that_streams_far_below_moves_nothing(make_app: Any, items: Any) -> None:
    long = Long(make_app, items, [items.streaming(9999)])

    async def stream(app: Any, pilot: Any) -> None:
        await pilot.press("home")
        await pilot.pause()
        before = app.lines()[:-1]
        for end in range(20):
            app.transcript.stream_text("a9999", "\n\n".join(f"paragraph {one}" for one in range(end)))
            await pilot.pause()
        app.transcript.end_stream(items.answer(9999, "the whole answer"))
        await pilot.pause()
        assert app.lines()[:-1] == before
        assert app.transcript.items[-1].text == "the whole answer"
        assert app.transcript.find("the whole answer") == 1

    assert "the whole answer" in "\n".join(await long.compare(stream))


async def test_what_is_copied_is_all_of_it(long: Long) -> None:
    async def copy(app: Any, pilot: Any) -> None:
        assert as_text(app.transcript.items) == as_text(long.items)
        assert app.transcript.items[-1:] == long.items[-1:] and len(app.transcript.items) == 6000
        app.transcript.select("q100")
        app.transcript.select("a2000", extend=True)
        await pilot.pause()
        assert app.transcript.selected_items == long.items[200:4002]

    await long.compare(copy)


async def test_the_same_conversation_shown_again_stays_where_it_is(long: Long) -> None:
    async def again(app: Any, pilot: Any) -> None:
        app.transcript.select("q1500")
        await pilot.pause()
        before = app.lines()
        app.transcript.set_source(CountingSource(long.items[:-2]))
        await pilot.pause()
        assert app.lines() == before and not app.transcript.following

    assert "question 1500" in "\n".join(await long.compare(again))


async def test_a_code_block_far_above_is_found(make_app: Any, items: Any) -> None:
    app = make_app()
    source = CountingSource([items.answer(0, "```py\nprint()\n```"), *items.turns(200)[2:]])
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.set_source(source)
        await pilot.pause()
        app.transcript.select(None)
        assert app.transcript.code_text(1) == "print()" and app.transcript.code_text(2) is None


@pytest.mark.parametrize("number", [0, 22, 140])
async def test_a_message_above_that_changes_moves_nothing_that_is_read(long: Long, number: int) -> None:
    lines: list[list[str]] = []

    async def change(app: Any, pilot: Any) -> None:
        app.transcript.select("q1500")
        await pilot.pause()
        before = app.lines()
        item = replace(long.items[2 * number], text="1\n\n2\n\n3\n\n4")
        app.transcript.update_item(item.node_id, item)
        await pilot.pause()
        lines.append(before[:-1])
        assert app.lines()[:-1] == before[:-1]

    await long.compare(change)
    assert lines[0] == lines[1]
