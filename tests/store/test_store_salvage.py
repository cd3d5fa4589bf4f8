"""What can be read of a damaged file is saved, with the bytes it had."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from itertools import pairwise

import pytest
from damaging import check_sound, everything, free_pages, open_damaged, quarantined, rows_on_pages

from kvchat.prompt.conversation import SavedPrompt
from kvchat.prompt.message import State, chained, system_message
from kvchat.store import Store
from whole_rows import put_row


@pytest.mark.parametrize("size", [16, 100, 4096])
def test_a_damaged_header_costs_no_message(whole, damaged, size):
    conversations, nodes = everything(whole)
    data = bytearray(damaged.read_bytes())
    data[:size] = random.Random(1).randbytes(size)
    damaged.write_bytes(data)
    store, _ = open_damaged(damaged)
    assert store.prompts() == [SavedPrompt("name", "text")] and store.setting("key") == "value"
    assert sorted(store.drafts().values()) == [f"draft {n}" for n in range(4)]
    assert len(store.speed_samples("http://x", "m")) == 0 and len(store.search("question")) == 50
    store.close()
    assert everything(damaged.parent) == (conversations, nodes)
    check_sound(damaged.parent)


@pytest.mark.slow
def test_any_damaged_page_costs_only_what_was_on_it(whole, folder):
    """Each page in turn is overwritten with noise. What the others hold is saved, with the same bytes."""
    conversations, nodes = everything(whole)
    sound = (whole / "kvchat.db").read_bytes()
    on_page = rows_on_pages(whole / "kvchat.db")
    free = free_pages(whole / "kvchat.db")
    noise = random.Random(2)
    pages = len(sound) // 4096
    for page in sorted({0, pages - 1, *noise.sample(range(pages), min(pages, 48))}):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        path = folder / "kvchat.db"
        path.write_bytes(sound[: page * 4096] + noise.randbytes(4096) + sound[(page + 1) * 4096 :])
        if (page + 1) in free:
            assert everything(folder) == (conversations, nodes)
            continue
        store, _ = open_damaged(path)
        store.close()
        now, kept = everything(folder)
        lost = on_page.get(page + 1, set())
        assert {id for id in nodes if id not in lost} <= set(kept), page
        assert set(conversations) - lost <= set(now), page
        for id, found in kept.items():
            if id in nodes:
                assert (found.wire, found.text) == (nodes[id].wire, nodes[id].text)
        for found in kept.values():
            above = kept[found.parent].digest if found.parent else b""
            assert found.digest == chained(above, found.wire)
        for conversation in now.values():
            assert conversation.head in kept
        if not lost:
            assert now == conversations and kept == nodes
        check_sound(folder)


@pytest.mark.parametrize("part", [0.3, 0.6, 0.8])
def test_a_truncated_file_keeps_what_is_left(whole, damaged, part):
    conversations, nodes = everything(whole)
    data = damaged.read_bytes()
    damaged.write_bytes(data[: int(len(data) * part)])
    on_page = rows_on_pages(whole / "kvchat.db")
    gone = {id for page, ids in on_page.items() if page * 4096 > len(data) * part for id in ids}
    store, _ = open_damaged(damaged)
    store.close()
    now, kept = everything(damaged.parent)
    assert set(nodes) - gone <= set(kept) and set(conversations) - gone <= set(now)
    check_sound(damaged.parent)


def test_what_was_only_in_the_log_is_saved_too(folder, new_talk):
    store = Store.open(folder)
    new_talk(store).say("in the log", "answer in the log")
    copy = folder.parent / "copy"
    shutil.copytree(folder, copy)
    store.close()
    data = bytearray((copy / "kvchat.db").read_bytes())
    data[:100] = bytes(100)
    (copy / "kvchat.db").write_bytes(data)
    again = Store.open(copy)
    assert {p.name for p in quarantined(copy)} >= {"kvchat.db", "kvchat.db-wal"}
    (conversation,) = again.conversations()
    path = again.tree(conversation.id).path(conversation.head)
    assert [n.text for n in path[1:]] == ["in the log", "answer in the log"]
    again.close()


def test_what_an_earlier_log_held_is_not_taken_for_news(folder, new_talk):
    """A log that begins anew leaves the pages of its earlier round behind its own."""
    store = Store.open(folder)
    talk = new_talk(store)
    for title in ("older", "old"):
        talk.record = replace(talk.record, title=title)
        talk.say("question")
    store._db.row("PRAGMA wal_checkpoint(FULL)")
    put_row(store, replace(talk.record, title="new"))
    copy = folder.parent / "copy"
    shutil.copytree(folder, copy)
    store.close()
    (copy / "kvchat.db").write_bytes(bytes(16) + (copy / "kvchat.db").read_bytes()[16:])
    store, _ = open_damaged(copy / "kvchat.db")
    assert [c.title for c in store.conversations()] == ["new"]
    store.close()


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
    data = bytearray((folder / "kvchat.db").read_bytes())
    data[:16] = bytes(16)
    (folder / "kvchat.db").write_bytes(data)
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
    (folder / "kvchat.db").write_bytes(bytes(16) + (folder / "kvchat.db").read_bytes()[16:])
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
    (folder / "kvchat.db").write_bytes(bytes(16) + (folder / "kvchat.db").read_bytes()[16:])
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
    (folder / "kvchat.db").write_bytes(bytes(16) + (folder / "kvchat.db").read_bytes()[16:])
    store, _ = open_damaged(folder / "kvchat.db")
    (conversation,) = store.conversations()
    assert conversation.id == talk.id and isinstance(getattr(conversation, column), str)
    assert [n.text for n in store.tree(talk.id).path(conversation.head)[1:]] == ["The question", "The answer"]
    store.close()
