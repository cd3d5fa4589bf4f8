"""A conversation on the screen while another kvchat writes in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from app_kit import Drive, Driven

from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.store import Store
from kvchat.store.presence import process_id as owner
from toyserver import ToyServer, tokens
from two_windows_kit import Slow, history, say, streaming

pytestmark = pytest.mark.slow

WAITS = "Another window is answering · sends after it · Esc holds"
ANSWERS = "Another window is answering"


@asynccontextmanager
async def beside(app: Driven, tmp_path: Path) -> AsyncIterator[ChatService]:
    """Another kvchat that has the same conversation open."""
    assert app.server is not None
    service = ChatService(Store.open(tmp_path / "data"), changed(Settings(), "server.base_url", app.server.url))
    await service.conversations.open(app.conversation.id)
    try:
        yield service
    finally:
        await service.aclose()


async def looked(app: Driven) -> None:
    """The app has looked what other kvchats did, as it does every two seconds."""
    app.service.refresh()
    await app.rest()


def server_of(app: Driven) -> ToyServer:
    assert app.server is not None
    return app.server


async def test_a_message_waits_for_the_reply_of_another_window(drive: Drive, tmp_path: Path) -> None:
    async with drive() as app:
        id, slow = await app.begin("first"), Slow()
        async with beside(app, tmp_path) as other:
            await streaming(other, server_of(app), id, "second", slow)
            await app.write("third")
            await app.press("enter")
            await app.until(lambda: WAITS in app.prose)
            assert app.draft == "" and "searching" not in app.prose
            assert app.said == ["first", "Hello", "second", ""] and ANSWERS in app.prose
            server_of(app).on_chat(tokens("Yes."))
            slow.go.set()
            await app.until(lambda: app.said[-1] == "Yes.")
            await app.settled()
            assert app.said == ["first", "Hello", "second", "half and whole", "third", "Yes."]
            assert WAITS not in app.prose and ANSWERS not in app.prose
            assert history(server_of(app).chats[-1]) == app.said[:-1]


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_esc_gives_the_wait_up_and_holds_the_message(drive: Drive, tmp_path: Path, key: str) -> None:
    async with drive() as app:
        id, slow = await app.begin("first"), Slow()
        async with beside(app, tmp_path) as other:
            await streaming(other, server_of(app), id, "second", slow)
            await app.write("third")
            await app.press("enter")
            await app.until(lambda: WAITS in app.prose)
            await app.press(key)
            await app.until(lambda: WAITS not in app.prose)
            slow.go.set()
            await other.conversations.wait(id)
            await looked(app)
            assert app.said == ["first", "Hello", "second", "half and whole"]
            assert "Queue held: answer stopped" in app.text and "queued 1  third" in app.text
            await app.press("up")
            await app.until(lambda: app.draft == "third" and "queued" not in app.text)


async def test_the_reply_of_another_window_that_dies_is_settled_on_the_screen(drive: Drive, tmp_path: Path) -> None:
    async with drive() as app:
        id, slow = await app.begin("first"), Slow()
        async with beside(app, tmp_path) as other:
            await streaming(other, server_of(app), id, "second", slow)
            await app.until(lambda: other.store._db.row("SELECT 1 FROM delta"))
            await looked(app)
            assert ANSWERS in app.prose
            owner.release(other.store.database.owner)  # as if its process had ended
            await looked(app)
            assert "Interrupted" in app.prose and ANSWERS not in app.prose and app.said[-1] == "half "


async def test_what_another_window_says_at_the_end_is_shown_and_told(drive: Drive, tmp_path: Path) -> None:
    async with drive() as app:
        id = await app.begin("first")
        async with beside(app, tmp_path) as other:
            await say(other, id, "second")
            await looked(app)
            assert app.shown == ["first", "Hello", "second", "Hello"]
            assert app.notices == ["Another window wrote here."]


async def test_the_screen_stays_where_it_is_and_leads_to_the_other_branch(drive: Drive, tmp_path: Path) -> None:
    async with drive() as app:
        id = await app.begin("first", "second")
        async with beside(app, tmp_path) as other:
            await other.turns.edit(id, other.conversations.get(id).path()[1].id, "instead")  # type: ignore[union-attr]
            await other.conversations.wait(id)
            await looked(app)
            assert app.shown == ["first", "Hello", "second", "Hello"]
            assert app.notices == ["Another window wrote on another branch · /tree shows it"]
            await app.command("/tree")
            await app.opens("BranchTreeScreen")
            await app.press("enter")
            await app.closes()
            await app.until(lambda: app.shown == ["instead", "Hello"])


async def test_a_deletion_in_another_window_is_told_and_can_be_taken_back(drive: Drive, tmp_path: Path) -> None:
    async with drive() as app:
        id = await app.begin("first")
        async with beside(app, tmp_path) as other:
            await other.conversations.delete(id)
            await looked(app)
            assert app.shown == ["first", "Hello"] and app.notices == [
                "Another window deleted this conversation · Ctrl+_ brings it back"
            ]
            await app.write("second")
            await app.press("enter")
            await app.until(lambda: app.draft == "second")
            assert app.notices[1:] == ["This conversation is in the trash, so nothing was sent."]
            await app.run("undo")
            await app.until(lambda: app.conversation.record.trashed is None)
            await app.press("enter")
            await app.until(lambda: app.said[-2:] == ["second", "Hello"])


async def test_a_new_name_is_shown(drive: Drive, tmp_path: Path) -> None:
    async with drive(size=(120, 30)) as app:
        id = await app.begin("first")
        async with beside(app, tmp_path) as other:
            await other.conversations.rename(id, "Bees in Bergen")
            await looked(app)
            assert "Bees in Bergen" in app.listed and app.notices == []
