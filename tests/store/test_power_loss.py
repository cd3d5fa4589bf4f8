"""Power that fails at any moment, and disks that fail at any call."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from damaging import quarantined
from forked import fork
from msgspec.structs import replace
from power_loss import Recording, fault, on_disk

from kvchat.prompt.conversation import Conversation, SavedPrompt
from kvchat.prompt.message import Message, Role, State, new_id, node, system_message
from kvchat.store import Store, StoreError
from kvchat.store.queue import QueuedRow
from tries import tries
from whole_rows import put_row, settle_node

POINTS = tries("power_losses", 1_000)
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 ORDER BY name"


def content(execute: Callable[[str], Any]) -> str:
    """Every row of every table, those of the search index too."""
    return repr([(name, execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall()) for (name,) in execute(TABLES)])


def sound_content(folder: Path) -> str:
    """The same, of a database that is whole."""
    with closing(sqlite3.connect(folder / "kvchat.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        return content(connection.execute)


class Work:
    """A store in use, and what it held after each write."""

    def __init__(self, folder: Path, recording: Recording) -> None:
        self._folder, self._recording = folder, recording
        self.states: list[tuple[int, bool, str]] = []
        """The calls to the disk by then, whether the write is promised to outlast a power cut, and the content."""
        self.open()
        self.states.insert(0, (0, *self.states[0][1:]))

    def open(self) -> None:
        self.store = opened(self._folder)
        with self.store.database.reading() as connection:  # what a log of megabytes brings about, often
            connection.execute("PRAGMA wal_autocheckpoint = 20")
            connection.execute("PRAGMA journal_size_limit = 100000")
        self.done(lasts=True)

    def done(self, *, lasts: bool) -> None:
        with self.store.database.reading() as connection:
            self.states.append((len(self._recording.calls), lasts, content(connection.execute)))

    def converse(self, talk_type: type, number: int) -> None:
        store = self.store
        talk = talk_type(store, f"talk {number}")
        self.done(lasts=True)
        for turn in range(4):
            answer = talk.ask(f"question {turn} " * 10 ** (turn % 3))
            self.done(lasts=True)
            store.record_request(answer.id, body_sha256="ab" * 32, server="http://x", model="m")
            self.done(lasts=False)
            for piece in range(5):
                store.append(answer.id, f"<{piece}>" * 100, "")
                self.done(lasts=False)
            question = store.tree(talk.id)[answer.parent]
            final = node(question, Message(Role.ASSISTANT, "final " * 50), answer.created, id=answer.id)
            settle_node(store, final, talk.moved(final))
            self.done(lasts=True)
        store.queue.put(QueuedRow(str(number), talk.id, "later", "", 1.0))
        self.done(lasts=True)
        store.set_draft(talk.id, "a draft")
        self.done(lasts=False)
        put_row(store, replace(talk.record, title="renamed"))
        self.done(lasts=False)
        store.save_prompt(SavedPrompt(f"prompt {number}", "text"))
        self.done(lasts=True)

    def possible(self, at: int) -> list[str]:
        """What may be there after a power cut at this call: at least what lasts, at most what was begun."""
        least = max(i for i, (calls, lasts, _) in enumerate(self.states) if lasts and calls <= at)
        most = sum(calls <= at for calls, *_ in self.states)
        return [state for *_, state in self.states[least : most + 1]]


@pytest.mark.slow
@pytest.mark.parametrize(("on_network", "points"), [(False, POINTS), (True, POINTS // 4)], ids=["log", "journal"])
def test_a_power_cut_loses_nothing_that_was_promised_to_last(
    folder, tmp_path, new_talk, monkeypatch, on_network, points
):
    monkeypatch.setattr("kvchat.store.file.database.on_network", lambda path: on_network)
    monkeypatch.setattr("kvchat.store.messages.is_gone", lambda owner: False)  # answers are seen as the cut left them
    recording = Recording()
    with on_disk(recording.tell):
        work = Work(folder, recording)
        for number in range(6):
            work.converse(new_talk, number)
            if number % 3 == 1:
                work.store.checkpoint()
            elif number % 3 == 2:
                work.store.close()
                work.open()
        work.store.close()
    begun = work.states[1][0]
    there = tmp_path / "there"
    for point in range(points):
        chance = random.Random(point)
        at = chance.randint(1, len(recording.calls))
        there.mkdir()
        recording.cut(at, there, chance)
        opened(there).close()
        assert sound_content(there) in work.possible(at), f"{point=} {at=}"
        assert at < begun or not quarantined(there), f"{point=} {at=}"
        shutil.rmtree(there)


SYSTEM = node(None, system_message("Be kind."), 1.0)
QUESTION = node(SYSTEM, Message(Role.USER, "question " * 1000), 2.0)
ANSWER = node(QUESTION, Message(Role.ASSISTANT, ""), 3.0, state=State.STREAMING)
FINAL = node(QUESTION, Message(Role.ASSISTANT, "answer " * 100), 3.0, id=ANSWER.id)
TALK = Conversation(new_id(), SYSTEM.id, 1.0, 1.0, title="Talk")


STEPS: tuple[Callable[[Store], object], ...] = (
    lambda store: store.create(TALK, SYSTEM),
    lambda store: store.add(TALK, [QUESTION, ANSWER], lambda row: replace(row, head=ANSWER.id, turns=row.turns + 1)),
    *(lambda store, piece=piece: store.append(ANSWER.id, f"answer {piece} " * 100, "") for piece in range(3)),
    lambda store: store.settle(FINAL, TALK, lambda row: replace(row, updated=4.0)),
    lambda store: store.set_draft(TALK.id, "draft"),
    lambda store: store.queue.put(QueuedRow("1", TALK.id, "later", "", 5.0)),
    lambda store: store.checkpoint(),
    lambda store: store.save_prompt(SavedPrompt("name", "text")),
)


def opened(folder: Path) -> Store:
    return Store.open(folder, clock=lambda: 0.0)


def converse(folder: Path, refused: Callable[[], Path]) -> None:
    """A conversation in a new store. After an error `refused` says in which folder the same step is done again."""
    try:
        store = opened(folder)
    except StoreError:
        store = opened(folder := refused())
    for step in STEPS:
        try:
            step(store)
        except StoreError:
            if (there := refused()) != folder:
                before, folder, store = store, there, opened(there)
                before.close()
            step(store)
    store.close()


def check_whole(folder: Path) -> str:
    """What else it holds, when what was said is there, once, and kvchat has nothing to tell about the database."""
    store = opened(folder)
    assert store.notices == [] and quarantined(folder) == []
    assert [one.text for one in store.tree(TALK.id)] == [SYSTEM.text, QUESTION.text, FINAL.text]
    assert [hit.node for hit in store.search("question")] == [QUESTION.id]
    rest = repr((store.conversations(), store.drafts(), store.queue.of(TALK.id), store.prompts()))
    store.close()
    sound_content(folder)
    return rest


def broken(what: str) -> None:
    kind, code = {
        "open": (apsw.CantOpenError, apsw.SQLITE_CANTOPEN),
        "read": (apsw.IOError, apsw.SQLITE_IOERR_READ),
        "write": (apsw.IOError, apsw.SQLITE_IOERR_WRITE),
        "truncate": (apsw.IOError, apsw.SQLITE_IOERR_TRUNCATE),
        "sync": (apsw.IOError, apsw.SQLITE_IOERR_FSYNC),
        "delete": (apsw.IOError, apsw.SQLITE_IOERR_DELETE),
    }[what]
    raise fault(kind, code)


def full(what: str) -> None:
    if what == "write":
        raise fault(apsw.FullError, apsw.SQLITE_FULL)


def short(what: str) -> int | None:
    return 700 if what == "write" else None


class Disk:
    """A disk that fails at one call, or (`lasting`) from then until somebody was told."""

    def __init__(self, how: Callable[[str], int | None], at: int, lasting: bool) -> None:
        self.how, self.at, self.lasting = how, at, lasting
        self.calls, self._fails = 0, False

    def tell(self, what: str, path: str, *more: object) -> int | None:
        self.calls += 1
        if self.calls == self.at:
            self._fails = self.lasting
        return self.how(what) if self._fails or self.calls == self.at else None

    def mend(self) -> None:
        self._fails = False


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # faults that SQLite does not pass on
@pytest.mark.parametrize(
    ("how", "lasting", "killed"),
    [
        pytest.param(broken, False, False, id="broken once"),
        pytest.param(broken, True, False, id="broken"),
        pytest.param(broken, True, True, id="broken and killed"),
        pytest.param(full, True, False, id="full"),
        pytest.param(short, True, False, id="short"),
        pytest.param(short, False, True, id="short once and killed"),
    ],
)
def test_a_fault_at_any_call_loses_nothing_and_the_same_again_is_stored_once(tmp_path, how, lasting, killed):
    there, later = tmp_path / "there", tmp_path / "later"

    def refused() -> Path:
        disk.mend()
        return shutil.copytree(there, later) if killed else there

    disk = Disk(how, 0, lasting)
    with on_disk(disk.tell):
        converse(tmp_path / "whole", refused)
    expected = check_whole(tmp_path / "whole")
    assert disk.calls > 300
    for at in range(1, disk.calls + 1):
        disk = Disk(how, at, lasting)
        with on_disk(disk.tell):
            converse(there, refused)
        assert check_whole(later if later.exists() else there) == expected, f"{at=}"
        shutil.rmtree(there)
        shutil.rmtree(later, ignore_errors=True)


@pytest.mark.process
def test_files_that_may_not_grow_beyond_any_size_lose_nothing(tmp_path):
    import resource

    def converse_within(limit: int, say: Callable[[str], None]) -> None:
        def refused() -> Path:
            say("refused")
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            return tmp_path / str(limit)

        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        converse(tmp_path / str(limit), refused)

    contents = set()
    refusals = []
    for limit in range(0, 500_000, 5_000):
        child = fork(lambda say, limit=limit: converse_within(limit, say))
        refusals.append(child.lines())
        assert child.wait() == 0
        contents.add(check_whole(tmp_path / str(limit)))
    assert len(contents) == 1 and refusals[0] == ["refused"] and refusals[-1] == []
