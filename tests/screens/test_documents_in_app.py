"""Documents in the whole app, on a real index: added, searched by a conversation, cited, opened."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from app_kit import Drive, Driven

from kvchat.chat.events import IndexingProgressed
from kvchat.documents.collection import IndexingProgress, IndexingReport, Skipped
from kvchat.prompt.context import PASSAGE
from kvchat.ui.screens.sources import SourceScreen
from toyserver import ToyServer, tokens

pytestmark = pytest.mark.slow

HANDBOOK = {
    "lamp.md": "# The lamp\n\nThe lamp turns once in twelve seconds. A brass clockwork drives it.\n",
    "tower/paint.md": "# Paint\n\nThe tower is painted white each fifth summer.\n\n# Lamp room\n\nThe lamp room has a "
    "brass rail.\n",
    "broken.bin": "\0\1\2",
}
ASKED = "@handbook How fast does the brass lamp turn?"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in HANDBOOK.items():
        path = tmp_path / "handbook" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "handbook"


async def shows(app: Driven, words: str) -> None:
    await app.until(lambda: words in app.prose)


async def added(app: Driven, folder: Path) -> None:
    """Index the folder to the end."""
    await app.command(f"/documents add {folder}")
    await app.until(lambda: app.service.documents.reports.get("handbook"))


async def cited(app: Driven, folder: Path, answer: str) -> None:
    """A question about the handbook with this answer."""
    assert app.server is not None
    await added(app, folder)
    await app.begin()
    await app.service.retrieval.set_retrieval(app.conversation.id, "always", ["handbook"])
    app.server.on_chat(tokens(answer))
    await app.grow(ASKED)


# -- collections


async def test_a_folder_that_is_added_by_a_command_is_indexed_and_its_end_is_told(drive: Drive, folder: Path) -> None:
    async with drive() as app:
        await app.command(f'/documents add "{folder}"')
        await app.until(lambda: app.noticed("Indexing handbook · F6 shows progress"))
        await app.until(lambda: app.noticed("handbook: 2 files, 1 skipped; F6 shows them."))
        await app.press("f6")
        await app.opens("ManagerScreen")
        await app.until(lambda: "2" in next((line for line in app.lines if "▌ handbook" in line), "").split())
        await app.press("enter")
        await app.opens("ReportScreen")
        assert "broken.bin" in app.text and "is a binary file" in app.text


async def test_one_is_added_on_the_screen_and_tried(drive: Drive, folder: Path) -> None:
    async with drive() as app:
        await app.press("f6")
        await shows(app, "No documents yet.")
        await app.press("a")
        await app.opens("AddDocumentsScreen")
        await app.type(f"{folder.parent}/handb")
        await app.until(lambda: "handbook/" in app.text)
        await app.press("tab")
        await app.until(lambda: "name › handbook" in app.text)
        await app.press("enter")
        await app.until(lambda: app.front == "ManagerScreen" and app.service.documents.reports.get("handbook"))
        await shows(app, "▌ handbook")
        await app.press("slash")
        await app.opens("DocumentSearchScreen")
        await app.type("brass rail")
        await app.until(lambda: "handbook/tower/paint.md:1-7" in app.text)
        await app.press("enter")
        await app.opens("SourceScreen")
        await app.until(lambda: "7 │ The lamp room has a brass rail." in app.text)


async def test_a_removed_collection_is_gone_and_its_files_are_not(drive: Drive, folder: Path) -> None:
    async with drive() as app:
        await added(app, folder)
        await app.press("f6")
        await shows(app, "▌ handbook")
        await app.press("x")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await shows(app, "No documents yet.")
        assert (folder / "lamp.md").read_text() == HANDBOOK["lamp.md"]


async def test_what_cannot_be_added_is_said(drive: Drive) -> None:
    async with drive() as app:
        await app.command("/documents add /nowhere/at/all")
        await app.until(lambda: app.noticed("There is no folder or file /nowhere/at/all."))


async def test_indexing_stands_quietly_in_the_status_line(drive: Drive) -> None:
    async with drive() as app:
        app.service.documents._indexing["handbook"] = IndexingProgress("handbook", 43, 100, 43, 100, 900, 9.0)
        app.service.events.tell(IndexingProgressed("handbook"))
        await app.rest()
        assert "indexing handbook 43 %" in app.lines[-2]
        app.service.documents._indexing.clear()
        app.service.events.tell(IndexingProgressed("handbook"))
        await app.rest()
        assert "indexing" not in app.lines[-2] and app.notices == []


async def test_a_saved_file_that_was_taken_in_is_no_news_and_trouble_is(drive: Drive) -> None:
    async with drive() as app:
        app.service.documents._reports["notes"] = IndexingReport("notes", changed=1, unchanged=40, seconds=0.1)
        app.chat.documents.changed()
        assert app.notices == []
        app.service.documents._reports["notes"] = IndexingReport("notes", trouble="There is no folder /x\x1b[2J.")
        app.chat.documents.changed()
        app.chat.documents.changed()
        assert [notice for notice in app.notices if "notes" in notice] == ["notes: there is no folder /x␛[2J."]
        more = IndexingReport("more", added=1204, seconds=9.0, skipped=(Skipped("x", "y"),) * 3)
        app.service.documents._reports["more"] = more
        app.chat.documents.changed()
        assert app.noticed("more: 1,204 files, 3 skipped; F6 shows them.")


async def test_an_incognito_run_has_no_documents(server: ToyServer) -> None:
    from app_kit import driving

    async with driving(None, server) as app:
        await app.press("f6")
        await app.until(lambda: app.noticed("No documents in an incognito run"))


# -- what a conversation searches


async def test_commands_switch_what_the_conversation_searches(drive: Drive, folder: Path) -> None:
    async with drive(size=(120, 30)) as app:
        await app.command("/documents always")
        await app.until(lambda: app.noticed("No documents yet"))
        await added(app, folder)
        await app.command("/documents always handbook")
        await app.until(lambda: "▤ handbook " in app.lines[0])
        assert app.conversation.record.collections == ("handbook",)
        await app.command("/documents ask")
        await app.until(lambda: "▤ handbook? " in app.lines[0])
        await app.command("/documents off")
        await app.until(lambda: "▤" not in app.lines[0])
        await app.command("/documents always nothing")
        await app.until(lambda: app.noticed("There is no collection nothing. There are: handbook."))
        await app.command("/documents ask")
        await app.until(lambda: app.conversation.record.collections == ("handbook",))
        other = await app.service.new_conversations.create(reuse=False)
        await app.open(other.id)
        assert "▤" not in app.lines[0]


async def test_the_mode_stands_in_the_header_of_a_narrow_terminal_too(drive: Drive, folder: Path) -> None:
    async with drive(size=(80, 24)) as app:
        await added(app, folder)
        await app.command("/documents always handbook")
        await app.until(lambda: "▤ handbook " in app.lines[0])
        await app.command("/documents ask handbook")
        await app.until(lambda: "▤ handbook? " in app.lines[0])
        await app.command("/documents off")
        await app.until(lambda: app.noticed("Documents off here"))
        assert "▤" not in app.lines[0]


async def test_a_collection_is_removed_by_its_name_and_other_words_search(drive: Drive, folder: Path) -> None:
    async with drive() as app:
        await added(app, folder)
        await app.command("/documents remove nope")
        await app.until(lambda: app.noticed("There is no collection nope. There are: handbook."))
        await app.command("/documents brass rail")
        await app.opens("DocumentSearchScreen")
        await app.until(lambda: "handbook/tower/paint.md:1-7" in app.text)
        await app.press("escape")
        await app.closes()
        await app.command("/documents remove handbook")
        await app.opens("ConfirmScreen")
        await app.press("enter")
        await app.closes()
        assert app.service.documents.has_collections
        await app.command("/documents remove handbook")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: app.noticed("handbook removed · its files stay"))
        assert not app.service.documents.has_collections


async def test_ctrl_c_says_nothing_over_the_documents(drive: Drive, folder: Path) -> None:
    async with drive() as app:
        await added(app, folder)
        await app.press("f6")
        await shows(app, "▌ handbook")
        await app.press("ctrl+c")
        await app.rest()
        assert not app.noticed("Nothing is running")


async def test_space_on_the_screen_is_on_the_record(drive: Drive, folder: Path) -> None:
    async with drive() as app:
        await added(app, folder)
        await app.press("f6")
        await shows(app, "▌ handbook")
        await app.press("space", "space")
        await app.until(lambda: " always " in next(line for line in app.lines if "▌" in line))
        assert app.conversation.record.retrieval == "always"
        await app.press("x")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: app.conversation.record.retrieval == "off")
        await app.press("escape")
        await app.closes()
        assert "▤" not in app.lines[0]


# -- citations


async def test_an_answer_lists_what_it_cites_and_o_shows_it(drive: Drive, folder: Path) -> None:
    async with drive(size=(120, 30)) as app:
        await cited(app, folder, "It turns once in twelve seconds [1].")
        await shows(app, "Sources [1] handbook/lamp.md:1-3")
        await app.select(-1)
        await app.press("o")
        await app.opens("SourceScreen")
        await app.until(lambda: "3 │ The lamp turns once in twelve seconds." in app.text)
        await app.press("escape")
        await app.closes()
        (folder / "lamp.md").write_text("# The lamp\n\nIt stands still.\n")
        await app.command("/source 1")
        await shows(app, "The file has changed since; this is the text as it was read.")
        assert "once in twelve seconds" in app.prose


async def test_o_on_the_question_lists_what_it_was_sent_with(drive: Drive, folder: Path) -> None:
    async with drive() as app:
        await cited(app, folder, "It turns once in twelve seconds.")
        blocks = [block for block in app.path[0].message.blocks if block.kind == PASSAGE]
        assert len(blocks) > 1
        await app.select(0)
        await app.press("o")
        await app.opens("SourcesScreen")
        assert "Sent with the question:" in app.prose and "1 handbook/lamp.md:1-3" in app.prose
        await app.press("2")
        await app.opens("SourceScreen")
        screen = app.app.screen
        assert isinstance(screen, SourceScreen) and screen.block == blocks[1]
        await app.press("escape", "escape")
        await app.closes()
        await app.select(-1)
        await app.press("o")
        await shows(app, "The answer cites nothing. Sent with its question:")


async def test_a_number_cites_only_what_came_before_it(drive: Drive, folder: Path) -> None:
    async with drive(size=(120, 40)) as app:
        assert app.server is not None
        await added(app, folder)
        await app.begin()
        app.server.on_chat(tokens("As I said [1]."))
        await app.grow("first, without documents")
        await app.service.retrieval.set_retrieval(app.conversation.id, "always", ["handbook"])
        app.server.on_chat(tokens("As I said [1] [2]."))
        await app.grow(ASKED)
        await shows(app, "Sources [2] handbook/lamp.md:1-3")
        items = app.chat.transcript.items
        assert [bool(item.sources) for item in items] == [False, False, False, True]
        await app.command("/source 77")
        await app.until(lambda: app.noticed("No source 77 up to this message"))


async def test_a_citation_opens_the_file_in_the_editor(
    drive: Drive,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = tmp_path / "record"
    editor = tmp_path / "vim"
    editor.write_text(f'#!/bin/sh\necho "$@" > {record}\n')
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setattr("textual.app.App.suspend", lambda _: nullcontext())
    async with drive(size=(120, 30)) as app:
        await cited(app, folder, "There is a rail [2].")
        await app.command("/source 2")
        await app.opens("SourceScreen")
        await app.until(lambda: "5 │ # Lamp room" in app.text)
        await app.press("e")
        await app.until(record.exists)
        await app.until(lambda: record.read_text() == f"+1 {folder}/tower/paint.md\n")
