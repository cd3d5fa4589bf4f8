"""The tables of memory: how an older database gets them, and what a damaged one gives back."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from damaging import check_sound, open_damaged

from kvchat.memory.entry import Act, Change, Entry, Kind, Status
from kvchat.memory.ledger import EPISODES, Cell, Ledger
from kvchat.memory.state import State
from kvchat.prompt.message import Message, Role, node, system_message
from kvchat.store import Store
from kvchat.store.file import schema
from kvchat.store.file.backup import backups
from kvchat.store.file.salvage import Pages
from kvchat.store.rows import NODE_FIELDS, columns, row_of
from kvchat.store.side_requests import SideRequest
from whole_rows import add_nodes, put_row

OLD_FIELDS = ("id", "head", "created", "updated", "title", "turns", "model", "unread")
OLD = "0" * 32
BEFORE_MEMORY = range(1, 4)


def old_database(folder: Path, version: int) -> None:
    """A database of an older kvchat with one conversation of one turn."""
    folder.mkdir()
    system = node(None, system_message(""), 1.0)
    question = node(system, Message(Role.USER, "old question"), 2.0)
    answer = node(question, Message(Role.ASSISTANT, "old answer"), 3.0)
    with closing(sqlite3.connect(folder / "kvchat.db")) as connection, connection:
        for migration in schema.MIGRATIONS[:version]:
            migration(connection)
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
        for one, owner in ((system, None), (question, OLD), (answer, OLD)):
            connection.execute(
                f"INSERT INTO node({columns(NODE_FIELDS[:14])}, conversation) VALUES ({', '.join('?' * 15)})",
                (*row_of(one)[:14], owner),
            )
        connection.execute(
            f"INSERT INTO conversation({columns(OLD_FIELDS)}) VALUES ({', '.join('?' * 8)})",
            (OLD, answer.id, 1.0, 3.0, "old", 1, "", 0),
        )


def waiting(store: Store, id: str) -> list[str]:
    found = Ledger(store.database).pending(store.tree(id).path(store.conversation(id).head))
    return [one.text for one in found]


def say(store: Store, id: str, text: str) -> None:
    record = store.conversation(id)
    said = node(store.tree(id)[record.head or ""], Message(Role.USER, text), 9.0)
    add_nodes(store, replace(record, head=said.id), [said])


def broken(folder: Path) -> None:
    path = folder / "kvchat.db"
    path.write_bytes(bytes(16) + path.read_bytes()[16:])


@pytest.mark.parametrize("version", BEFORE_MEMORY)
def test_a_database_of_an_older_kvchat_is_upgraded_and_what_it_holds_is_not_gone_through(folder, version):
    old_database(folder, version)
    store = Store.open(folder)
    assert store.notices == [] and not (folder / "quarantine").exists() and len(backups(folder)) == 1
    conversation = store.conversation(OLD)
    assert conversation.memory and conversation.title == "old"
    assert waiting(store, OLD) == [] and Ledger(store.database).behind() == []
    say(store, OLD, "new question")
    assert waiting(store, OLD) == ["new question"] and Ledger(store.database).behind() == [(OLD, 1)]
    store.jobs.put("extract", OLD, 1.0)
    store.close()
    check_sound(folder)


@pytest.mark.parametrize("version", BEFORE_MEMORY)
def test_a_damaged_database_of_an_older_kvchat_is_saved_and_what_it_holds_is_not_gone_through(folder, version):
    old_database(folder, version)
    broken(folder)
    store, _ = open_damaged(folder / "kvchat.db")
    assert store.conversation(OLD).memory
    assert [one.text for one in store.tree(OLD).path(store.conversation(OLD).head)[1:]] == [
        "old question",
        "old answer",
    ]
    assert waiting(store, OLD) == []
    say(store, OLD, "new question")
    assert Ledger(store.database).behind() == [(OLD, 1)]
    store.close()
    check_sound(folder)


def test_whether_a_conversation_has_memory_is_stored(store, talk):
    assert store.conversation(talk.id).memory
    put_row(store, replace(talk.record, memory=False))
    assert not store.conversation(talk.id).memory and [one.memory for one in store.conversations()] == [False]


def test_a_conversation_gone_for_good_takes_its_waiting_work_with_it(store, new_talk):
    gone, kept = new_talk(store), new_talk(store)
    for talk in (gone, kept):
        store.jobs.put("extract", talk.id, 1.0)
    store.jobs.put("consolidate", "", 1.0)
    put_row(store, replace(gone.record, trashed=1.0))
    assert len(store.jobs.all()) == 3
    store.purge_trash(2.0)
    assert sorted(job.subject for job in store.jobs.all()) == sorted(["", kept.id])


def test_rows_of_different_tables_can_be_told_apart(store):
    """By the number of values and whether they have a row number; those of messages were once as many as those of
    conversations, but other values. An index over two texts would pass for a table of two texts."""
    shapes: dict[tuple[int, bool], list[str]] = {}
    with store.database.reading() as connection:
        tables = connection.execute(
            "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
            " AND name NOT LIKE 'sqlite%'"
        ).fetchall()
        for name, without_rowid in tables:
            kinds = [row[2] for row in connection.execute(f"PRAGMA table_info({name})")]
            shapes.setdefault((len(kinds), not without_rowid), []).append(name)
            for (index,) in connection.execute("SELECT name FROM pragma_index_list(?) WHERE origin != 'pk'", (name,)):
                found = [
                    kinds[row[0]] if row[0] >= 0 else "rowid"
                    for row in connection.execute("SELECT cid FROM pragma_index_xinfo(?)", (index,))
                ]
                assert found != ["TEXT", "TEXT"] and found[:3] != ["TEXT", "TEXT", "REAL"], index
    assert {name for name, _ in tables} >= schema.TABLES and schema.tables_of(len(schema.MIGRATIONS)) == schema.TABLES
    assert sorted(sorted(names) for names in shapes.values() if len(names) > 1) == [
        ["draft", "setting"],
        ["in_episode", "kept"],
    ], "the last values of these two are no bytes and bytes"


# What a damaged database gives back


def entry(number: int, **values: object) -> Entry:
    # Long enough that the rows fill several pages.
    return replace(
        Entry(
            f"m{number:08}",
            Kind.FACT,
            f"fact {number} " + "word " * 60,
            "topics/facts.md",
            5.0,
            confidence=0.5,
            conversation="c" * 32,
            nodes=("a", "b"),
            by="small",
        ),
        **values,
    )


@pytest.fixture
def remembering(tmp_path: Path, new_talk: type) -> Path:
    """A folder with a database that remembers: messages gone through and not, memories of every state, jobs, costs."""
    folder = tmp_path / "remembering"
    store = Store.open(folder)
    state, ledger = State(store.database), Ledger(store.database)
    for number in range(4):
        talk = new_talk(store, f"talk {number}")
        for turn in range(6):
            talk.say(f"question {number}.{turn}", "answer")
        path = store.tree(talk.id).path(talk.record.head)
        cell = Cell(f"{number:032}", talk.id, 4.0, "facts", "small", "s", 1, '[["x","why"]]')
        ledger.cover(
            cell,
            [one.id for one in path[1 : 7 + number]],
            [Change(Act.NOTED, None, entry(100 + number, created=6.5), 4.0, "s")],
        )
        Ledger(store.database, EPISODES).cover(
            replace(cell, id=f"{9 - number:032}", kind="episode"),
            [one.id for one in path[1:5]],
            [Change(Act.NOTED, None, entry(200 + number, created=6.5, page="episodes/2026-11.md"), 4.0, "s")],
        )
        store.side_requests.record(SideRequest("extract", talk.id, 4.0, "http://x", "m", "facts", 900, None, 30, 2.0))
        for kind in ("extract", "title"):
            store.jobs.put(kind, talk.id, 7.0, "four new messages")
        store.jobs.claim("title", talk.id)
    put_row(store, replace(talk.record, memory=False))
    store.jobs.pause("extract", talk.id, "three unusable answers")
    for number, status in enumerate([*Status] * 10):
        new = Change(Act.PROPOSED, None, entry(number, status=Status.PENDING), 5.0, "s", "why")
        (seq,) = state.apply([new])
        settled = entry(number, status=status, edited=number % 2 == 0, superseded_by="m1" if number % 3 else "")
        state.apply([Change(Act.ACCEPTED, new.after, settled, 6.0)], written=number % 2 == 0, undoes=[seq])
    store.close()
    return folder


MEMORY = ("job", "side_request", "cell", "covered", "in_episode", "entry", "change", "setting")


def rows_of(path: Path) -> dict[str, list]:
    with closing(sqlite3.connect(path)) as connection:
        return {table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in MEMORY}


def test_a_damaged_header_costs_no_memory(remembering, folder):
    shutil.copytree(remembering, folder)
    before = rows_of(folder / "kvchat.db")
    data = bytearray((folder / "kvchat.db").read_bytes())
    data[:4096] = random.Random(1).randbytes(4096)
    (folder / "kvchat.db").write_bytes(data)
    store, _ = open_damaged(folder / "kvchat.db")
    assert sorted(one.memory for one in store.conversations()) == [False, True, True, True]
    assert {job.state.value for job in store.jobs.all()} == {"waiting", "paused"}
    assert store.jobs.claim("title", store.conversations()[0].id)
    store.close()
    after = rows_of(folder / "kvchat.db")
    # The jobs that ran have become free.
    jobs = [[row[:4] + row[5:7] for row in found.pop("job")] for found in (before, after)]
    assert jobs[0] == jobs[1] and len(jobs[0]) == 8
    assert after == before
    check_sound(folder)


def pages_of(path: Path) -> dict[int, set[str]]:
    """The tables of memory, and of messages, that have rows on each page of a database without overflow pages."""
    shapes = {
        (9, True): "cell",
        (11, True): "side_request",
        (12, True): "change",
        (13, True): "entry",
        (4, False): "covered",
        (4, True): "in_episode",
        (10, False): "job",
        (17, True): "node",
    }
    pages = Pages(path)
    found: dict[int, set[str]] = {}
    for number in range(1, pages.count + 1):
        page = pages.page(number)
        start = 100 if number == 1 else 0
        if page[start] in (10, 13):
            for row in pages._cells(page, start):
                if name := shapes.get((len(row.values), row.rowid is not None)):
                    found.setdefault(number, set()).add(name)
    pages.close()
    return found


@pytest.mark.slow
def test_any_damaged_page_costs_only_the_rows_on_it_and_no_memory(remembering, folder):
    """A memory whose own row is lost comes from the history. A message is still in exactly one place."""
    sound = (remembering / "kvchat.db").read_bytes()
    before = rows_of(remembering / "kvchat.db")
    on_page = pages_of(remembering / "kvchat.db")
    assert {name for names in on_page.values() for name in names} >= {*MEMORY} - {"setting"}
    noise = random.Random(4)
    for page, names in on_page.items():
        if names <= {"node"}:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        path = folder / "kvchat.db"
        path.write_bytes(sound[: (page - 1) * 4096] + noise.randbytes(4096) + sound[page * 4096 :])
        store, _ = open_damaged(path)
        after = rows_of(path)
        for table in {*MEMORY} - {"job", "setting"}:
            if table not in names:
                assert [row[1:] for row in after[table]] == [row[1:] for row in before[table]], (page, table)
            elif table != "entry":
                assert set(after[table]) < set(before[table]), (page, table)
        entries = [sorted((row[1:] for row in found["entry"]), key=repr) for found in (before, after)]
        assert entries[0] == entries[1], page
        ledger = Ledger(store.database)
        covered = {row[0] for row in after["covered"]}
        for conversation in store.conversations():
            said = store.tree(conversation.id).path(conversation.head)[1:]
            pending = {one.id for one in ledger.pending(said)}
            assert pending == {one.id for one in said} - covered, page
        store.close()
        check_sound(folder)


def test_memories_are_saved_where_no_conversation_is_left(folder):
    store = Store.open(folder)
    change = Change(Act.ADDED, None, entry(1), 1.0)
    State(store.database).apply([change])
    store.jobs.put("consolidate", "", 1.0)
    store.close()
    broken(folder)
    store, _ = open_damaged(folder / "kvchat.db")
    assert State(store.database).entries() == [change.after] and len(store.jobs.all()) == 1
    assert [one.after for one in State(store.database).unwritten()] == [change.after]
    store.close()


def test_where_the_beginning_of_memory_is_lost_it_is_the_first_message_gone_through(folder, new_talk):
    store = Store.open(folder)
    talk = new_talk(store)
    talk.say("before memory")
    second = talk.say("gone through")
    talk.say("waiting")
    with store.database.write() as connection:
        connection.execute("DELETE FROM setting WHERE key = ?", (schema.MEMORY_SINCE,))
    path = store.tree(talk.id).path(talk.record.head)
    ids = [one.id for one in path]
    at = ids.index(second.id)
    Ledger(store.database).cover(Cell("c" * 32, talk.id, 1.0), ids[at - 1 : at + 1], [])
    store.close()
    broken(folder)
    store, _ = open_damaged(folder / "kvchat.db")
    assert waiting(store, talk.id) == ["waiting", "Yes."]
    store.close()
