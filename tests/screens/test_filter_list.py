"""What all lists under a filter line do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from screens_kit import NOW, Shown, conversation, showing, triples

from kvchat.commands.actions import ACTIONS
from kvchat.commands.keymap import help_rows
from kvchat.ui.screens.beginnings import Beginning, BeginningScreen
from kvchat.ui.screens.conversations import ConversationPicker, ConversationRowData
from kvchat.ui.screens.help import HelpScreen
from kvchat.ui.screens.kit.filter_list import FilterList, grouped
from kvchat.ui.screens.kit.tones import content
from kvchat.ui.screens.palette import PaletteEntry, PaletteScreen
from kvchat.ui.screens.themes import ThemeScreen

LISTS: dict[str, Callable[[], FilterList[Any, Any]]] = {
    "conversations": lambda: ConversationPicker(
        [conversation(f"lamp {n}") for n in range(9)], ConversationRowData(NOW)
    ),
    "help": lambda: HelpScreen(help_rows()),
    "palette": lambda: PaletteScreen([PaletteEntry(action, "", "") for action in ACTIONS if action.palette]),
    "personas": lambda: BeginningScreen(
        "persona", [Beginning(f"cook {n}", "", content(), f"cook {n}") for n in range(9)], "none"
    ),
    "themes": lambda: ThemeScreen(["nord", "gruvbox", "textual-dark"], "nord", "nord"),
}


@pytest.mark.parametrize("name", LISTS)
async def test_a_blank_is_no_word_and_leaves_the_cursor_where_it_is(name: str) -> None:
    async with showing(LISTS[name]()) as shown:
        await shown.press("down", "down")
        before = shown.cursor_line
        await shown.press("space")
        assert shown.cursor_line == before


async def test_what_finds_nothing_gives_nothing() -> None:
    def empty(shown: Shown) -> None:
        assert "▌" not in shown.text and shown.answers == []

    await triples(*((made, "'qqqqq' enter", empty) for made in LISTS.values()))


def test_rows_of_a_group_stand_together_under_its_name() -> None:
    lines = list(grouped(["ant", "bee", "asp"], lambda word: word[0]))
    assert [line if isinstance(line, str) else f"[{line.text}]" for line in lines] == [
        "[a]",
        "ant",
        "asp",
        "[]",
        "[b]",
        "bee",
    ]
