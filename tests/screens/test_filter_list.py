"""What all lists under a filter line do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from screens_kit import NOW, Seen, Shown, conversation, showing, triples
from textual.screen import Screen

from kvchat.commands.actions import ACTIONS
from kvchat.commands.keymap import help_rows
from kvchat.prompt.conversation import SearchHit
from kvchat.ui.screens.beginnings import Beginning, BeginningScreen
from kvchat.ui.screens.conversations import ConversationPicker, ConversationRowData, SearchScreen
from kvchat.ui.screens.help import HelpScreen
from kvchat.ui.screens.kit.filter_list import FilterList, grouped
from kvchat.ui.screens.kit.tones import content
from kvchat.ui.screens.palette import PaletteEntry, PaletteScreen
from kvchat.ui.screens.servers import ModelPicker
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


async def test_a_sentence_in_place_of_the_rows_is_read_to_its_end() -> None:
    """Three that are longer than a line, also at 40 columns."""

    class Library:
        async def search(self, query: str, limit: int = 50, ranked: bool = False) -> Sequence[SearchHit]:
            raise OSError("the index is on a disk that was taken out of this machine while it was read")

    async def files() -> Sequence[Any]:
        return []

    rows: list[tuple[Callable[[], Screen[Any]], str, Seen]] = [
        (
            LISTS["conversations"],
            "'qqqqq'",
            "No title matches. Ctrl+R searches the messages, Ctrl+N begins a new conversation.",
        ),
        (
            lambda: ModelPicker([], current="", files=files),
            "'qqqqq qqqqq'",
            "Nothing of this name. An address is written like http://HOST:PORT, a path like ~/model.gguf.",
        ),
        (
            lambda: SearchScreen(Library(), query="lamp", now=NOW),
            "",
            "The search did not work: the index is on a disk that was taken out of this machine while it was read.",
        ),
    ]
    await triples(*rows)
    await triples(*rows, size=(40, 24))


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
