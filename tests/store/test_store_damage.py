"""A damaged file is moved aside whole, and what can be read of it is saved."""

from __future__ import annotations

import errno
import json
import random
import shutil
import sqlite3
import struct
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from kvchat.cache.accounting import TurnFigures
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.conversation import SavedPrompt
from kvchat.prompt.message import Message, Role, State, chained, node, system_message
from kvchat.store import Store, StoreDamaged, StoreUnavailable
from kvchat.store.pages import Pages

TURNS = 60


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A folder with a sound database of several conversations, a long message, a draft, a prompt and a setting."""
    from conftest import Talk

    folder = tmp_path_factory.mktemp("whole")
    store = Store.open(folder)
    for number in range(4):
        talk = Talk(store, f"talk {number}")
        for turn in range(TURNS // 4):
            answer = talk.say(f"question {number}.{turn} " + "word " * 40, f"answer {number}.{turn} " * 30)
            store.record_request(answer.id, body_sha256="ab" * 32, server="http://x", model="m")
        store.set_draft(talk.id, f"draft {number}")
    talk.say("long " * 4000, "é" * 30_000)
    question = node(talk.tip, Message(Role.USER, "with figures"), 5.0, figures=TurnFigures(1, 2))
    store.add(talk.moved(question), [question])
    store.save_prompt(SavedPrompt("name", "text"))
    store.set_setting("key", "value")
    store.close()
    return folder


@pytest.fixture
def damaged(whole: Path, folder: Path) -> Path:
    """A copy of it that a test may damage."""
    shutil.copytree(whole, folder)
    return folder / "kvchat.db"


def everything(folder: Path) -> tuple[dict, dict]:
    """All conversations and all messages by id."""
    store = Store.open(folder)
    conversations = {c.id: c for c in store.conversations()}
    nodes = {n.id: n for c in conversations for n in store.tree(c)}
    store.close()
    return conversations, nodes


def check_sound(folder: Path) -> None:
    connection = sqlite3.connect(folder / "kvchat.db")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


def quarantined(folder: Path) -> list[Path]:
    return sorted(p for p in (folder / "quarantine").rglob("*") if p.is_file())


def open_damaged(path: Path) -> tuple[Store, bytes]:
    """Open a damaged database: it must be moved aside byte for byte and be told of."""
    before = path.read_bytes()
    store = Store.open(path.parent)
    moved = path.parent / "quarantine"
    (copy,) = moved.rglob("kvchat.db")
    assert copy.read_bytes() == before
    (notice,) = store.notices
    assert str(path) in notice and str(copy.parent) in notice
    return store, before


@pytest.mark.parametrize("garbage", [b"", b"x", b"not a database, but a text\n" * 500, bytes(8192)])
def test_a_file_that_is_no_database_is_moved_aside(folder, garbage, new_talk):
    folder.mkdir()
    (folder / "kvchat.db").write_bytes(garbage)
    store, _ = open_damaged(folder / "kvchat.db")
    assert "There is no backup" in store.notices[0]
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


def free_pages(path: Path) -> set[int]:
    """The pages that hold nothing, but for the trunks of their list."""
    data = path.read_bytes()
    free: set[int] = set()
    trunk = int.from_bytes(data[32:36], "big")
    while trunk:
        words = struct.unpack(">1024I", data[(trunk - 1) * 4096 : trunk * 4096])
        free.update(words[2 : 2 + words[1]])
        trunk = words[0]
    return free


def rows_on_pages(path: Path) -> dict[int, set[str]]:
    """The ids of messages and conversations on each page, overflow pages included."""
    pages = Pages(path)
    found: dict[int, set[str]] = {}
    touched: list[int] = []
    read = pages.page

    def page(number: int) -> bytes:
        touched.append(number)
        return read(number)

    pages.page = page  # type: ignore[method-assign]
    for number in range(1, pages.count + 1):
        data = read(number)
        start = 100 if number == 1 else 0
        if data[start] != 13:
            continue
        touched.clear()
        for row in pages._cells(data, start):
            if len(row.values) in (14, 17):
                for one in {number, *touched}:
                    found.setdefault(one, set()).add(str(row.values[1]))
            touched.clear()
    return found


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


def test_a_damaged_file_and_its_log_are_moved_as_they_were(whole, folder):
    """Looking at them must not write the log back into the file."""
    source = folder.parent / "source"
    shutil.copytree(whole, source)
    store = Store.open(source)
    store.set_draft("f" * 32, "only in the log")
    shutil.copytree(source, folder)
    store.close()
    data = (folder / "kvchat.db").read_bytes()
    (folder / "kvchat.db").write_bytes(data[:8192] + random.Random(5).randbytes(4096) + data[12288:])
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
    damaged.write_bytes(bytes(16) + damaged.read_bytes()[16:])
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
    data = bytes(16) + damaged.read_bytes()[16:]
    damaged.write_bytes(data)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("kvchat.store.salvage._save", full)
    with pytest.raises(StoreUnavailable, match="No space left"):
        Store.open(damaged.parent)
    assert damaged.read_bytes() == data and quarantined(damaged.parent) == []


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


def test_the_newest_backup_is_offered_and_restores_everything(whole, damaged):
    conversations, nodes = everything(whole)
    folder = damaged.parent
    store = Store.open(folder)
    backup = store.backup_if_due()
    store.close()
    damaged.write_bytes(bytes(damaged.stat().st_size))
    store, _ = open_damaged(damaged)
    assert f"The newest backup is {backup}" in store.notices[0] and store.conversations() == []
    store.close()
    shutil.copy(backup, damaged)
    assert everything(folder) == (conversations, nodes)


def test_two_quarantines_in_one_second_keep_both_files(folder):
    for garbage in (b"one", b"two"):
        folder.mkdir(exist_ok=True)
        (folder / "kvchat.db").write_bytes(garbage)
        Store.open(folder, clock=lambda: 1e9).close()
    assert [p.read_bytes() for p in quarantined(folder) if p.name == "kvchat.db"] == [b"one", b"two"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks on folders")
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
    data = damaged.read_bytes()
    damaged.write_bytes(data[:4096] + random.Random(4).randbytes(8 * 4096) + data[9 * 4096 :])
    with pytest.raises(StoreDamaged, match="Start kvchat again: the file is moved aside"):
        store.conversations()
    with pytest.raises(StoreDamaged):
        store.purge_trash(1e12)
    store.close()
    store = Store.open(damaged.parent)
    assert "messages in 4 conversations were saved" in store.notices[0] and len(store.conversations()) == 4
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


def test_damage_inside_a_value_does_not_close_its_conversation(store, talk):
    answer = talk.say("question", "answer", (ContextBlock("paste", "source", "pasted"),))
    for column, value in (("figures", "[1,"), ("figures", "{}"), ("blocks", "[[1]]"), ("blocks", "nonsense")):
        with store._db.write() as connection:
            connection.execute(f"UPDATE node SET {column} = ? WHERE id IN (?, ?)", (value, answer.id, answer.parent))
        assert talk.texts() == ["question", "answer"]
    assert store.tree(talk.id)[answer.id].figures is None and store.figures() == []
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
