"""What is removed for good leaves no word in any file: not in rows, the full-text index, the log, or unused pages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvchat.prompt.context import ContextBlock
from kvchat.store import Store, StoreError
from kvchat.store.file import database

WORDS = (b"quartzlantern", b"velvetkey", b"pastedhazel", b"titlemoss", b"draftreed", b"taggedfern", b"alternativeash")


def left(folder: Path) -> list[str]:
    """The words of the removed conversation that any file has. A prefix of a word that the index shares with the word
    before it is not repeated there, so the end of each counts."""
    return [
        f"{word.decode()} in {path.name}"
        for path in folder.rglob("*")
        if path.is_file() and "backups" not in path.parts
        for word in WORDS
        if word[4:] in path.read_bytes()
    ]


def filled(folder: Path, new_talk, others: int = 30) -> Store:
    """A store with a conversation in the trash among others, which have words that begin as its own do."""
    store = Store.open(folder)
    for number in range(others):
        if number == others // 2:
            gone = new_talk(store, "A titlemoss")
            blocks = (ContextBlock("file", "a pastedhazel", "notes.md"),)
            for _ in range(4):
                gone.say("where is the velvetkey? " * 20, "under the quartzlantern. " * 150, blocks)
            store.set_draft(gone.id, "a draftreed")
            store.change(gone.record, lambda row: replace(row, tags=(*row.tags, "taggedfern"), trashed=5.0))
        talk = new_talk(store, f"talk {number}")
        for turn in range(3):
            talk.say(f"a quartz and velvet question {turn}", f"It rains, {number}. " * 60)
    return store


def test_a_removal_leaves_no_word_when_kvchat_ends(folder, new_talk):
    store = filled(folder, new_talk, 2)
    store.checkpoint()
    assert left(folder)
    store.purge_trash(6.0)
    assert store.search("quartz") and not store.search("quartzlantern")
    store.close()
    assert left(folder) == []


def test_a_removal_leaves_no_word_while_kvchat_is_open(folder, new_talk):
    store = filled(folder, new_talk)
    store.purge_trash(6.0)
    store.at_rest()
    assert left(folder) == []
    assert len(store.conversations()) == 30 and len(store.search("velvet", 500)) == 90
    store.close()
    assert left(folder) == []


def test_rows_that_moved_to_another_page_leave_nothing(folder, new_talk):
    """An answer grows when it is settled, and moves its neighbours."""
    store = Store.open(folder)
    for number in range(150):
        talk = new_talk(store, f"talk {number}")
        words = ("velvetkey", "quartzlantern") if number % 10 == 5 else ("rain", "snow")
        for turn in range(6):
            talk.say(f"{words[0]} {turn} " * 9, f"{words[1]} {turn} " * 75)
        if number % 10 == 5:
            store.change(talk.record, lambda row: replace(row, trashed=5.0))
    store.purge_trash(6.0)
    store.at_rest()
    store.close()
    assert left(folder) == []


def test_what_a_kvchat_that_was_killed_left_is_overwritten_by_the_next(folder, new_talk, tmp_path):
    store = filled(folder, new_talk)
    store._conversations.purge_trash(6.0)  # and killed before more
    killed = tmp_path / "killed"
    shutil.copytree(folder, killed)
    store.close()
    after = Store.open(killed)
    after.at_rest()
    assert left(killed) == []
    after.close()


def test_what_versions_before_left_is_overwritten(folder, new_talk):
    store = filled(folder, new_talk)
    store._conversations.purge_trash(6.0)
    store.set_setting("store.erased", None)
    store.close()
    assert left(folder)
    with_this = Store.open(folder)
    with_this.at_rest()
    with_this.close()
    assert left(folder) == []


def test_a_removal_while_the_file_is_written_is_not_forgotten(folder, new_talk, monkeypatch):
    store = filled(folder, new_talk)
    store.set_setting("store.erased", None)
    other = Store.open(folder)
    vacuum = database.vacuum

    def removed_meanwhile(path: Path) -> None:
        vacuum(path)
        other._conversations.purge_trash(6.0)

    with monkeypatch.context() as patch:
        patch.setattr(database, "vacuum", removed_meanwhile)
        store.database._needs_lock = other.database._needs_lock = False
        store.at_rest()
    store.at_rest()
    assert left(folder) == []
    other.close()
    store.close()


def test_a_disk_that_refuses_loses_nothing_and_is_not_asked_at_each_rest(folder, new_talk, monkeypatch):
    store = filled(folder, new_talk)
    store.purge_trash(6.0)
    tries = []

    def full(path: Path) -> None:
        tries.append(path)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(database, "vacuum", full)
        with pytest.raises(StoreError):
            store.at_rest()
        store.at_rest()
    assert len(tries) == 1
    store.close()
    after = Store.open(folder)
    assert len(after.conversations()) == 30
    after.at_rest()
    after.close()
    assert left(folder) == []


def test_others_read_while_the_file_is_written(folder, new_talk):
    store = filled(folder, new_talk)
    store.purge_trash(6.0)
    other = Store.open(folder)
    with other.database.reading() as connection:
        connection.execute("BEGIN")
        before = connection.execute("SELECT count(*) FROM node").fetchone()
        store.at_rest()
        assert connection.execute("SELECT count(*) FROM node").fetchone() == before
        connection.execute("COMMIT")
    store.close()
    other.close()
    assert left(folder) == []


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_store_that_is_clean_is_not_written_again(folder, new_talk, monkeypatch, is_removed):
    store = filled(folder, new_talk, 2)
    if is_removed:
        store.purge_trash(6.0)
        store.at_rest()
    monkeypatch.setattr(database, "vacuum", lambda path: pytest.fail("it is written again"))
    new_talk(store, "one more").say("Is it clean?")
    store.at_rest()
    store.close()
