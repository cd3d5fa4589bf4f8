"""What a key in the composer costs: a layout of the whole screen only when the text gets another number of lines; and
what streams in makes way for it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from app_kit import Drive, Driven
from textual.screen import Screen

from kvchat.ui.widgets.transcript.streaming import ECHO, FRAME, HELD, Pace


@pytest.fixture
def layouts(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for each layout of a screen."""
    found: list[object] = []
    plain = Screen._refresh_layout

    def counted(screen: Screen[object], *arguments: object, **more: object) -> None:
        found.append(screen)
        plain(screen, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Screen, "_refresh_layout", counted)
    return found


async def cost(driven: Driven, layouts: list[object], *keys: str) -> int:
    """Layouts that these keys cause."""
    before = len(layouts)
    await driven.press(*keys)
    return len(layouts) - before


async def cheapest(driven: Driven, layouts: list[object], *keys: str) -> int:
    """Layouts that one of these keys causes: the fewest, for what came before may still be laid out."""
    return min([await cost(driven, layouts, key) for key in keys])


async def test_a_letter_lays_nothing_out_and_a_new_line_does(drive: Drive, layouts: list[object]) -> None:
    async with drive() as driven:
        await driven.grow("one", "two")
        driven.chat.composer.focus()
        assert await cheapest(driven, layouts, *"words", "left", "backspace") == 0
        assert await cost(driven, layouts, "ctrl+j") > 0
        assert await cheapest(driven, layouts, *"more") == 0
        assert driven.draft == "wor\nmores"


async def test_letters_that_narrow_a_list_lay_out_only_when_it_shrinks(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with drive() as driven:
        await driven.press("/", "e")
        commands, asked = driven.chat.composer.commands.list, list[bool]()
        plain = commands.refresh
        monkeypatch.setattr(
            commands,
            "refresh",
            lambda *regions, layout=False, **more: (asked.append(layout), plain(*regions, layout=layout, **more))[1],
        )
        rows, laid_out = [min(commands.ROWS, len(commands.items))], []
        for letter in "xpo":
            asked.clear()
            await driven.press(letter)
            laid_out.append(any(asked))
            rows.append(min(commands.ROWS, len(commands.items)))
        assert commands.is_open and "/export" in driven.text and rows[0] > rows[-1]
        assert laid_out == [now != before for before, now in pairwise(rows)] and not all(laid_out)


async def test_letters_while_an_answer_streams_lay_nothing_out(drive: Drive, layouts: list[object]) -> None:
    async with drive() as driven:
        await driven.streaming("half an answer")
        await driven.until(lambda: "half an answer" in driven.text)
        assert await cheapest(driven, layouts, *"abcd") == 0
        assert driven.draft == "abcd"


def test_text_makes_way_for_a_key_but_not_for_ever() -> None:
    pace = Pace()
    pace.painted(100.0, 0.0)
    pace.typed(100.0 + FRAME)
    assert pace.delay(100.0 + FRAME) == pytest.approx(ECHO)
    at = 100.0
    while pace.delay(at) > 0:
        pace.typed(at)  # a key that is held down
        at += 0.01
    assert at == pytest.approx(100.0 + FRAME + HELD, abs=0.011)
