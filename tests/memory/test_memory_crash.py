"""A kvchat that is killed while it works on its memory."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from book_kit import Book, fact
from killing import forked, kill_at

from kvchat.memory.entry import Act, Entry, Kind, Status

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))
from forked import fork

KILLS = 100
Say = Callable[[str], None]


def told(entry: Entry) -> str:
    return json.dumps({"id": entry.id, "text": entry.text, "page": entry.page, "status": entry.status})


def work_until_killed(base: Path, run: int, say: Say) -> None:
    """All that changes a memory, over and over. What is to be done is said before, what came of it after."""
    chance = random.Random(run)
    book = Book(base, f"run {run}", time.time)
    for step in range(1_000_000):
        live = book.memories.entries()
        some = chance.choice(live) if len(live) > 6 else None
        match chance.choice(("extract", "extract", "add", "edit", "delete", "move", "correct", "undo", "rebuild")):
            case "extract":
                texts = [f"Owns the thing {run}.{step}.{part}" for part in range(chance.randint(1, 4))]
                say("try " + json.dumps(texts))
                facts = [fact(text, topic=chance.choice(("", "house", "garden"))) for text in texts]
                for entry in book.extract(*facts) or ():
                    say("is " + told(entry))
            case "correct" if some:
                text = f"Corrected thing {run}.{step}"
                say("try " + json.dumps([text, some.id]))
                for entry in book.extract(fact(text, replaces=some.id)) or ():
                    say("is " + told(entry))
                say("is " + told(book.memories.get(some.id)))
            case "add":
                text = f"Said the thing {run}.{step}"
                say("try " + json.dumps([text]))
                say("is " + told(book.memories.add(text)))
            case "edit" if some:
                text = f"Edited thing {run}.{step}"
                say("try " + json.dumps([text, some.id]))
                say("is " + told(book.memories.edit(some.id, text)))
            case "delete" if some:
                say("try " + json.dumps([some.id]))
                say("is " + told(book.memories.delete(some.id).after))
            case "move" if some:
                say("try " + json.dumps([some.id]))
                say("is " + told(book.memories.move(some.id, chance.choice(("attic", "cellar", "garden")))))
            case "undo":
                change = next((one for one in book.memories.log(1) if one.act in (Act.EDITED, Act.MOVED)), None)
                if change is not None:
                    say("try " + json.dumps([change.after.id]))
                    say("is " + told(book.memories.undo(change.seq).after))
            case "rebuild":
                book.memories.rebuild()
        say("done")


@pytest.mark.process
def test_a_killed_kvchat_loses_and_doubles_no_memory(tmp_path: Path) -> None:
    chance = random.Random(11)
    expected: dict[str, dict[str, str]] = {}
    in_flight = unfinished = 0
    for run in range(KILLS):
        child = fork(lambda say, run=run: work_until_killed(tmp_path, run, say))
        first = child.said.readline()
        time.sleep(chance.random() * 0.08)
        os.kill(child.pid, signal.SIGKILL)
        lines = [first.decode().strip(), *child.lines()]
        assert child.wait() == -signal.SIGKILL
        assert not [line for line in lines if line.startswith("FAILED")]

        trying: list[str] = []
        for line in lines:
            word, _, rest = line.partition(" ")
            if word == "try":
                trying = json.loads(rest)
            elif word == "is":
                entry = json.loads(rest)
                expected[entry["id"]] = entry
            else:
                trying = []
        in_flight += bool(trying)
        book = Book(tmp_path, f"after {run}", time.time)
        unfinished += book.memories.sync()
        book.check()
        there = {entry.id: entry for status in Status for entry in book.memories.entries(status)}
        for id, entry in there.items():
            known = expected.get(id)
            if known is None or (entry.text, entry.page, entry.status.value) != (
                known["text"],
                known["page"],
                known["status"],
            ):
                assert id in trying or entry.text in trying, (entry, known, trying)
        assert expected.keys() <= there.keys()
        texts = [entry.text for entry in there.values()]
        assert len(texts) == len(set(texts))
        expected = {id: json.loads(told(entry)) for id, entry in there.items()}
        whole_extractions(book)
        book.close()
    assert in_flight > KILLS / 4, "the kills came between the steps"
    assert unfinished > 0, "no kill came between the store and the files"


ACTS: dict[str, Callable[[Book, str], object]] = {
    "move": lambda book, id: book.memories.move(id, "cellar"),
    "edit": lambda book, id: book.memories.edit(id, "Said otherwise"),
    "delete": lambda book, id: book.memories.delete(id),
    "correct": lambda book, id: book.extract(fact("Corrected", replaces=id)),
    "correct on another page": lambda book, id: book.extract(fact("Corrected", Kind.PERSON, replaces=id)),
    "undo a move": lambda book, id: book.memories.undo(book.memories.log(1, entry=id)[0].seq),
}


@pytest.mark.process
@pytest.mark.parametrize("act", ACTS)
def test_a_kill_at_any_point_of_an_act_leaves_it_done_or_not_done(tmp_path: Path, act: str) -> None:
    book = Book(tmp_path / "before", clock=time.time)
    book.extract("Stays where it is", "Gives way")
    id = next(entry.id for entry in book.memories.entries() if entry.text == "Gives way")
    if act == "undo a move":
        book.memories.move(id, "attic")
    before = one_line(book)
    book.close()
    seen = set()
    for step in range(400):
        base = tmp_path / str(step)
        shutil.copytree(tmp_path / "before", base)

        def work(base: Path = base, step: int = step) -> None:
            book = Book(base, "killed", time.time)
            book.memories.sync()
            kill_at(step, lambda: ACTS[act](book, id))

        pid = forked(work)
        status = os.waitpid(pid, 0)[1]
        book = Book(base, "after", time.time)
        book.memories.sync()
        book.check()
        after = one_line(book)
        assert len(after) == (1 if act == "delete" and after != before else 2), (step, after)
        seen.add(after == before)
        book.close()
        if status == 0:
            break
    assert seen == {True, False} and 10 < step < 399


def one_line(book: Book) -> list[tuple[str, str]]:
    """The live memories, each with its page."""
    return sorted((entry.page, entry.text) for entry in book.memories.entries())


@pytest.mark.process
def test_three_kvchats_and_an_editor_at_once(tmp_path: Path) -> None:
    def work(say: Say) -> None:
        book = Book(tmp_path, f"kvchat {os.getpid()}", time.time)
        for step in range(12):
            new = book.extract(f"Owns the thing {os.getpid()}.{step}", "Everybody says this", "And this as well") or []
            entry = book.memories.add(f"Said {os.getpid()}.{step}")
            if step % 3 == 0:
                book.memories.delete(new[0].id)
            if step % 3 == 1:
                book.memories.edit(entry.id, f"Corrected {os.getpid()}.{step}")
        say("done")
        book.close()

    children = [fork(work) for _ in range(3)]
    book = Book(tmp_path, "editor", time.time)
    for step in range(12):
        book.write("topics/mine.md", "".join(f"- By hand {number}\n" for number in range(step % 5, step + 1)))
        book.memories.sync()
    assert [child.lines() for child in children] == [["done"]] * 3
    assert [child.wait() for child in children] == [0] * 3
    book.memories.sync()
    book.check()
    whole_extractions(book)
    expected = ["Everybody says this", "And this as well", *(f"By hand {number}" for number in range(1, 12))]
    for pid in (child.pid for child in children):
        expected += [f"Owns the thing {pid}.{step}" for step in range(12) if step % 3]
        expected += [f"{'Corrected' if step % 3 == 1 else 'Said'} {pid}.{step}" for step in range(12)]
    assert book.texts() == sorted(expected)
    book.close()


def whole_extractions(book: Book) -> None:
    """Each extraction stored what it noted, covered its messages, and is in the log once."""
    changes = book.memories.log(1 << 20)
    log = book.log()
    for run in book.memories.ledger.runs(limit=1 << 20):
        noted = [change for change in changes if change.act in (Act.NOTED, Act.PROPOSED) and change.at == run.created]
        assert len(noted) == run.noted > 0
        for change in noted:
            assert len(re.findall(rf"^- (Noted|Proposed, .*): {re.escape(change.after.text)}$", log, re.M)) == 1
    assert all(count % 4 == 0 for _, count in book.memories.ledger.behind())
