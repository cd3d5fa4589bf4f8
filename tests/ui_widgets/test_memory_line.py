"""The line of memories over the composer: what it shows, how it is changed, and that nothing moves for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len
from textual.geometry import Region

from kvchat.memory.entry import Entry, Kind
from kvchat.ui.widgets.composer import Composer
from kvchat.ui.widgets.memory_line import MemoryLine

Writing = Callable[..., Any]
LONG_ENOUGH = 0.6
"""Seconds after which the typing rests."""


def entry(id: str, text: str) -> Entry:
    return Entry(id, Kind.FACT, text, "topics/things.md", 1.7e9)


UNITS, KILN, DOG = (entry("m1", "Prefers metric units."), entry("m2", "The kiln trips the breaker."),
                    entry("m3", "Has a dog named Fenna."))


def drawn(host: Any, composer: Composer) -> str:
    """The row on which the line of memories stands, as it is on the screen."""
    rows = [strip.text for strip in host.screen._compositor.render_strips()]
    return rows[composer.region.y]


@pytest.fixture
def memories(writing: Writing) -> Writing:
    """An app around a composer with a rule above it, as in the app."""

    def make(**options: object) -> tuple[Any, Composer]:
        host, composer = writing(**options)
        composer.styles.border_top = ("solid", "gray")
        return host, composer

    return make


async def rested(host: Any, composer: Composer, pilot: Any, text: str) -> None:
    """`text` was typed and the typing rests."""
    composer.insert(text)
    await pilot.pause(LONG_ENOUGH)


async def test_a_pause_in_the_typing_asks_what_belongs_and_a_key_does_not(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        composer.load("", "c1")
        await pilot.press(*"my kiln")
        assert host.heard(Composer.Rested) == []
        await pilot.pause(LONG_ENOUGH)
        assert [(m.text, m.key) for m in host.heard(Composer.Rested)] == [("my kiln", "c1")]
        await pilot.press("s", "backspace")
        await pilot.pause(LONG_ENOUGH)
        assert len(host.heard(Composer.Rested)) == 1, "the text is the same"


async def test_a_command_and_white_space_ask_nothing(memories: Writing) -> None:
    host, composer = memories()
    composer.set_commands([("new", "New")])
    async with host.run_test() as pilot:
        for text in ("/new about my kiln", "   \n "):
            await rested(host, composer, pilot, text)
            composer.replace_text("")
        assert host.heard(Composer.Rested) == []
        await rested(host, composer, pilot, "//kiln is what I type")
        assert [m.text for m in host.heard(Composer.Rested)] == ["/kiln is what I type"]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 12)])
async def test_the_line_comes_and_goes_without_moving_anything(memories: Writing, size: tuple[int, int]) -> None:
    host, composer = memories()
    async with host.run_test(size=size) as pilot:
        await rested(host, composer, pilot, "my kiln")

        def places() -> list[Region]:
            return [widget.region for widget in host.query("*") if not isinstance(widget, MemoryLine)]

        before = places()
        composer.set_memories([UNITS, KILN])
        await pilot.pause()
        assert drawn(host, composer).strip(" ─").startswith("◆ 2 memories")
        assert places() == before
        composer.set_memories([])
        await pilot.pause()
        assert set(drawn(host, composer).strip()) == {"─"}
        assert places() == before


async def test_the_line_names_the_memories_and_the_key(memories: Writing) -> None:
    host, composer = memories()
    composer.set_memories_key("^B")
    async with host.run_test(size=(100, 30)) as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.set_memories([UNITS, KILN], "my kiln")
        await pilot.pause()
        left, right = drawn(host, composer).strip("─ ").split(" ─", 1)
        assert left == "◆ 2 memories: Prefers metric units. × · The kiln trips the breaker. ×"
        assert right.strip("─ ") == "^B"


async def test_memories_found_for_another_text_are_not_shown(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.set_memories([DOG], "my dog")
        assert composer.memories == ()
        composer.set_memories([KILN], "my kiln")
        assert composer.memories == (KILN,)


async def test_what_is_shown_stays_while_one_types_on(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.set_memories([KILN])
        await pilot.press(*" and the")
        assert "1 memory: The kiln trips" in drawn(host, composer)


async def test_a_click_leaves_one_out_and_it_stays_out_until_the_message_is_sent(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.set_memories([UNITS, KILN])
        await pilot.pause()
        await pilot.click(MemoryLine, offset=(drawn(host, composer).index("Prefers") - 1 + 2, 0))
        await pilot.pause()
        assert composer.memories == (KILN,)
        assert "1 of 2 memories: The kiln trips" in drawn(host, composer)
        await rested(host, composer, pilot, " units")
        composer.set_memories([DOG, UNITS])
        assert composer.memories == (DOG,)
        await pilot.press("enter")
        sent = host.heard(Composer.Submitted)[0]
        assert (sent.dropped, sent.memories) == (frozenset({"m1"}), True)
        assert composer.memories == ()
        await rested(host, composer, pilot, "my kiln")
        composer.set_memories([UNITS])
        assert composer.memories == (UNITS,)


async def test_the_key_pressed_twice_leaves_all_out_also_those_found_later(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.set_memories([UNITS, KILN])
        assert composer.choose_memories() and composer.choose_memories()
        await pilot.pause()
        assert "◇ no memories" in drawn(host, composer)
        await pilot.press("space", "x")
        assert composer.text == "my kiln x", "the keys belong to the text again"
        await pilot.pause(LONG_ENOUGH)
        composer.set_memories([DOG])
        assert composer.memories == ()
        await pilot.press("enter")
        assert host.heard(Composer.Submitted)[0].memories is False


async def test_without_memories_the_key_is_nothing(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        assert not composer.choose_memories()
        await pilot.press("a")
        assert composer.text == "a"


async def test_keys_choose_one_and_leave_it_out(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.set_memories([UNITS, KILN, DOG])
        composer.choose_memories()
        await pilot.press("right", "delete")
        assert composer.memories == (UNITS, DOG)
        await pilot.press("left", "left", "backspace", "backspace")
        assert composer.memories == (UNITS, DOG)
        await pilot.press("escape", "y")
        assert composer.text == "my kilny"
        await pilot.press("enter")
        assert host.heard(Composer.Submitted)[0].dropped == {"m2"}


async def test_typing_while_choosing_goes_into_the_text_in_its_order(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.set_memories([KILN])
        composer.choose_memories()
        await pilot.press(*"abc")
        assert composer.text == "my kilnabc"
        assert host.focused is composer.query_one("ComposerText")


async def test_when_the_memories_go_while_one_chooses_the_keys_belong_to_the_text_again(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.set_memories([KILN])
        composer.choose_memories()
        await pilot.pause()
        composer.set_memories([])
        await pilot.pause()
        await pilot.press("a")
        assert composer.text == "my kilna"


async def test_tab_never_stops_at_the_line(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.set_memories([KILN])
        await pilot.pause()
        assert not any(isinstance(widget, MemoryLine) for widget in host.screen.focus_chain)
        composer.choose_memories()
        await pilot.press("escape")
        await pilot.pause()
        assert not any(isinstance(widget, MemoryLine) for widget in host.screen.focus_chain)


async def test_what_was_left_out_stays_so_when_a_message_could_not_be_sent(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        composer.restore("my kiln", (), frozenset({"m2"}))
        await pilot.pause(LONG_ENOUGH)
        composer.set_memories([UNITS, KILN])
        assert composer.memories == (UNITS,)
        composer.restore("my kiln", (), memories=False)
        await pilot.pause(LONG_ENOUGH)
        composer.set_memories([UNITS, KILN])
        assert composer.memories == ()
        await pilot.press("enter")
        assert host.heard(Composer.Submitted)[0].memories is False


async def test_another_conversation_begins_without_memories(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.set_memories([KILN])
        composer.choose_memories()
        composer.choose_memories()
        composer.load("my dog", "other")
        assert composer.memories == ()
        await pilot.pause(LONG_ENOUGH)
        assert host.heard(Composer.Rested)[-1].text == "my dog"
        composer.set_memories([DOG])
        assert composer.memories == (DOG,)


async def test_hostile_and_wide_memories_fit_every_width(memories: Writing) -> None:
    host, composer = memories()
    composer.set_memories_key("Ctrl+B")
    texts = ["\x1b[2J\u202eevil\n" * 9, "喜欢喝乌龙茶，不喜欢绿茶。" * 4, "", "👨\u200d👩\u200d👧" * 20, "x" * 500]
    async with host.run_test(size=(80, 24)) as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.set_memories([entry(f"m{n}", text) for n, text in enumerate(texts)])
        line = composer.query_one(MemoryLine)
        for width in (1, 5, 12, 20, 33, 57, 78, 118, 200):
            for choosing in (False, True):
                if choosing:
                    composer.choose_memories()
                    await pilot.pause()
                text = "".join(part.text for part in line._parts(width))
                assert width < 20 or cell_len(text) == width, (width, text)
                assert "\x1b" not in text and "\u202e" not in text and "\n" not in text
                if choosing:
                    await pilot.press("escape")
