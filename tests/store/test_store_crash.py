"""Processes that are killed, and processes that write at the same time."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from forked import fork

from kvchat.prompt.message import Message, NoteKind, Role, State, chained, node
from kvchat.store import Store, StoreUnavailable
from kvchat.store.file import schema
from kvchat.text.problems import StoreProblem
from kvchat.values import said
from tries import tries
from whole_rows import settle_node

KILLS = tries("store_kills", 100)
ENDED = said(NoteKind.KVCHAT_ENDED)
PIECES = 30


def write_until_killed(folder: Path, talk_type: type, say) -> None:
    """Turns with streamed answers; every acknowledgement is said after the store gave it."""
    store = Store.open(folder)
    for turn in range(1_000_000):
        talk = talk_type(store, f"talk {turn}")
        for _ in range(3):
            answer = talk.ask(f"question {turn}")
            say(f"asked {talk.id} {answer.parent} {answer.id}")
            for piece in range(PIECES):
                store.append(answer.id, f"<{piece:02}>", "r")
                say(f"delta {answer.id} {piece}")
            question = store.tree(talk.id)[answer.parent]
            final = node(
                question, Message(Role.ASSISTANT, "final " * 50, reasoning="r" * PIECES), answer.created, id=answer.id
            )
            settle_node(store, final, talk.moved(final))
            say(f"settled {answer.id}")


def integrity(folder: Path) -> str:
    connection = sqlite3.connect(folder / "kvchat.db")
    try:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        return connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    finally:
        connection.close()


@pytest.mark.process
def test_a_killed_kvchat_loses_nothing_it_acknowledged(folder, new_talk):
    chance = random.Random(7)
    interrupted = acknowledged = 0
    for _ in range(KILLS):
        child = fork(lambda say: write_until_killed(folder, new_talk, say))
        said = [child.said.readline().decode().strip() for _ in range(chance.randint(1, 2 * PIECES))]
        os.kill(child.pid, signal.SIGKILL)  # wherever it is by now, on a machine of any speed
        lines = [*said, *child.lines()]
        assert child.wait() == -signal.SIGKILL
        assert not [line for line in lines if line.startswith("FAILED")]
        acknowledged += len(lines)

        before = interrupted
        store = Store.open(folder)
        trees: dict = {}
        last: dict[str, int] = {}
        settled = {line.split()[1] for line in lines if line.startswith("settled")}
        for line in lines:
            word, *rest = line.split()
            if word == "asked":
                tree = trees[rest[2]] = store.tree(rest[0])
                assert tree[rest[1]].text.startswith("question") and rest[2] in tree
            elif word == "delta":
                last[rest[0]] = int(rest[1])
        for answer, tree in trees.items():
            stored = tree[answer]
            if stored.state is State.DONE:
                assert stored.text == "final " * 50
                continue
            assert answer not in settled and stored.state is State.INTERRUPTED and stored.note == ENDED
            pieces = last.get(answer, -1) + 1
            whole = "".join(f"<{i:02}>" for i in range(PIECES))
            assert stored.text in (whole[: 4 * pieces], whole[: 4 * pieces + 4])
            assert stored.message.reasoning == "r" * (len(stored.text) // 4)
            assert stored.wire == stored.message.wire()
            assert stored.digest == chained(tree[stored.parent].digest, stored.wire)
            interrupted += 1
        assert bool(store.notices) >= (interrupted > before)
        store.close()
        assert integrity(folder) == "ok"
    assert interrupted > KILLS / 10 and acknowledged > KILLS


@pytest.mark.process
def test_an_answer_of_a_living_kvchat_is_left_alone(folder, store, talk):
    answer = talk.ask("?")
    store.append(answer.id, "so far", "")
    child = fork(lambda say: say(Store.open(folder).tree(talk.id)[answer.id].state.value))
    assert (child.lines(), child.wait()) == (["streaming"], 0)
    question = store.tree(talk.id)[answer.parent]
    store.settle(node(question, Message(Role.ASSISTANT, "so far, so good"), 1.0, id=answer.id))
    assert store.tree(talk.id)[answer.id].text == "so far, so good"


def test_a_store_closed_over_a_streaming_answer_keeps_what_came(folder, new_talk):
    store = Store.open(folder)
    talk = new_talk(store)
    answer = talk.ask("?")
    store.append(answer.id, "half \ud83d", "think", "reasoning")
    store.append(answer.id, "\ude00 way", "ing", "reasoning")
    store.close()
    store = Store.open(folder)
    found = store.tree(talk.id)[answer.id]
    assert (found.text, found.message.reasoning) == ("half 😀 way", "thinking")
    assert found.message.reasoning_field == "reasoning"
    assert store._db.row("SELECT count(*) FROM delta") == (0,)
    assert (found.state, found.note, found.wire) == (State.INTERRUPTED, ENDED, found.message.wire())
    assert len(store.notices) == 1 and [hit.node for hit in store.search("half")] == [answer.id]
    store.close()
    store = Store.open(folder)
    assert store.notices == []
    store.close()


def test_text_that_proved_to_be_a_thought_is_one_after_a_crash(folder, store, talk, monkeypatch):
    answer = talk.ask("?")
    for text, reasoning, field in (
        ("I pon", "", "reasoning_content"),
        ("der", "", "reasoning_content"),
        ("", "I ponder", "{}\n</think>"),
        ("Hello", "", "{}\n</think>\n\n"),
    ):
        store.append(answer.id, text, reasoning, field)
    monkeypatch.setattr("kvchat.store.messages.is_gone", lambda owner: True)
    other = Store.open(folder)
    found = other.tree(talk.id)[answer.id]
    assert (found.text, found.message.reasoning) == ("Hello", "I ponder")
    assert b'"content":"I ponder\\n</think>\\n\\nHello"' in found.wire
    other.close()


def test_an_answer_wrongly_given_up_is_still_its_owners_to_settle(folder, store, talk, monkeypatch):
    answer = talk.ask("?")
    store.append(answer.id, "half", "")
    monkeypatch.setattr("kvchat.store.messages.is_gone", lambda owner: True)
    other = Store.open(folder)
    assert other.tree(talk.id)[answer.id].text == "half"
    question = store.tree(talk.id)[answer.parent]
    store.settle(node(question, Message(Role.ASSISTANT, "the whole"), 1.0, id=answer.id))
    assert other.tree(talk.id)[answer.id].state is State.DONE
    assert other.search("half") == [] and len(other.search("whole")) == 1
    other.close()


def test_a_delta_tried_again_after_a_failure_is_kept_once(folder, new_talk, monkeypatch):
    store = Store.open(folder)
    talk = new_talk(store)
    answer = talk.ask("?")
    store.append(answer.id, "one ", "")
    write = store._db.write

    @contextmanager
    def kept_and_raised(**options):
        with write(**options) as connection:
            yield connection
        raise StoreUnavailable(StoreProblem.CLOSED)

    with monkeypatch.context() as failing:
        failing.setattr(store._db, "write", kept_and_raised)
        with pytest.raises(StoreUnavailable):
            store.append(answer.id, "two", "")
    store.append(answer.id, "two three", "")
    store.close()
    store = Store.open(folder)
    assert store.tree(talk.id)[answer.id].text == "one two three"
    store.close()


@pytest.mark.process
@pytest.mark.parametrize("fixed", [False, True], ids=["with-our-lock", "with-sqlites-own"])
def test_eight_kvchats_write_at_once(folder, new_talk, monkeypatch, fixed):
    """They meet at an old database too: one of them upgrades it."""
    monkeypatch.setattr("kvchat.store.file.database.has_wal_reset_fix", lambda: fixed)
    # SQLite polls for a lock, so that one of eight may come late on a slow machine; the app's writer tries again.
    monkeypatch.setattr("kvchat.store.file.database.BUSY_SECONDS", 120.0)
    Store.open(folder).close()
    upgrades = [*schema.MIGRATIONS, lambda db: db.execute("CREATE TABLE upgraded(x)")]

    def write(say) -> None:
        schema.MIGRATIONS[:] = upgrades
        store = Store.open(folder)
        talk = new_talk(store, f"by {os.getpid()}")
        for i in range(100):
            talk.ask(f"message {i}")
            assert len(store.conversations()) >= 1
        store.close()
        say("done")

    def read(say) -> None:
        schema.MIGRATIONS[:] = upgrades
        store = Store.open(folder)
        seen = store.data_version()
        changes = most = 0
        deadline = time.monotonic() + 120
        while most < 800 and time.monotonic() < deadline:
            time.sleep(0.01)
            changes += store.data_version() != seen
            seen = store.data_version()
            most = sum(c.turns for c in store.conversations())
        say(f"{most} {changes > 0}")

    children = [fork(write) for _ in range(8)]
    reader = fork(read)
    assert [child.lines() for child in children] == [["done"]] * 8
    assert [child.wait() for child in children] == [0] * 8
    assert (reader.lines(), reader.wait()) == (["800 True"], 0)
    monkeypatch.setattr(schema, "MIGRATIONS", upgrades)
    store = Store.open(folder)
    questions = [one.text for c in store.conversations() for one in store.tree(c.id) if one.role is Role.USER]
    assert sorted(questions) == sorted([f"message {i}" for i in range(100)] * 8)
    assert len(list((folder / "backups").glob(f"*-v{schema.FIRST}.db"))) == 1
    store.close()
    assert integrity(folder) == "ok"


@pytest.mark.process
def test_a_kvchat_killed_on_a_network_file_system_loses_nothing(folder, new_talk, monkeypatch):
    """There a rollback journal is left behind, half of a transaction in the file."""
    monkeypatch.setattr("kvchat.store.file.database.on_network", lambda path: True)

    def write(say) -> None:
        store = Store.open(folder)
        talk = new_talk(store)
        talk.say("hello")
        store._db.row("PRAGMA cache_size = 2")
        say(talk.id)
        with store._db.write() as connection:
            connection.execute("UPDATE conversation SET title = 'torn'")
            connection.executemany("INSERT INTO draft VALUES (?, ?)", [(str(i), "x" * 3000) for i in range(300)])
            os.kill(os.getpid(), signal.SIGKILL)

    child = fork(write)
    (id,) = child.lines()
    child.wait()
    assert (folder / "kvchat.db-journal").stat().st_size > 0
    store = Store.open(folder)
    assert store.notices == [] and store.conversation(id).title == "Talk" and store.drafts() == {}
    assert len(store.search("hello")) == 1
    store.close()
    assert integrity(folder) == "ok"


@pytest.mark.process
def test_eight_kvchats_begin_at_once(folder, new_talk):
    def begin(say) -> None:
        store = Store.open(folder)
        new_talk(store).say("hello")
        say(" ".join(store.notices))
        store.close()

    children = [fork(begin) for _ in range(8)]
    assert [child.lines() for child in children] == [[""]] * 8
    assert [child.wait() for child in children] == [0] * 8
    store = Store.open(folder)
    assert len(store.conversations()) == 8
    assert store._db.row("SELECT count(*) FROM node WHERE parent IS NULL") == (1,)
    store.close()


def test_many_threads_share_one_store(store, new_talk):
    from concurrent.futures import ThreadPoolExecutor

    def chat(number: int) -> list[str]:
        talk = new_talk(store)
        for i in range(10):
            talk.say(f"{number}.{i}", "ok")
            store.search("ok")
        return talk.texts()

    with ThreadPoolExecutor(6) as threads:
        texts = list(threads.map(chat, range(6)))
    assert texts == [[word for i in range(10) for word in (f"{number}.{i}", "ok")] for number in range(6)]
