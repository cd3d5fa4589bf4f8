"""A message whose documents are being looked up holds up nothing, keeps its place, and can be taken back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from app_kit import Drive, Driven

from kvchat.documents.library import Library
from kvchat.prompt.context import FILE

QUESTION = "What does @handbook say of the lamp?"


@asynccontextmanager
async def reading(drive: Drive, tmp_path: Path) -> AsyncIterator[Driven]:
    """The app with a collection, in an open conversation."""
    folder = tmp_path / "handbook"
    folder.mkdir(exist_ok=True)
    (folder / "lamp.md").write_text("The lamp turns.\n")
    async with drive() as app:
        service = app.service
        service.documents._open_library = lambda: Library.open(service.store, tmp_path / "data" / "index.db")
        await service.documents.add(str(folder), "handbook")
        await service.documents._indexers["handbook"]
        await app.begin()
        yield app


@asynccontextmanager
async def held(app: Driven) -> AsyncIterator[threading.Event]:
    """The documents cannot be read until the event is set, or this ends."""
    free, began = threading.Event(), threading.Event()

    def hold() -> None:
        began.set()
        free.wait(120)

    holding = asyncio.create_task(app.service.documents._reader.do(hold))
    await app.until(began.is_set)
    try:
        yield free
    finally:
        free.set()
        with suppress(Exception):
            await holding


def line(app: Driven) -> str:
    """The row over the composer, beside the list."""
    row = app.chat.composer.query_one("ContextLine")
    return app.lines[row.region.y][row.region.x :].strip(" ─") if row.display else ""


async def enter(app: Driven, text: str) -> None:
    await app.write(text)
    await app.press("enter")


async def test_every_key_works_while_the_documents_of_a_question_are_looked_up(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path) as app:
        async with held(app) as free:
            await enter(app, QUESTION)
            await app.until(lambda: "searching…" in line(app))
            await app.press("f1")
            await app.opens("HelpScreen")
            await app.press("escape")
            await app.closes()
            assert app.draft == "" and app.said == []
            free.set()
            await app.until(lambda: app.said)
        await app.settled()
        assert app.said[0] == QUESTION and app.draft == ""
        assert line(app) == "" and app.conversation.draft == ""


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_a_message_is_taken_back_while_it_is_looked_up(drive: Drive, tmp_path: Path, key: str) -> None:
    async with reading(drive, tmp_path) as app:
        async with held(app) as free:
            await enter(app, QUESTION)
            await app.until(lambda: "searching…" in line(app))
            await app.press(key)
            await app.until(lambda: app.draft == QUESTION)
            free.set()
        await app.until(lambda: "searching" not in line(app))
        assert app.said == []
        await app.press("enter")
        await app.until(lambda: app.said)
        await app.settled()
        assert app.said[0] == QUESTION


async def test_a_second_message_never_overtakes_the_one_that_is_looked_up(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path) as app:
        async with held(app) as free:
            await enter(app, QUESTION)
            await enter(app, "and then?")
            await app.until(lambda: "queued 1  and then?" in app.text)
            assert app.draft == "" and app.said == []
            free.set()
            await app.until(lambda: len(app.said) > 2)
        await app.settled()
        assert app.said[0] == QUESTION and app.said[2] == "and then?" and app.draft == ""


async def test_what_follows_a_message_that_could_not_be_sent_is_held(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path) as app:
        async with held(app) as free:
            await enter(app, f"see @{tmp_path}/handbook/ here")
            await enter(app, "and then?")
            await app.until(lambda: "queued 1  and then?" in app.text)
            free.set()
            await app.until(lambda: app.noticed("is a folder"))
        await app.until(lambda: "Queue held: not sent · Enter sends · ↑ edits" in app.text)
        assert app.draft == f"see @{tmp_path}/handbook/ here" and app.said == []


async def test_what_cannot_be_sent_comes_back_in_front_of_what_was_typed_since(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path) as app:
        async with held(app) as free:
            await enter(app, f"see @{tmp_path}/handbook/ here")
            await app.write("and then?")
            free.set()
            await app.until(lambda: app.noticed("is a folder"))
        assert app.draft == f"see @{tmp_path}/handbook/ here\n\nand then?" and app.said == []


async def test_a_message_is_sent_where_it_was_written_while_another_conversation_is_open(
    drive: Drive,
    tmp_path: Path,
) -> None:
    async with reading(drive, tmp_path) as app:
        home = app.conversation.id
        async with held(app) as free:
            await enter(app, QUESTION)
            await app.until(lambda: "searching…" in line(app))
            await app.write("later")
            away = await app.begin()
            assert "searching" not in line(app)
            await app.write("elsewhere")
            free.set()
            await app.until(lambda: app.service.conversations.get(home).record.turns)
        await app.settled()
        assert app.conversation.id == away and app.said == [] and app.draft == "elsewhere"
        await app.open(home)
        assert app.said[0] == QUESTION and app.draft == "later"


async def test_what_cannot_be_sent_from_another_conversation_waits_in_its_draft(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path) as app:
        home, text = app.conversation.id, f"see @{tmp_path}/handbook/ here"
        async with held(app) as free:
            await enter(app, text)
            await app.begin()
            await app.write("elsewhere")
            free.set()
            await app.until(lambda: app.noticed("is a folder"))
        assert app.draft == "elsewhere"
        await app.open(home)
        assert app.draft == text


async def test_a_message_that_is_looked_up_when_kvchat_ends_is_the_draft_afterwards(
    drive: Drive,
    tmp_path: Path,
) -> None:
    async with reading(drive, tmp_path) as app:
        home = app.conversation.id
        async with held(app):
            await enter(app, QUESTION)
            await app.write("and then?")
            await app.service.drafts.keep()
            await app.app.action_quit()
            await app.rest()
    async with drive() as app:
        await app.open(home)
        assert app.draft == f"{QUESTION}\n\nand then?"


async def test_a_file_goes_as_it_was_shown_whatever_became_of_it(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path) as app:
        await app.write("What does @handbook/lamp.md say?")
        await app.until(lambda: "▥ 1 file" in line(app))
        (tmp_path / "handbook" / "lamp.md").write_text("The lamp is out.\n")
        await app.press("enter")
        await app.until(lambda: app.said)
        await app.settled()
        assert [block.text for block in app.path[0].message.blocks if block.kind == FILE] == ["The lamp turns.\n"]


async def test_an_edit_is_taken_back_while_it_is_looked_up(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path) as app:
        await app.say("Hello")
        node = app.path[0].id
        app.chat.drafts.begin_edit(node)
        await app.rest()
        async with held(app) as free:
            await enter(app, f" {QUESTION}")
            await app.until(lambda: "searching…" in line(app))
            await app.press("escape")
            await app.until(lambda: app.draft == f"Hello {QUESTION}")
            assert app.chat.workspace.editing == node and app.said[0] == "Hello"
            free.set()
        await app.press("enter")
        await app.until(lambda: app.said[0] == f"Hello {QUESTION}")
        await app.settled()
        assert app.chat.workspace.editing is None and app.draft == ""
