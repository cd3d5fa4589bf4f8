"""What can be read of a damaged file is saved on top of the newest backup."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from contextlib import closing
from itertools import pairwise

import pytest
from damaging import break_index, break_table, check_sound, everything, open_damaged, rows_of_tables
from msgspec.structs import replace

from kvchat.prompt.conversation import SavedPrompt
from kvchat.prompt.message import State, chained, system_message
from kvchat.store import Store
from kvchat.store.file import schema
from whole_rows import put_row

FILLED = {"TEXT": "text", "INTEGER": 7, "REAL": 7.5, "BLOB": b"bytes"}


def test_every_row_of_every_table_is_saved_where_all_can_be_read(damaged):
    with closing(sqlite3.connect(damaged)) as connection, connection:
        (owner,) = connection.execute("SELECT id FROM conversation LIMIT 1").fetchone()
        (node,) = connection.execute("SELECT id FROM node WHERE role = 'user' LIMIT 1").fetchone()
        for table in sorted(schema.TABLES - {"node", "conversation", "request", "delta"}):
            kinds = connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()
            row = {name: {"conversation": owner, "node": node}.get(name, FILLED[kind]) for name, kind in kinds}
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", tuple(row.values()))
    before = rows_of_tables(damaged)
    assert not [name for name, rows in before.items() if not rows and name != "delta"]
    break_index(damaged)
    store, _ = open_damaged(damaged)
    assert "saved from it." in store.notices[0]
    assert store.prompts()[0] == SavedPrompt("name", "text") and store.setting("key") == "value"
    assert len(store.search("question", limit=1000)) == 60
    store.close()
    assert rows_of_tables(damaged) == before
    check_sound(damaged.parent)


@pytest.mark.parametrize("size", [16, 100, 4096])
def test_where_nothing_can_be_read_the_newest_whole_backup_is_put_in_place(whole, damaged, size):
    conversations, nodes = everything(whole)
    now = [1e9]
    store = Store.open(damaged.parent, clock=lambda: now[0])
    backup = store.backup_if_due()
    now[0] += 2 * 86_400
    newer = store.backup_if_due()
    store.close()
    newer.write_bytes(newer.read_bytes()[:8192] + bytes(4096) + newer.read_bytes()[12288:])
    damaged.write_bytes(random.Random(1).randbytes(size) + damaged.read_bytes()[size:])
    store, _ = open_damaged(damaged)
    assert f"are back from the backup {backup}" in store.notices[0]
    store.close()
    assert everything(damaged.parent) == (conversations, nodes)


def test_a_lost_table_comes_from_the_backup_and_the_others_are_as_they_were(damaged, new_talk):
    store = Store.open(damaged.parent)
    store.backup_if_due()
    new_talk(store, "after the backup").say("new question")
    store.close()
    conversations, nodes = everything(damaged.parent)
    break_table(damaged, "node")
    store, _ = open_damaged(damaged)
    assert "and from the backup" in store.notices[0] and "some rows could not be read" in store.notices[0]
    store.close()
    now, kept = everything(damaged.parent)
    assert set(now) == set(conversations)
    assert {one.text for one in nodes.values()} - {one.text for one in kept.values()} == {"new question", "Yes."}
    check_sound(damaged.parent)


def test_what_was_deleted_since_the_backup_does_not_come_back(damaged):
    store = Store.open(damaged.parent)
    store.backup_if_due()
    gone = store.conversations()[0]
    put_row(store, replace(gone, trashed=1.0))
    store.purge_trash(1e12)
    store.close()
    break_index(damaged)
    store, _ = open_damaged(damaged)
    assert gone.id not in {one.id for one in store.conversations()} and len(store.conversations()) == 3
    store.close()


@pytest.mark.slow
def test_no_damaged_page_costs_what_is_in_a_backup(whole, folder, new_talk):
    """Each page in turn is overwritten with noise."""
    shutil.copytree(whole, folder)
    store = Store.open(folder)
    store.backup_if_due()
    for number in range(4):
        talk = new_talk(store, f"later {number}")
        for turn in range(5):
            talk.say(f"later {number}.{turn} " + "word " * 40, f"answer {number}.{turn} " * 30)
    store.close()
    _, old = everything(whole)
    _, nodes = everything(folder)
    start = folder.parent / "start"
    folder.rename(start)
    sound = (start / "kvchat.db").read_bytes()
    noise = random.Random(2)
    pages = len(sound) // 4096
    saved = tried = 0
    for page in sorted({0, pages - 1, *noise.sample(range(pages), min(pages, 48))}):
        shutil.copytree(start, folder)
        path = folder / "kvchat.db"
        path.write_bytes(sound[: page * 4096] + noise.randbytes(4096) + sound[(page + 1) * 4096 :])
        Store.open(folder).close()
        now, kept = everything(folder)
        assert set(old) <= set(kept), page
        for id, found in kept.items():
            if id in nodes:
                assert (found.wire, found.text) == (nodes[id].wire, nodes[id].text)
            above = kept[found.parent].digest if found.parent else b""
            assert found.digest == chained(above, found.wire)
        for conversation in now.values():
            assert conversation.head in kept or not conversation.head
        saved, tried = saved + len(set(nodes) & set(kept)), tried + len(nodes)
        check_sound(folder)
        shutil.rmtree(folder)
    assert saved >= 0.95 * tried


def test_a_message_whose_beginning_is_lost_stands_under_a_system_message(folder, new_talk):
    store = Store.open(folder)
    talk = new_talk(store, instructions="Unusual.")
    first = talk.say("first")
    second = talk.say("second")
    with store._db.write() as connection:
        connection.execute("PRAGMA defer_foreign_keys = ON")
        connection.execute("UPDATE node SET parent = NULL WHERE id = ?", (second.parent,))
        connection.execute("UPDATE node SET parent = id WHERE id = ?", (first.parent,))
    store.close()
    break_index(folder / "kvchat.db")
    store, _ = open_damaged(folder / "kvchat.db")
    tree = store.tree(talk.id)
    path = tree.path(talk.record.head)
    assert [n.text for n in path] == [system_message("").text, "second", "Yes."]
    assert [n.text for n in tree.path(first.id)] == [system_message("").text, "first", "Yes."]
    for above, below in pairwise(path):
        assert below.digest == chained(above.digest, below.wire)
    store.close()


def test_messages_whose_conversation_is_lost_get_a_new_entry_in_the_list(folder, new_talk):
    store = Store.open(folder)
    talk = new_talk(store)
    talk.say("The lost question", "The lost answer")
    with store._db.write() as connection:
        connection.execute("PRAGMA defer_foreign_keys = ON")
        connection.execute("UPDATE conversation SET id = 'x', head = NULL")
        connection.execute("UPDATE node SET conversation = NULL WHERE conversation IS NOT NULL")
    store._db._connection.execute("PRAGMA foreign_keys = OFF")
    store._db._connection.execute("UPDATE node SET conversation = ? WHERE role != 'system'", (talk.id,))
    store.close()
    break_index(folder / "kvchat.db")
    store, _ = open_damaged(folder / "kvchat.db")
    (conversation,) = store.conversations()
    assert (conversation.id, conversation.title, conversation.turns) == (talk.id, "The lost question", 1)
    assert [n.text for n in store.tree(talk.id).path(conversation.head)[1:]] == ["The lost question", "The lost answer"]
    store.close()


def test_an_answer_that_streamed_into_a_damaged_file_is_kept(folder, new_talk):
    store = Store.open(folder)
    talk = new_talk(store)
    answer = talk.ask("?")
    store.append(answer.id, "half an answer", "")
    store.close()
    break_index(folder / "kvchat.db")
    store = Store.open(folder)
    found = store.tree(talk.id)[answer.id]
    assert (found.text, found.state) == ("half an answer", State.INTERRUPTED)
    assert len(store.notices) == 2
    store.close()


def test_scattered_noise_never_raises_anything_but_an_error_of_the_store(whole, folder):
    noise = random.Random(3)
    sound = (whole / "kvchat.db").read_bytes()
    for _ in range(12):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        data = bytearray(sound)
        for _ in range(400):
            data[noise.randrange(len(data))] = noise.randrange(256)
        (folder / "kvchat.db").write_bytes(data)
        store = Store.open(folder)
        for conversation in store.conversations():
            for one in store.tree(conversation.id).path(conversation.head):
                assert json.loads(one.wire)["role"] == one.role
        store.search("question")
        store.close()
        check_sound(folder)


@pytest.mark.parametrize("column", ["title", "model", "server"])
def test_a_text_of_a_conversation_that_is_none_does_not_come_back(folder, new_talk, column):
    store = Store.open(folder)
    talk = new_talk(store)
    talk.say("The question", "The answer")
    with store._db.write() as connection:
        connection.execute(f"UPDATE conversation SET {column} = CAST('http://x' AS BLOB)")
    store.close()
    break_index(folder / "kvchat.db")
    store, _ = open_damaged(folder / "kvchat.db")
    (conversation,) = store.conversations()
    assert conversation.id == talk.id and isinstance(getattr(conversation, column), str)
    assert [n.text for n in store.tree(talk.id).path(conversation.head)[1:]] == ["The question", "The answer"]
    store.close()
