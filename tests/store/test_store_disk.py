"""Disks that are full, files that are locked, gone or of another version; modes; backups; upgrades."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from corpus import corpus
from kvchat.prompt.message import Message, Role, node
from kvchat.store import Store, StoreError, StoreUnavailable
from kvchat.store.file import database, opening, schema
from kvchat.store.file.backup import backups
from kvchat.store.file.database import on_network
from kvchat.store.presence import locks
from kvchat.store.presence import process_id as owner
from kvchat.text.problems import StoreProblem
from whole_rows import add_nodes

DAY = 86_400.0


def question_below(talk, text: str):
    asked = node(talk.tip, Message(Role.USER, text), talk.now())
    return asked, talk.moved(asked, turns=1)


def test_a_full_disk_loses_nothing_and_the_same_write_works_later(store, talk):
    talk.say("kept")
    connection = store._db._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    head = talk.record
    asked, record = question_below(talk, "x" * 200_000)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"kvchat\.db: its disk is full\. Free some space"):
            add_nodes(store, record, [asked])
        assert not connection.in_transaction
    assert store.conversation(talk.id) == head
    assert asked.id not in store.tree(talk.id)
    connection.execute("PRAGMA max_page_count = 1000000")
    add_nodes(store, record, [asked])
    add_nodes(store, record, [asked])
    assert talk.texts() == ["kept", "Yes.", "x" * 200_000]
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_full_disk_during_an_answer_keeps_what_came(folder, new_talk):
    store = Store.open(folder)
    talk = new_talk(store)
    answer = talk.ask("?")
    store.append(answer.id, "kept ", "")
    pages = store._db.row("PRAGMA page_count")[0]
    store._db.row(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreUnavailable):
        store.append(answer.id, "y" * 100_000, "")
    store._db.row("PRAGMA max_page_count = 1000000")
    store.append(answer.id, "y" * 100_000 + " and more", "")
    store.close()
    store = Store.open(folder)
    assert store.tree(talk.id)[answer.id].text == "kept " + "y" * 100_000 + " and more"
    store.close()


@pytest.mark.process
def test_a_file_that_may_not_grow_loses_nothing_acknowledged(folder, new_talk):
    import resource

    from forked import fork

    def fill(say) -> None:
        store = Store.open(folder)
        talk = new_talk(store)
        say(talk.id)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
        acknowledged = 0
        try:
            for i in range(1000):
                asked, record = question_below(talk, f"{i} " + "z" * 5000)
                add_nodes(store, record, [asked])
                acknowledged += 1
        except StoreUnavailable as error:
            say(f"{acknowledged} {error.sentence}")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        add_nodes(store, record, [asked])
        say(str(len(store.tree(talk.id)) - 1))
        store.close()

    child = fork(fill)
    id, refused, total = child.lines()
    assert child.wait() == 0
    count, sentence = refused.split(" ", 1)
    assert int(count) > 10 and str(folder / "kvchat.db") in sentence
    assert int(total) == int(count) + 1
    store = Store.open(folder)
    assert len(store.tree(id)) == int(total) + 1 and store.notices == []
    store.close()


def test_a_locked_database_is_told_and_not_taken_for_a_damaged_one(folder, new_talk, monkeypatch):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    store = Store.open(folder)
    talk = new_talk(store)
    other = sqlite3.connect(folder / "kvchat.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreUnavailable, match=r"is locked by another program\. Close that program"):
        talk.say("hello")
    assert len(store.conversations()) == 1
    other.execute("ROLLBACK")
    store.close()
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreUnavailable, match="is locked by another program"):
        Store.open(folder)
    other.close()
    assert not (folder / "quarantine").exists()
    store = Store.open(folder)
    assert len(store.conversations()) == 1
    store.close()


def test_a_kvchat_that_keeps_writing_is_not_waited_for_for_ever(folder, store, talk, monkeypatch):
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.05)
    other = locks.WriteLock(folder / "kvchat.db.lock")
    with other.held():
        with pytest.raises(StoreUnavailable, match="Another kvchat"):
            Store.open(folder)
        store._db._needs_lock = True
        with pytest.raises(StoreUnavailable, match="Another kvchat"):
            store.set_draft(talk.id, "hello")
    other.close()
    store.set_draft(talk.id, "hello")
    assert store.draft(talk.id) == "hello"


def test_writing_to_a_database_that_was_deleted_is_refused(folder, store, talk):
    talk.say("hello")
    (folder / "kvchat.db").rename(folder / "elsewhere.db")
    with pytest.raises(StoreUnavailable, match="was moved, deleted or replaced"):
        talk.say("lost?")
    assert len(store.conversations()) == 1
    (folder / "elsewhere.db").rename(folder / "kvchat.db")
    talk.tip = store.tree(talk.id)[store.conversation(talk.id).head]
    talk.say("not lost")


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match=r"file.*Check its permissions"):
        Store.open(tmp_path / "file" / "data")
    (tmp_path / "data" / "kvchat.db").mkdir(parents=True)
    with pytest.raises(StoreUnavailable, match="is not a file"):
        Store.open(tmp_path / "data")


def test_an_error_of_the_file_system_is_told_with_its_path(store, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "/some/where")

    monkeypatch.setattr("kvchat.store.file.backup.copy", refuse)
    with pytest.raises(StoreUnavailable, match="/some/where cannot be used: Read-only file system"):
        store.backup_if_due()


def test_a_newer_database_is_refused_and_left_as_it_is(folder):
    Store.open(folder).close()
    connection = sqlite3.connect(folder / "kvchat.db")
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    before = (folder / "kvchat.db").read_bytes()
    with pytest.raises(StoreError, match=r"kvchat\.db was written by a newer kvchat \(version 999"):
        Store.open(folder)
    assert (folder / "kvchat.db").read_bytes() == before
    assert not (folder / "quarantine").exists()


def test_an_upgrade_makes_a_backup_first_and_happens_whole_or_not_at_all(folder, new_talk, monkeypatch):
    store = Store.open(folder)
    talk = new_talk(store)
    talk.say("hello")
    store.close()

    def fails(db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE half(x)")
        db.execute("CREATE TABLE half(x)")

    monkeypatch.setattr(schema, "MIGRATIONS", [fails])
    with pytest.raises(StoreError):
        Store.open(folder)
    monkeypatch.setattr(schema, "MIGRATIONS", [])
    store = Store.open(folder)
    assert store.conversation(talk.id).title == "Talk"
    assert store._db.rows("SELECT name FROM sqlite_master WHERE name = 'half'") == []
    store.close()
    monkeypatch.setattr(schema, "MIGRATIONS", [lambda db: db.execute("CREATE TABLE more(x)")])
    store = Store.open(folder)
    assert store._db.rows("SELECT * FROM more") == [] and store.tree(talk.id)
    store.close()
    old = sqlite3.connect(backups(folder)[0])
    assert old.execute("PRAGMA user_version").fetchone() == (schema.FIRST,)
    assert old.execute("SELECT title FROM conversation").fetchall() == [("Talk",)]
    old.close()


def test_a_database_from_before_0_2_is_set_aside_whole_and_what_is_not_of_it_stays(folder):
    folder.mkdir()
    with closing(sqlite3.connect(folder / "kvchat.db")) as old, old:
        old.execute("CREATE TABLE conversation(id TEXT, title TEXT)")
        old.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        old.execute("PRAGMA user_version = 15")
    before = (folder / "kvchat.db").read_bytes()
    for name in ("backups/kvchat-20261120-000000.db", "snapshots/kvchat-0.bin", "index.db", "memory/profile.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    store = Store.open(folder)
    (notice,) = store.notices
    (place,) = (folder / "quarantine").iterdir()
    assert f"before 0.2. It was moved whole to {place};" in notice
    assert f"cd {place}, then with that kvchat: kvchat --data-dir . export --all -f json -o chats.json" in notice
    assert notice.endswith("with this one: kvchat --data-dir ../.. import chats.json")
    assert store.conversations() == [] and store.backup_if_due()
    store.close()
    assert Store.open(folder).notices == []
    assert (place / "kvchat.db").read_bytes() == before
    assert {path.name for path in place.iterdir()} == {"kvchat.db", "backups", "snapshots", "index.db"}
    assert (folder / "memory/profile.md").read_text() == "memory/profile.md"


def test_a_database_from_before_0_2_is_unread_until_one_of_its_conversations_is_here(folder, new_talk):
    for name, ids in (("a", ["0" * 32, "1" * 32]), ("b", []), ("c", ["2" * 32])):
        (place := folder / "quarantine" / name).mkdir(parents=True)
        with closing(sqlite3.connect(place / "kvchat.db")) as old, old:
            old.execute("CREATE TABLE conversation(id TEXT, title TEXT)")
            old.executemany("INSERT INTO conversation VALUES (?, '')", [(id,) for id in ids])
            old.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
            old.execute(f"PRAGMA user_version = {schema.FIRST - (name != 'c')}")
    (folder / "quarantine" / "d").mkdir()
    (folder / "quarantine" / "d" / "kvchat.db").write_bytes(b"damaged")
    store = Store.open(folder)
    assert store.unread_drafts() == [folder / "quarantine" / "a"]
    talk = new_talk(store)
    with closing(sqlite3.connect(folder / "quarantine" / "a" / "kvchat.db")) as old, old:
        old.execute("UPDATE conversation SET id = ? WHERE id = ?", (talk.id, "1" * 32))
    assert store.unread_drafts() == []
    store.close()
    assert Store.open(None).unread_drafts() == []


def test_a_daily_backup_is_whole_and_seven_are_kept(folder, tmp_path, new_talk):
    now = [1_000_000_000.0]
    store = Store.open(folder, clock=lambda: now[0])
    talk = new_talk(store)
    talk.say("precious")
    made = []
    for _ in range(10):
        made.append(store.backup_if_due())
        assert store.backup_if_due() is None
        now[0] += DAY + 1
    assert None not in made
    assert backups(folder) == made[:-8:-1]
    store.close()
    again = tmp_path / "again"
    again.mkdir()
    (again / "kvchat.db").write_bytes(made[-1].read_bytes())
    restored = Store.open(again)
    assert restored.notices == [] and [hit.conversation for hit in restored.search("precious")] == [talk.id]
    restored.close()


def test_a_backup_that_fails_leaves_nothing_behind(folder, store, talk, monkeypatch):
    def broken(path: Path) -> None:
        raise StoreError(StoreProblem.UNVERIFIED, path="kvchat.db")

    monkeypatch.setattr("kvchat.store.file.backup._check", broken)
    with pytest.raises(StoreError):
        store.backup_if_due()
    assert list((folder / "backups").iterdir()) == []


def test_everything_on_disk_is_private(folder, new_talk):
    old = os.umask(0o022)
    try:
        store = Store.open(folder)
        talk = new_talk(store)
        talk.ask("?")
        store.backup_if_due()
        found = {path: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}
        names = {path.name for path in found}
        assert names >= {"kvchat.db", "kvchat.db-wal", "kvchat.db-shm", "kvchat.db.lock", "backups"}
        store.close()
        (folder / "kvchat.db").write_bytes(b"damaged" * 1000)
        (folder / "kvchat.db").chmod(0o644)
        Store.open(folder).close()
        found |= {path: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    finally:
        os.umask(old)
    there = {path: mode for path, mode in found.items() if path.exists()}
    assert there == {path: 0o700 if path.is_dir() else 0o600 for path in there}


def test_a_network_file_system_is_recognised(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/x / ext4 rw 0 0\nserver:/home {tmp_path}/my\\040home nfs4 rw 0 0\n"
        f"tmpfs {tmp_path}/my\\040home/local tmpfs rw 0 0\n"
    )
    assert on_network(tmp_path / "my home" / "data", mounts)
    assert not on_network(tmp_path / "my home" / "local" / "data", mounts)
    assert not on_network(tmp_path / "my homestead", mounts)
    assert not on_network(tmp_path / "my home", tmp_path / "none")


def test_a_database_on_a_network_file_system_works_without_a_log(folder, new_talk, monkeypatch):
    Store.open(folder).close()
    monkeypatch.setattr(database, "on_network", lambda path: True)
    store = Store.open(folder)
    assert store._db.row("PRAGMA journal_mode") == ("delete",)
    new_talk(store).say("hello")
    assert not (folder / "kvchat.db-wal").exists()
    store.close()


@corpus(
    ("version", "fixed"),
    [
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 45, 0), False),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 52, 0), True),
        ((4, 0, 0), True),
    ],
)
def test_only_a_sqlite_with_the_fix_writes_without_a_lock(version, fixed):
    assert locks.has_wal_reset_fix(version) is fixed


def test_an_old_sqlite_is_refused(monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(StoreError, match=r"needs SQLite 3\.37 or newer"):
        Store.open(None)


@pytest.mark.process
def test_an_owner_is_gone_when_its_process_is(folder):
    from forked import fork

    child = fork(lambda say: say(owner.claim()))
    (theirs,) = child.lines()
    child.wait()
    mine = owner.claim()
    pid, started, mark = mine.split(":")
    assert owner.is_gone(theirs)
    assert not owner.is_gone(mine)
    assert owner.is_gone(f"{pid}:{started}1:{mark}")  # the number went to another process
    assert not owner.is_gone(f"{os.getppid()}::{mark}")  # alive, its start unknown
    assert owner.is_gone(None) and owner.is_gone("") and owner.is_gone("x:y:z") and owner.is_gone(f"{2**70}:1:x")
    owner.release(mine)
    assert owner.is_gone(mine)


@pytest.fixture
def refusing(monkeypatch):
    """Makes the disk of a folder take no writes from now on, until it is called with False."""
    lock = locks.WriteLock

    def refuse(path: Path) -> locks.WriteLock:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    def refusing(refuses: bool = True) -> None:
        monkeypatch.setattr(opening, "WriteLock", refuse if refuses else lock)

    return refusing


@pytest.mark.parametrize("ways", [slice(0, 1), slice(1, 2)])
def test_a_disk_that_takes_no_writes_at_the_start_is_read(folder, tmp_path, new_talk, refusing, monkeypatch, ways):
    store = Store.open(folder)
    talk = new_talk(store)
    talk.say("in the log")
    there = tmp_path / "there"
    there.mkdir()
    for suffix in ("", "-wal"):
        (there / f"kvchat.db{suffix}").write_bytes((folder / f"kvchat.db{suffix}").read_bytes())
    store.close()
    monkeypatch.setattr(opening, "_WAYS_TO_READ", opening._WAYS_TO_READ[ways])
    refusing()
    found = Store.open(there)
    assert ["can only be read" in notice for notice in found.notices] == [True]
    assert [hit.conversation for hit in found.search("in the log")] == [talk.id]
    texts = [node.text for node in found.tree(talk.id)]
    assert "in the log" in texts
    with pytest.raises(StoreUnavailable, match="Read-only file system"):
        found.set_draft(talk.id, "not yet")
    refusing(False)
    found.set_draft(talk.id, "now")
    assert found.draft(talk.id) == "now" and [node.text for node in found.tree(talk.id)] == texts
    found.close()
    again = Store.open(there)
    assert again.draft(talk.id) == "now" and again.notices == []
    again.close()


def test_without_a_log_it_is_read_where_no_file_can_be_made_beside_it(folder, new_talk, refusing, monkeypatch):
    store = Store.open(folder)
    talk = new_talk(store)
    talk.say("kept")
    store.close()
    refusing()
    monkeypatch.setattr(opening, "_WAYS_TO_READ", opening._WAYS_TO_READ[2:])
    found = Store.open(folder)
    assert "kept" in [node.text for node in found.tree(talk.id)]
    found.close()


def test_one_of_an_older_shape_is_read_too(folder, new_talk, refusing, monkeypatch):
    store = Store.open(folder)
    talk = new_talk(store)
    talk.say("kept")
    store.close()
    before = (folder / "kvchat.db").read_bytes()
    monkeypatch.setattr(schema, "MIGRATIONS", [lambda db: db.execute("CREATE TABLE more(x)")])
    refusing()
    found = Store.open(folder)
    assert found._db.rows("SELECT * FROM more") == [] and found.tree(talk.id)
    with pytest.raises(StoreUnavailable):
        found.set_draft(talk.id, "no")
    found.close()
    assert (folder / "kvchat.db").read_bytes() == before


def test_what_cannot_be_read_either_is_refused(folder, tmp_path, refusing):
    Store.open(folder).close()
    refusing()
    (folder / "kvchat.db").write_bytes(b"damaged" * 1000)
    with pytest.raises(StoreUnavailable, match="Read-only file system"):
        Store.open(folder)
    assert (folder / "kvchat.db").read_bytes() == b"damaged" * 1000 and not (folder / "quarantine").exists()
    with pytest.raises(StoreUnavailable, match="Read-only file system"):
        Store.open(tmp_path / "nothing yet")
