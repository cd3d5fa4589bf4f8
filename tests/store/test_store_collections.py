"""Collections, which of them a conversation searches, and where its passages are from: stored, upgraded, saved."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from damaging import check_sound, open_damaged

from kvchat.prompt.branching import under_system, without_turn
from kvchat.prompt.compaction import compaction
from kvchat.prompt.context import NOTE, PASSAGE, ContextBlock
from kvchat.prompt.message import Message, Role, new_id, node, system_message
from kvchat.store import Store, StoreError
from kvchat.store.collections import StoredCollection
from kvchat.store.file import schema
from kvchat.store.file.backup import backups
from kvchat.store.rows import NODE_FIELDS, blocks_of, columns, row_of
from whole_rows import add_nodes, put_row

VERSION_4 = ("id", "head", "created", "updated", "title", "turns", "model", "unread", "memory")
OLD = "0" * 32
SOURCE = ContextBlock(PASSAGE, "[1] handbook/guide.md:1-9", "Turn the key.", "docs/handbook/guide.md#1-9")


def old_database(folder: Path, version: int = 4) -> None:
    """A database of an old version, with one conversation."""
    folder.mkdir()
    system = node(None, system_message(""), 1.0)
    question = node(system, Message(Role.USER, "old question", (ContextBlock("paste", "pasted", "text"),)), 2.0)
    with closing(sqlite3.connect(folder / "kvchat.db")) as connection, connection:
        for migration in schema.MIGRATIONS[:version]:
            migration(connection)
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
        for one, owner in ((system, None), (question, OLD)):
            connection.execute(
                f"INSERT INTO node({columns(NODE_FIELDS[:14])}, conversation) VALUES ({', '.join('?' * 15)})",
                (*row_of(one)[:14], owner),
            )
        connection.execute(
            f"INSERT INTO conversation({columns(VERSION_4)}) VALUES ({', '.join('?' * 9)})",
            (OLD, question.id, 1.0, 3.0, "old", 1, "", 0, 0),
        )


def without_header(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(4096) + path.read_bytes()[4096:])


def test_a_collection_is_kept_with_its_folder_and_when_it_was_indexed(store):
    assert store.collections.all() == []
    store.collections.put("handbook", "/srv/handbook", 5.0)
    store.collections.put("notes", "/home/kim/notes", 6.0)
    store.collections.indexed("handbook", 7.5)
    assert store.collections.all() == [
        StoredCollection("handbook", "/srv/handbook", 5.0, 7.5),
        StoredCollection("notes", "/home/kim/notes", 6.0),
    ]
    store.collections.remove("handbook")
    store.collections.remove("nothing of that name")
    assert [one.name for one in store.collections.all()] == ["notes"]


def test_one_name_is_one_collection_whatever_the_case_of_its_letters(store):
    store.collections.put("Handbook", "/srv/handbook", 5.0)
    store.collections.indexed("handbook", 7.0)
    store.collections.put("handbook", "/srv/handbook", 8.0)
    assert store.collections.all() == [StoredCollection("Handbook", "/srv/handbook", 5.0, 7.0)]
    store.collections.put("HANDBOOK", "/srv/other", 9.0)
    assert store.collections.all() == [StoredCollection("Handbook", "/srv/other", 5.0)], "another folder: not indexed"
    store.collections.remove("handBOOK")
    assert store.collections.all() == []


def test_a_path_that_is_no_text_is_refused_with_a_sentence(store):
    with pytest.raises(StoreError, match="not valid text"):
        store.collections.put("odd", "/srv/\udcff", 5.0)
    assert store.collections.all() == []


def test_collections_are_there_after_the_next_start(folder):
    store = Store.open(folder)
    store.collections.put("notes", "/home/kim/Notizen – größer", 6.0)
    store.close()
    store = Store.open(folder)
    assert [one.root for one in store.collections.all()] == ["/home/kim/Notizen – größer"]
    store.close()


def test_a_store_in_memory_has_collections_too():
    store = Store.open(None)
    store.collections.put("notes", "/notes", 6.0)
    assert len(store.collections.all()) == 1
    store.close()


def test_which_collections_a_conversation_searches_is_stored(store, talk):
    found = store.conversation(talk.id)
    assert (found.collections, found.retrieval) == ((), "off")
    put_row(store, replace(talk.record, collections=("handbook", "notes-2"), retrieval="ask"))
    for found in (store.conversation(talk.id), store.conversations()[0]):
        assert (found.collections, found.retrieval) == (("handbook", "notes-2"), "ask")


def test_a_way_of_searching_that_is_not_known_is_off(store, talk):
    with store.database.write() as connection:
        connection.execute("UPDATE conversation SET retrieval = 'sometimes', collections = 'a//b/'")
    found = store.conversation(talk.id)
    assert (found.collections, found.retrieval) == (("a", "b"), "off")


def test_a_fork_searches_as_its_origin_does(store, talk):
    talk.record = replace(talk.record, collections=("handbook",), retrieval="always")
    talk.say("question", blocks=(SOURCE,))
    fork = replace(talk.record, id=new_id(), forked_from=talk.id)
    store.create(fork, talk.tip)
    found = store.conversation(fork.id)
    assert (found.collections, found.retrieval) == (("handbook",), "always")
    assert store.tree(fork.id).path(found.head)[1].message.blocks == (SOURCE,)


# Where a passage is from


def test_a_passage_keeps_where_it_is_from(store, talk):
    blocks = (ContextBlock("paste", "pasted", "text"), SOURCE)
    talk.say("question", blocks=blocks)
    assert store.tree(talk.id).path(talk.record.head)[1].message.blocks == blocks
    stored = store.database.row("SELECT blocks FROM node WHERE blocks IS NOT NULL")[0]
    assert stored.startswith('[["paste","pasted","text"],["passage",'), "no fourth value where there is nothing to say"


def test_a_block_that_an_older_kvchat_stored_is_read():
    assert blocks_of('[["file","a.md","text"],["x","y"],["a","b","c","d","e"],7]') == (
        ContextBlock("file", "a.md", "text"),
    )


def test_where_a_passage_is_from_stays_when_turns_are_cut_moved_or_summed_up(store, talk):
    first = talk.say("first", blocks=(SOURCE,))
    other = replace(SOURCE, source="[2] handbook/b.md:3", text="Other.", ref="docs/handbook/b.md#3")
    talk.say("second", blocks=(other,))
    tree = store.tree(talk.id)
    head = talk.record.head
    cut = without_turn(tree, head, first.id)
    moved = under_system(tree, head, system_message("Be brief."), 9.0)
    short = compaction(tree, head, "What was said.", 1, 9.0)
    assert cut.nodes[0].message.blocks == (other,)
    assert [one.message.blocks for one in moved.nodes[1::2]] == [(SOURCE,), (other,)]
    for branch in (cut, moved, short):
        add_nodes(store, replace(talk.record, head=branch.head), branch.nodes)
        question = store.tree(talk.id).path(branch.head)[-2]
        assert question.message.blocks[-1] == other


def test_a_search_finds_a_passage_and_not_what_kvchat_says_of_it(store, talk):
    talk.say("question", blocks=(ContextBlock(NOTE, "kvchat", "The texts below are numbered."), SOURCE))
    assert [hit.snippet for hit in store.search("key")] == ["question Turn the \x02key\x03."]
    assert store.search("numbered") == []


# An older database, and a damaged one


def test_a_database_of_version_4_is_upgraded_after_a_backup(folder):
    old_database(folder)
    store = Store.open(folder)
    found = store.conversation(OLD)
    assert (found.title, found.memory, found.collections, found.retrieval) == ("old", False, (), "off")
    assert store.tree(OLD).path(found.head)[1].message.blocks == (ContextBlock("paste", "pasted", "text"),)
    store.collections.put("handbook", "/srv/handbook", 5.0)
    put_row(store, replace(found, collections=("handbook",), retrieval="ask"))
    store.close()
    (backup,) = backups(folder)
    with closing(sqlite3.connect(backup)) as old:
        assert old.execute("PRAGMA user_version").fetchone() == (4,)
        assert old.execute("SELECT title FROM conversation").fetchall() == [("old",)]
    check_sound(folder)


def search_always(folder):
    with closing(sqlite3.connect(folder / "kvchat.db")) as connection, connection:
        connection.execute("UPDATE conversation SET collections = 'handbook', searching = 'always'")


def test_what_a_conversation_searches_is_kept_where_its_column_had_another_name(folder):
    old_database(folder, 6)
    search_always(folder)
    store = Store.open(folder)
    found = store.conversation(OLD)
    assert (found.collections, found.retrieval) == (("handbook",), "always")
    put_row(store, replace(found, retrieval="ask"))
    assert store.conversation(OLD).retrieval == "ask"
    store.close()
    check_sound(folder)


def test_what_a_conversation_searches_is_saved_from_a_damaged_database_of_version_6(folder):
    old_database(folder, 6)
    search_always(folder)
    without_header(folder / "kvchat.db")
    store, _ = open_damaged(folder / "kvchat.db")
    assert store.conversation(OLD).retrieval == "always"
    store.close()


def test_a_damaged_database_of_version_4_is_saved(folder):
    old_database(folder)
    without_header(folder / "kvchat.db")
    store, _ = open_damaged(folder / "kvchat.db")
    found = store.conversation(OLD)
    assert (found.title, found.memory, found.collections, found.retrieval) == ("old", False, (), "off")
    store.close()
    check_sound(folder)


@pytest.fixture
def documented(tmp_path: Path, new_talk: type) -> Path:
    """A folder with a database that has collections, and a conversation that searches them."""
    folder = tmp_path / "documented"
    store = Store.open(folder)
    for number in range(30):
        store.collections.put(f"folder-{number}", f"/srv/{number}/" + "long/" * 30, 5.0 + number)
        if number % 2:
            store.collections.indexed(f"folder-{number}", 6.5 + number)
    talk = new_talk(store)
    talk.record = replace(talk.record, collections=("folder-1", "folder-2"), retrieval="always")
    talk.say("question", blocks=(SOURCE,))
    store.close()
    return folder


def test_a_damaged_header_costs_no_collection_and_no_source(documented, folder):
    shutil.copytree(documented, folder)
    store = Store.open(folder)
    before = store.collections.all()
    store.close()
    without_header(folder / "kvchat.db")
    store, _ = open_damaged(folder / "kvchat.db")
    assert store.collections.all() == before and len(before) == 30
    (found,) = store.conversations()
    assert (found.collections, found.retrieval) == (("folder-1", "folder-2"), "always")
    assert store.tree(found.id).path(found.head)[1].message.blocks == (SOURCE,)
    store.close()
    check_sound(folder)


@pytest.mark.slow
def test_any_damaged_page_gives_collections_as_they_were_or_not_at_all(documented, folder):
    sound = (documented / "kvchat.db").read_bytes()
    store = Store.open(documented)
    before = store.collections.all()
    store.close()
    counts = []
    for page in range(len(sound) // 4096):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        path = folder / "kvchat.db"
        path.write_bytes(sound[: page * 4096] + bytes(4096) + sound[(page + 1) * 4096 :])
        store = Store.open(folder)
        after = store.collections.all()
        store.close()
        assert set(after) <= set(before), page
        counts.append(len(after))
        check_sound(folder)
    assert min(counts) < 30 and counts.count(30) >= len(counts) - 4, "only the pages that hold them cost any"


def test_collections_are_saved_where_no_conversation_is_left(folder):
    store = Store.open(folder)
    store.collections.put("handbook", "/srv/handbook", 5.0)
    store.close()
    without_header(folder / "kvchat.db")
    store, _ = open_damaged(folder / "kvchat.db")
    assert store.collections.all() == [StoredCollection("handbook", "/srv/handbook", 5.0)]
    store.close()


def test_the_file_of_another_program_gives_no_collections(folder):
    """Its schema has rows of as many values, and so may its tables."""
    folder.mkdir()
    with closing(sqlite3.connect(folder / "kvchat.db")) as connection, connection:
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT UNIQUE, place TEXT, made REAL, read REAL)")
        connection.execute("CREATE TABLE u(kind TEXT, name TEXT, place TEXT, made REAL, read REAL)")
        connection.execute("INSERT INTO t VALUES (1, 'relative', 'some/where', 1.5, NULL)")
        connection.execute("INSERT INTO t VALUES (2, 'no name of ours', '/some/where', 1.5, NULL)")
        connection.execute("INSERT INTO u VALUES ('kind', 'name', '/some/where', 1.5, NULL)")
    store = Store.open(folder)
    assert store.collections.all() == [] and store.conversations() == []
    store.close()
