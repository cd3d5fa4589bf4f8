"""The help."""

from __future__ import annotations

from functools import partial

from screens_kit import Seen, Shown, answered, showing, triples

from kvchat.commands.keymap import help_rows
from kvchat.ui.screens.help import HelpScreen
from kvchat.ui.widgets import sidebar_rows


async def test_every_action_can_be_reached_by_scrolling_and_by_its_name() -> None:
    rows = [row for group in help_rows().values() for row in group]
    async with showing(HelpScreen(help_rows()), size=(140, 50)) as shown:
        seen = ""
        for _ in range(10):
            seen += shown.text
            await shown.press("pagedown")
        assert [row.help for row in rows if row.help[:60] not in seen] == []


def found(words: str) -> Seen:
    def check(shown: Shown) -> None:
        assert words in shown.text and "Leave kvchat." not in shown.text

    return check


async def test_the_filter_finds_keys_commands_and_words() -> None:
    opened = partial(HelpScreen, help_rows())
    await triples(
        (opened, "'f4'", found("Export")),
        (opened, "'export'", found("F4")),
        (opened, "'/rename'", found("Give this conversation another title.")),
        (opened, "'regen'", found("/regenerate")),
        (opened, "'wasted'", found("░░░")),
        (opened, "'physical limit'", found("reuse")),
        (opened, "'beside messages'", found("warm: the server has")),
        (opened, "'qzqzqz'", found("Nothing of this name.")),
        (opened, "'qzqzqz' enter down escape", answered(None)),
        size=(120, 40),
    )


async def test_every_mark_and_glyph_has_its_word() -> None:
    async with showing(HelpScreen(help_rows(), query="conversations marks"), size=(120, 40)) as shown:
        for mark, glyph in sidebar_rows.GLYPHS.items():
            assert sidebar_rows.WORDS[mark] in shown.line(f" {glyph} ")
    async with showing(HelpScreen(help_rows(), query="cache tokens")) as shown:
        assert "███" in shown.text and "cached tokens / prompt tokens" in shown.text


async def test_the_row_under_the_cursor_is_told_in_full_at_80_columns() -> None:
    async with showing(HelpScreen(help_rows(), query="drop this question")) as shown:
        assert "Delete turn: Drop this question and its answer, on a new branch. /drop" in shown.prose


async def test_changed_keys_are_the_ones_shown() -> None:
    async with showing(HelpScreen(help_rows({"export": "f7"}), query="to a file")) as shown:
        assert "F7" in shown.line("▌") and "Write this conversation" in shown.line("▌") and "F4" not in shown.text


async def test_it_grows_with_the_terminal() -> None:
    shown_rows = []
    for size in ((80, 24), (120, 36), (160, 46)):
        async with showing(HelpScreen(help_rows()), size=size) as shown:
            assert max(map(len, shown.lines)) >= min(size[0] * 0.9, 128)
            shown_rows.append(sum("Ctrl+" in line or "/" in line for line in shown.lines))
    assert shown_rows == sorted(set(shown_rows))
