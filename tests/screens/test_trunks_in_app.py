"""Trunks in the app: made by a line, chosen from a list, and shared by the conversations that begin with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_kit import Drive

pytestmark = pytest.mark.slow


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "lamp.md").write_text("The lamp is lit at dusk.\n")
    return folder


async def test_a_trunk_is_made_and_begins_a_conversation_that_is_warm(drive: Drive, notes: Path) -> None:
    async with drive() as app:
        first = await app.begin("hello")
        await app.command(f"/trunk add light {notes}")
        await app.until(lambda: app.conversation.id != first)
        root = app.conversation.path()[0].message
        assert "The lamp is lit at dusk." in root.wire().decode()
        await app.until(lambda: app.noticed("light: 1 file."))
        await app.until(lambda: "Begins with trunk light (notes/lamp.md)" in app.text)
        await app.type("When is it lit?")
        await app.press("enter")
        await app.settled()
        assert app.server is not None
        assert app.server.chats[-1].json["messages"][0]["content"].count("The lamp is lit at dusk.") == 1

        await app.press("f2")
        await app.opens("InspectorScreen")
        await app.press("shift+tab")
        await app.until(lambda: "trunk light (notes/lamp.md)" in app.prose)
        await app.press("escape")
        await app.closes()
        second = app.conversation.id
        (notes / "lamp.md").write_text("The lamp is out.\n")
        await app.command("/trunk")
        await app.opens("BeginningScreen")
        await app.until(lambda: "lamp.md" in app.text)
        await app.press("enter")
        await app.until(lambda: app.conversation.id != second)
        assert app.conversation.path()[0].message == root, "the same bytes"
        await app.until(lambda: app.noticed("changed since the trunk light was made"))


async def test_the_app_begins_with_a_trunk_of_any_name(drive: Drive, notes: Path) -> None:
    async with drive() as app:
        await app.service.trunks.add("add", [str(notes)])
    async with drive(trunk="add") as app:
        await app.until(lambda: "Begins with trunk add (notes/lamp.md)" in app.text)


async def test_what_is_wrong_is_said(drive: Drive, notes: Path) -> None:
    async with drive() as app:
        await app.command("/trunk nosuch")
        await app.until(lambda: app.noticed("There is no trunk nosuch"))
        await app.command("/trunk add light")
        await app.until(lambda: app.noticed("To make a trunk: /trunk add NAME PATH"))
        await app.command("/trunk add light nowhere.md")
        await app.until(lambda: app.noticed("There is no file nowhere.md"))
