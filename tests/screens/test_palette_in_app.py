"""The palette: what is typed finds the action that is meant, and every row tells its key and its cost."""

from __future__ import annotations

from dataclasses import replace

from app_kit import Drive
from textual.fuzzy import FuzzySearch
from textual.widgets import Input

from corpus import corpus
from kvchat.commands.actions import ACTIONS
from kvchat.config import Settings
from kvchat.text.format import short_count
from kvchat.ui.screens.kit.filter_list import Heading, grouped
from kvchat.ui.screens.kit.rows import RowList
from kvchat.ui.screens.palette import PaletteEntry, PaletteScreen, best
from toyserver import ToyServer, tokens

ALL = [PaletteEntry(action, "", "") for action in ACTIONS if action.palette]


@corpus(
    ("typed", "first"),
    [
        ("parameters", "parameters"),
        ("param", "parameters"),
        ("sys", "system"),
        ("export", "export"),
        ("regen", "transcript.regenerate"),
        ("edit", "transcript.edit"),
        ("drop", "transcript.delete"),
        ("temperature", "parameters"),
        ("fork", "transcript.fork"),
        ("newc", "new"),
        ("clear", "new"),
        ("exit", "quit"),
    ],
)
def test_what_is_typed_finds_what_is_meant(typed: str, first: str) -> None:
    assert next(iter(best(ALL, typed, FuzzySearch()))).action.id == first


def test_nothing_is_found_by_what_nothing_has() -> None:
    assert not list(best(ALL, "qqqq", FuzzySearch()))


def test_without_a_word_all_are_there_in_their_groups() -> None:
    rows = list(grouped(ALL, lambda one: one.action.group))
    assert [row for row in rows if isinstance(row, PaletteEntry)] == ALL
    heads = [row.text for row in rows if isinstance(row, Heading) and row.text]
    assert len(heads) == len(set(heads)) == len({entry.action.group for entry in ALL})


async def test_a_row_tells_key_and_cost_and_the_cost_is_that_of_the_question(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("Hello"))
    async with drive(settings=replace(Settings(), keys={"export": "f11"})) as app:
        await app.begin("What is a prefix? " * 200, "and a slot?")
        await app.press("ctrl+p")
        await app.opens("PaletteScreen")
        price = app.service.prices.estimate(app.conversation.id, "system")
        assert price.tokens
        await app.type("system")
        await app.until(lambda: "System prompt" in app.text)
        row = next(line for line in app.text.splitlines() if "System prompt" in line)
        assert f"prefills {short_count(price.tokens)}" in row
        await app.press(*["backspace"] * 6)
        await app.type("export")
        await app.until(lambda: any("Export" in line and "F11" in line for line in app.text.splitlines()))


async def test_what_is_free_has_no_cost(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        assert "new" not in app.chat.costs.in_brief() and "parameters" not in app.chat.costs.in_brief()


async def test_before_the_first_message_nothing_costs_anything(drive: Drive) -> None:
    async with drive() as app:
        assert app.chat.costs.in_brief() == {}
        await app.press("ctrl+p")
        await app.opens("PaletteScreen")
        assert "prefill" not in "\n".join(line for line in app.text.splitlines() if "Edit message" in line)


async def test_over_a_dialog_it_leaves_that_unanswered(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.press("f12")
        await app.opens("AskScreen")
        await app.press("ctrl+p")
        await app.opens("PaletteScreen")
        await app.type("export")
        await app.press("enter")
        await app.opens("ExportScreen")
        await app.press("escape")
        await app.closes()
        assert app.conversation.record.title == "one"


async def test_escape_does_nothing_and_asks_nothing(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        await app.begin("one")
        asked = len(server.chats)
        await app.press("ctrl+p")
        await app.opens("PaletteScreen")
        await app.type("again")
        await app.press("escape")
        await app.closes()
        assert len(server.chats) == asked and app.draft == ""


async def test_a_list_that_became_shorter_meanwhile_is_no_matter(drive: Drive) -> None:
    async with drive() as app:
        await app.press("ctrl+p")
        await app.opens("PaletteScreen")
        screen = app.app.screen
        assert isinstance(screen, PaletteScreen)
        screen.rows.post_message(RowList.Moved(screen.rows, 30))
        screen.rows.post_message(RowList.Chosen(screen.rows, 30))
        screen.query_one(Input).value = screen.query_text = "qqqq"
        screen.fill()  # as when the letters are handled before what the list said earlier
        await app.until(lambda: "No action has this name." in app.text)
        assert app.app.screen is screen
