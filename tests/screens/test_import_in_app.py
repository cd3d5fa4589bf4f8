"""Importing in the app: the dialog, what it says while it works and after it, and Undo."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from app_kit import Drive, Driven

from import_samples import SAMPLES, claude_conversation, question

pytestmark = pytest.mark.slow


def titles(app: Driven) -> list[str]:
    return sorted(one.title for one in app.service.conversations.all() if one.turns)


async def test_a_path_is_imported_at_once_and_undo_takes_it_back(drive: Drive, tmp_path: Path) -> None:
    path = SAMPLES["chatgpt"](tmp_path, 30, broken=1)
    async with drive() as app:
        await app.begin("mine")
        await app.command(f"/import {path}")
        await app.opens("ImportScreen")
        await app.until(lambda: "Imported 30 conversations (450 messages)." in app.prose and "undoes it" in app.prose)
        assert "skipped: damaged," in app.text
        await app.press("enter")
        await app.closes()
        assert app.noticed("undoes it")
        assert len(titles(app)) == 31 and "Night 29" in app.listed
        await app.run("undo")
        await app.until(lambda: app.noticed("Import undone: 30 conversations moved to the trash."))
        assert titles(app) == ["mine"] and app.said == ["mine", "Hello"]


async def test_the_dialog_asks_for_a_file_and_says_what_is_wrong_with_it(drive: Drive, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    async with drive() as app:
        await app.command("/import")
        await app.opens("ImportScreen")
        await app.press("enter")
        await app.until(lambda: "Write the name of a file or folder." in app.prose)
        await app.type(str(tmp_path / "x"))
        await app.press("enter")
        await app.until(lambda: "It holds no conversations in a format that kvchat knows." in app.prose)
        await app.press("end", "ctrl+u")
        await app.type("~nobody-here/x")
        await app.press("enter")
        await app.until(lambda: "There is no such file." in app.prose)
        await app.press("escape")
        await app.closes()
        assert titles(app) == []


async def test_undo_while_an_imported_conversation_is_looked_at(drive: Drive, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(json.dumps([claude_conversation(0)]))
    async with drive() as app:
        await app.begin("mine")
        mine = app.conversation.id
        await app.command(f"/import {path}")
        await app.until(lambda: "Imported 1 conversation" in app.prose)
        await app.press("escape")
        await app.closes()
        (imported,) = [one.id for one in app.service.conversations.all() if one.turns and one.id != mine]
        await app.open(imported)
        assert app.shown[0] == question(0, 0)
        await app.run("undo")
        await app.until(lambda: app.conversation.id == mine)
        assert titles(app) == ["mine"]


async def test_an_open_conversation_shows_what_it_grew_by(drive: Drive, tmp_path: Path) -> None:
    path = tmp_path / "x"
    async with drive() as app:
        for turns in (2, 4):
            path.write_text(json.dumps([claude_conversation(0, turns)]))
            await app.command(f"/import {path}")
            await app.opens("ImportScreen")
            await app.until(lambda: "undoes it" in app.prose)
            await app.press("enter")
            await app.closes()
            (imported,) = [one.id for one in app.service.conversations.all() if one.turns]
            if turns == 2:
                await app.open(imported)
            await app.until(lambda turns=turns: f"watch {turns - 1} of night 0" in app.shown[-1].lower())


async def test_escape_stops_and_keeps_what_came(drive: Drive, tmp_path: Path) -> None:
    path = SAMPLES["lm_studio"](tmp_path, 150)
    async with drive() as app:
        await app.command(f"/import {path}")
        await app.opens("ImportScreen")
        await app.until(lambda: re.search(r"\b[1-9]\d* conversation", app.prose))
        await app.press("escape")
        await app.until(
            lambda: (
                "Stopped. What was imported until then is kept." in app.prose
                or "Imported 150 conversations" in app.prose
            )
        )
        await app.press("escape")
        await app.closes()
        count = len(titles(app))
        assert count > 0
        await app.run("undo")
        await app.until(lambda: app.noticed(f"{count} conversation"))
        assert titles(app) == []
