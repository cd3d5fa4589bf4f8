"""Favourites, the archive and tags in the list, the palette and the search; naming and deleting without leaving the
list."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from app_kit import Drive, Driven

from kvchat.prompt.tags import ARCHIVE, FAVOURITE
from toyserver import ToyServer, tokens

pytestmark = pytest.mark.slow


@pytest.fixture
async def app(drive: Drive, server: ToyServer) -> AsyncIterator[Driven]:
    """Three conversations, the last one open."""
    server.on_chat(tokens("Hello"))
    async with drive() as app:
        for title in ("lamp", "fog", "bees"):
            await app.begin(title)
        yield app


def listed(app: Driven) -> list[str]:
    """The titles and groups of the sidebar, without their marks."""
    return [line.strip(" ◐●○·│").split("  ")[0] for line in app.listed.splitlines() if line.strip(" │")]


def tags(app: Driven, title: str) -> tuple[str, ...]:
    return next(one.tags for one in app.service.conversations.all() if one.title == title)


async def in_list(app: Driven, filter: str = "") -> None:
    await app.press("ctrl+s")
    await app.opens("ConversationPicker")
    if filter:
        await app.type(filter)


def cursor_line(app: Driven) -> str:
    return next(line for line in app.lines if "▌" in line)


async def test_a_favourite_stands_first_until_it_is_none_any_more(app: Driven) -> None:
    await app.open(next(one.id for one in app.service.conversations.all() if one.title == "lamp"))
    await app.command("/favourite")
    await app.until(lambda: listed(app)[:2] == ["★ Favourites", "lamp"])
    assert app.noticed("Favourite: first in the list.") and tags(app, "lamp") == (FAVOURITE,)
    await app.press("f9")
    await app.until(lambda: app.said == ["bees", "Hello"])
    await app.press("f8")
    await app.until(lambda: app.said == ["lamp", "Hello"])
    await app.command("/favorite")
    await app.until(lambda: "★" not in app.listed)
    assert app.noticed("No longer a favourite.") and tags(app, "lamp") == ()


async def test_the_archived_is_out_of_the_list_and_is_found_by_a_filter_and_a_search(app: Driven) -> None:
    await app.command("/archive")
    await app.until(lambda: "bees" not in app.listed)
    assert app.said == ["bees", "Hello"], "it stays open"
    await in_list(app)
    assert "bees" not in app.text and "fog" in app.text
    await app.type("bee")
    await app.until(lambda: "archived" in cursor_line(app))
    await app.press("escape")
    await app.closes()
    await app.command("/search tag:archive Hello")
    await app.opens("SearchScreen")
    await app.until(lambda: "1 message" in app.text and "bees" in app.text)
    await app.press("escape")
    await app.closes()
    await app.command("/archive")
    await app.until(lambda: "bees" in app.listed)
    assert app.noticed("Back in the list.") and tags(app, "bees") == ()


async def test_tags_are_put_on_and_taken_off_by_a_command(app: Driven) -> None:
    await app.command("/tag Work paris")
    await app.until(lambda: app.noticed("Tags: #paris #work"))
    await app.command("/tag home -paris")
    await app.until(lambda: app.noticed("Tags: #home #work"))
    await app.command("/tag a/b")
    await app.until(lambda: app.noticed("“a/b” cannot be a tag"))
    assert tags(app, "bees") == ("home", "work")


async def test_the_dialog_of_tags_leaves_alone_what_another_window_tagged(app: Driven) -> None:
    await app.command("/tag home paris")
    await app.until(lambda: tags(app, "bees") == ("home", "paris"))
    await app.command("/tag")
    await app.opens("AskScreen")
    store = app.service.store
    store.change(store.conversation(app.conversation.id), lambda row: _with(row, "other"))
    await app.press("ctrl+u")
    await app.type("home work")
    await app.press("enter")
    await app.until(lambda: app.noticed("Tags: #home #other #work"))


def _with(row: object, tag: str) -> object:
    from msgspec.structs import replace

    return replace(row, tags=tuple(sorted({*row.tags, tag})))  # type: ignore


async def test_an_empty_conversation_is_not_tagged(app: Driven) -> None:
    await app.press("ctrl+n")
    await app.until(lambda: app.said == [])
    for command in ("/favourite", "/tag", "/tag work"):
        app.notices.clear()
        await app.command(command)
        await app.until(lambda: app.noticed("there is nothing to tag"))


async def test_conversations_are_named_and_deleted_without_leaving_the_list(app: Driven) -> None:
    await in_list(app)
    await app.press("down", "f12")
    await app.opens("AskScreen")
    await app.type("clouds")
    await app.press("enter")
    await app.opens("ConversationPicker")
    assert "clouds" in cursor_line(app)
    await app.press("delete")
    await app.until(lambda: app.front == "ConversationPicker" and "clouds" not in app.text)
    assert "lamp" in cursor_line(app), "the next one"
    await app.press("escape")
    await app.closes()
    assert [one.title for one in app.service.conversations.all() if one.turns] == ["bees", "lamp"]
    assert app.said == ["bees", "Hello"]
    await app.press("ctrl+underscore")
    await app.until(lambda: app.said == ["fog", "Hello"])


async def test_the_open_one_is_deleted_from_the_list_and_the_next_is_shown_behind_it(app: Driven) -> None:
    await in_list(app)
    await app.press("delete")
    await app.until(lambda: app.front == "ConversationPicker" and "bees" not in app.text and app.said[0] == "fog")
    await app.press("escape")
    await app.closes()
    assert app.shown == ["fog", "Hello"]


async def test_the_menu_of_the_list_does_the_rest(app: Driven) -> None:
    await in_list(app, "fog")
    for key, word in (("f", "★ fog"), ("a", "archived")):
        await app.press("tab")
        await app.opens("ConfirmScreen")
        await app.press(key)
        await app.until(lambda word=word: app.front == "ConversationPicker" and word in cursor_line(app))
    await app.press("tab")
    await app.opens("ConfirmScreen")
    assert "No longer a favourite" in app.text and "Back into the list" in app.text
    await app.press("t")
    await app.opens("AskScreen")
    await app.type("work")
    await app.press("enter")
    await app.until(lambda: app.front == "ConversationPicker" and "#work" in cursor_line(app))
    assert tags(app, "fog") == (ARCHIVE, FAVOURITE, "work")
    await app.press("tab")
    await app.opens("ConfirmScreen")
    await app.press("o")
    await app.until(lambda: app.front == "ChatScreen" and app.said == ["fog", "Hello"])


async def test_clear_begins_a_new_conversation_and_exit_quits(app: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    await app.command("/clear")
    await app.until(lambda: app.said == [] and app.shown == [])
    codes: list[object] = []
    monkeypatch.setattr(app.app, "exit", lambda code=None: codes.append(code))
    await app.command("/EXIT")
    await app.until(lambda: codes == [0])
