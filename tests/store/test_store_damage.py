"""A file that cannot be trusted is moved aside whole, told of, and never written again."""

from __future__ import annotations

import errno
import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from damaging import break_index, everything, open_damaged, quarantined

from kvchat.prompt.context import ContextBlock
from kvchat.store import Store, StoreDamaged, StoreUnavailable


@pytest.mark.parametrize("garbage", [b"", b"x", b"not a database, but a text\n" * 500, bytes(8192)])
def test_a_file_that_is_no_database_is_moved_aside(folder, garbage, new_talk):
    folder.mkdir()
    (folder / "kvchat.db").write_bytes(garbage)
    store, _ = open_damaged(folder / "kvchat.db")
    assert "and there is no backup; a new database was begun" in store.notices[0]
    assert store.conversations() == []
    new_talk(store).say("hello")
    store.close()
    assert Store.open(folder).notices == []


def test_another_programs_database_is_moved_aside(folder):
    folder.mkdir()
    connection = sqlite3.connect(folder / "kvchat.db")
    connection.execute("CREATE TABLE theirs(a TEXT PRIMARY KEY, b TEXT) WITHOUT ROWID")
    connection.execute("INSERT INTO theirs VALUES ('k', 'v')")
    connection.commit()
    connection.close()
    store, _ = open_damaged(folder / "kvchat.db")
    assert "was not a database of kvchat" in store.notices[0]
    assert store.setting("k") is None
    store.close()


def test_a_damaged_file_and_its_log_are_moved_as_they_were(whole, folder):
    """Looking at them must not write the log back into the file."""
    source = folder.parent / "source"
    shutil.copytree(whole, source)
    store = Store.open(source)
    store.set_draft("f" * 32, "only in the log")
    shutil.copytree(source, folder)
    store.close()
    break_index(folder / "kvchat.db")
    log = (folder / "kvchat.db-wal").read_bytes()
    store, _ = open_damaged(folder / "kvchat.db")
    assert [p.read_bytes() for p in quarantined(folder) if p.name == "kvchat.db-wal"] == [log]
    assert store.draft("f" * 32) == "only in the log"
    store.close()


def test_the_log_of_a_deleted_database_is_not_taken_for_the_new_ones(folder, new_talk):
    store = Store.open(folder)
    new_talk(store).say("old words")
    log = (folder / "kvchat.db-wal").read_bytes()
    store.close()
    (folder / "kvchat.db").unlink()
    (folder / "kvchat.db-wal").write_bytes(log)
    store = Store.open(folder)
    assert store.conversations() == [] and "its log was there" in store.notices[0]
    assert [p.read_bytes() for p in quarantined(folder)] == [log]
    store.close()


def test_a_rescue_that_was_cut_short_is_finished(damaged, whole, monkeypatch):
    break_index(damaged)
    real = Path.replace

    def ends(self: Path, target: Path) -> Path:
        if self.name == "salvaged.db":
            raise KeyboardInterrupt
        return real(self, target)

    with monkeypatch.context() as cut:
        cut.setattr(Path, "replace", ends)
        with pytest.raises(KeyboardInterrupt):
            Store.open(damaged.parent)
    assert not damaged.exists()
    store = Store.open(damaged.parent)
    assert "what could be read is in a new database" in store.notices[0]
    store.close()
    assert everything(damaged.parent) == everything(whole)


def test_a_rescue_without_room_leaves_everything_as_it_was(damaged, monkeypatch):
    break_index(damaged)
    data = damaged.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("kvchat.store.file.salvage._copy", full)
    with pytest.raises(StoreUnavailable, match="No space left"):
        Store.open(damaged.parent)
    assert damaged.read_bytes() == data and quarantined(damaged.parent) == []


def test_two_quarantines_in_one_second_keep_both_files(folder):
    for garbage in (b"one", b"two"):
        folder.mkdir(exist_ok=True)
        (folder / "kvchat.db").write_bytes(garbage)
        Store.open(folder, clock=lambda: 1e9).close()
    assert [p.read_bytes() for p in quarantined(folder) if p.name == "kvchat.db"] == [b"one", b"two"]


def test_a_damaged_database_that_another_kvchat_uses_is_left_alone(folder, store, talk):
    data = b"overwritten" * 1000
    before = (folder / "kvchat.db").read_bytes()
    (folder / "kvchat.db").write_bytes(data)
    with pytest.raises(StoreUnavailable, match="another kvchat is using it"):
        Store.open(folder)
    assert (folder / "kvchat.db").read_bytes() == data and not (folder / "quarantine").exists()
    (folder / "kvchat.db").write_bytes(before)


def test_damage_that_shows_while_working_is_told_and_mended_at_the_next_start(damaged):
    store = Store.open(damaged.parent)
    store.backup_if_due()
    data = damaged.read_bytes()
    damaged.write_bytes(data[:4096] + random.Random(4).randbytes(8 * 4096) + data[9 * 4096 :])
    with pytest.raises(StoreDamaged, match="Start kvchat again: the file is moved aside"):
        store.conversations()
    with pytest.raises(StoreDamaged):
        store.purge_trash(1e12)
    store.close()
    store = Store.open(damaged.parent)
    assert "messages in 4 conversations" in store.notices[0] and len(store.conversations()) == 4
    store.close()


def test_a_file_begun_and_not_finished_is_finished(folder):
    folder.mkdir()
    connection = sqlite3.connect(folder / "kvchat.db")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    assert (folder / "kvchat.db").stat().st_size > 0
    store = Store.open(folder)
    assert store.notices == [] and store.conversations() == []
    store.close()


def test_damage_inside_a_value_does_not_close_its_conversation(store, talk):
    answer = talk.say("question", "answer", (ContextBlock("paste", "source", "pasted"),))
    for column, value in (("figures", "[1,"), ("figures", "{}"), ("blocks", "[[1]]"), ("blocks", "nonsense")):
        with store._db.write() as connection:
            connection.execute(f"UPDATE node SET {column} = ? WHERE id IN (?, ?)", (value, answer.id, answer.parent))
        assert talk.texts() == ["question", "answer"]
    assert store.tree(talk.id)[answer.id].figures is None and store.answers() == []
    with store._db.write() as connection:
        connection.execute("UPDATE conversation SET parameters = '[', template_options = '7'")
    assert store.conversations() == [store.conversation(talk.id)] == [talk.record]


def test_damage_inside_a_text_does_not_close_its_conversation(damaged):
    """No check of a database sees it: the text is shown with replacement characters, the rest is whole."""
    data = damaged.read_bytes()
    at = data.index(b"word word", data.index(b"question 2.7 ")) + 2
    damaged.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    store = Store.open(damaged.parent)
    texts = [n.text for c in store.conversations() for n in store.tree(c.id) if "\ufffd" in n.text]
    assert len(texts) == 1 and "wo\ufffdd word" in texts[0]
    assert len(store.search("question", limit=1000)) == 60
    store.close()
