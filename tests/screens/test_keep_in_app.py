"""/keep, the mark of what is kept, and what F2 says of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from app_kit import Drive, Driven

from toyserver import ToyServer, tokens

pytestmark = pytest.mark.slow


@pytest.fixture
async def app(drive: Drive, server: ToyServer) -> AsyncIterator[Driven]:
    """Two conversations, the last one open, on a server whose states could be saved."""
    server.on_chat(tokens("Hello"))
    async with drive(size=(100, 40)) as app:
        app.service.saver.why_not = lambda id: None  # type: ignore[method-assign]
        await app.begin("lamp")
        await app.begin("fog")
        yield app


def kept(app: Driven) -> dict[str, str]:
    """By title, the message up to which it is kept."""
    return {app.service.conversations.title(id): one.node for id, one in app.service.claims.all().items()}


async def test_a_conversation_is_kept_and_released_and_marked_meanwhile(app: Driven) -> None:
    await app.command("/keep")
    await app.until(lambda: "fog" in app.listed and "◆" in app.listed)
    assert app.noticed("Kept · saved while the server is idle") and kept(app) == {"fog": ""}
    await app.command("/keep")
    await app.until(lambda: "◆" not in app.listed)
    assert app.noticed("No longer kept") and kept(app) == {}
    await app.command("/keep")
    await app.until(lambda: kept(app))
    await app.command("/keep off")
    await app.until(lambda: not kept(app))


async def test_a_selected_answer_is_kept_and_the_last_one_is_the_conversation(app: Driven) -> None:
    await app.say("more")
    await app.select(1)
    await app.run("keep")
    await app.until(lambda: kept(app))
    assert app.noticed("Kept up to this answer") and kept(app) == {"fog": app.path[1].id}
    await app.select(0)
    await app.run("keep")
    await app.until(lambda: not kept(app))
    await app.select(2)
    await app.run("keep")
    await app.until(lambda: kept(app))
    assert kept(app) == {"fog": ""}
    await app.select(1)
    await app.run("keep")
    await app.until(lambda: kept(app) == {"fog": app.path[1].id})


async def test_the_list_has_its_mark_and_its_menu_keeps_another_one(app: Driven) -> None:
    await app.press("ctrl+s")
    await app.opens("ConversationPicker")
    await app.type("lamp")
    await app.press("tab")
    await app.opens("ConfirmScreen")
    await app.press("k")
    await app.until(lambda: kept(app) == {"lamp": ""})
    await app.opens("ConversationPicker")
    await app.until(lambda: any("lamp" in line and "◆ not saved yet" in line for line in app.lines))


async def test_the_inspector_tells_what_is_kept(app: Driven) -> None:
    await app.command("/keep")
    await app.until(lambda: kept(app))
    await app.press("f2")
    await app.opens("InspectorScreen")
    await app.press("tab", "tab")
    await app.until(lambda: "1 kept, 0 B of 4.0 GB" in app.text and "◆ fog not saved yet" in app.text)


async def test_another_window_keeps_and_releases(app: Driven) -> None:
    other = app.service.store.kept
    await app.command("/keep")
    await app.until(lambda: "◆" in app.listed)
    other.remove(app.conversation.id)
    app.service.conversations.list_changed()
    await app.until(lambda: "◆" not in app.listed)


async def test_a_server_that_cannot_save_states_and_an_empty_conversation_are_told(
    drive: Drive, server: ToyServer
) -> None:
    server.on_chat(tokens("Hello"))
    async with drive() as app:
        await app.command("/keep")
        await app.until(lambda: app.noticed("This conversation is empty; there is nothing to keep."))
        await app.begin("fog")
        await app.command("/keep")
        await app.until(lambda: app.noticed("This server cannot save states; the built-in engine can."))
        assert kept(app) == {}
