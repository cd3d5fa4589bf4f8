"""Quitting while the disk refuses: write elsewhere, stay, or quit all the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from app_kit import Drive, Driven

from kvchat.prompt.drafts import decoded
from kvchat.store import Store, StoreUnavailable
from kvchat.text.problems import StoreProblem
from lossless_reading import read_lossless
from toyserver import ToyServer

pytestmark = pytest.mark.slow

FULL = "There is no room for kvchat.db: its disk is full."


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes a new conversation, and nothing after that."""

    def full(*_: object, **__: object) -> None:
        raise StoreUnavailable(StoreProblem.DISK_FULL, where="kvchat.db")

    for name in ("add", "append", "settle", "change", "set_draft", "record_request", "set_setting"):
        monkeypatch.setattr(Store, name, full)


async def quit_asks(app: Driven) -> None:
    await app.say("kept in memory")
    await app.write("and a draft")
    await app.press("ctrl+q")
    await app.opens("ConfirmScreen")


@pytest.mark.usefixtures("refuse")
async def test_quitting_asks_first_and_one_can_stay(drive: Drive) -> None:
    async with drive() as app:
        await quit_asks(app)
        assert "Quit with unsaved messages?" in app.text
        assert f"1 conversation is not saved: “kept in memory”. {FULL}" in app.prose
        for key in ("s", "escape"):
            await app.press(key)
            await app.closes()
            assert app.app.return_value is None
            assert app.draft == "and a draft"
            await app.press("ctrl+q")
            await app.opens("ConfirmScreen")
        await app.press("ctrl+q")  # it asks once
        await app.press("escape")
        await app.closes()


@pytest.mark.usefixtures("refuse")
async def test_they_are_written_elsewhere_and_kvchat_quits(drive: Drive, own_folders: Path) -> None:
    async with drive() as app:
        await quit_asks(app)
        await app.press("w")
        await app.opens("WriteElsewhereScreen")
        assert "~/kvchat-unsaved-2026-11-21-" in app.prose
        await app.press("enter")
        await app.until(lambda: app.app.return_value == 0)
    (path,) = own_folders.glob("kvchat-unsaved*")
    assert app.app.ending.last_word == f"The unsaved messages are in {path}."
    assert app.app.ending.failure == ""
    assert path.stat().st_mode & 0o777 == 0o600
    (source,) = read_lossless(path.read_text())
    assert [node.text for node in source.tree.path(source.conversation.head)][1:] == ["kept in memory", "Hello"]
    assert decoded(source.draft).text == "and a draft"


@pytest.mark.usefixtures("refuse")
async def test_a_file_that_cannot_be_written_is_told_and_another_one_taken(drive: Drive, own_folders: Path) -> None:
    (own_folders / "taken.json").write_text("mine")
    async with drive() as app:
        await quit_asks(app)
        await app.press("w")
        await app.opens("WriteElsewhereScreen")
        for name, words in (
            ("taken.json", "taken.json is there already. Write another name."),
            ("no/where.json", "there is no such folder"),
            ("~nobody-here/x", "Write the whole path."),
            ("", "Write the name of a file."),
        ):
            await app.press("ctrl+u")
            if name:
                await app.type(name)
            await app.press("enter")
            await app.until(lambda words=words: words in app.prose)
        await app.type("here.json")
        await app.press("enter")
        await app.until(lambda: app.app.return_value == 0)
    assert read_lossless((own_folders / "here.json").read_text())
    assert (own_folders / "taken.json").read_text() == "mine"


@pytest.mark.usefixtures("refuse")
async def test_one_may_quit_and_lose_them(drive: Drive, own_folders: Path) -> None:
    async with drive() as app:
        await quit_asks(app)
        await app.press("q")
        await app.until(lambda: app.app.return_value == 0)
    assert (app.app.ending.failure, app.app.ending.last_word) == ("", "")
    assert not list(own_folders.rglob("kvchat-unsaved*"))


async def test_an_app_of_a_test_whose_folders_are_gone_leaves_nothing_in_the_working_folder(
    drive: Drive, own_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    async with drive() as app:
        await app.begin("one")
        for folder in (tmp_path / "data", own_folders):
            shutil.rmtree(folder)
        await app.say("two")
    assert "could not be written" in app.app.ending.failure
    assert list(work.iterdir()) == []
    assert not list(Path("/dev/shm").glob("kvchat-unsaved-*"))


async def test_a_disk_that_takes_it_again_is_not_asked_about(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreUnavailable(StoreProblem.DISK_FULL, where="kvchat.db")

    async with drive() as app:
        monkeypatch.setattr(Store, "add", full)
        await app.say("kept in memory")
        monkeypatch.undo()
        id = app.conversation.id
        await app.press("ctrl+q")
        await app.until(lambda: app.app.return_value == 0)
    async with drive(conversation=id) as app:
        assert app.shown == ["kept in memory", "Hello"]


async def test_a_conversation_that_cannot_be_stored_is_begun_all_the_same(
    drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreUnavailable(StoreProblem.DISK_FULL, where="kvchat.db")

    async with drive() as app:
        await app.say("one")
        monkeypatch.setattr(Store, "create", full)
        await app.press("ctrl+n")
        await app.until(lambda: app.shown == [])
        assert "retries every 10 s" in str(app.app.chat.query_one("#trouble").render())
        await app.say("two")
        assert app.shown == ["two", "Hello"]
        monkeypatch.undo()
        assert await app.app.service.conversations.unsaved.retry() == []
