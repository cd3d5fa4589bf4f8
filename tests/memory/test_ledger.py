"""Every message is at every moment in exactly one place: pending, or covered by one extraction."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ledger_kit import (
    STAMP,
    begin,
    capture,
    check_places,
    extract,
    extract_all,
    fact,
    path,
    reading,
    waiting,
)
from msgspec.structs import replace

from kvchat.memory.entry import Act, Change, Status
from kvchat.memory.ledger import EMPTY, ExtractionLedger, ExtractionRun
from kvchat.memory.state import MemoryState, StaleChange
from kvchat.prompt import branching, compaction
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, Role, node, system_message
from kvchat.prompt.message import State as MessageState
from kvchat.store import Store
from whole_rows import add_nodes, put_row


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(params=["on-disk", "in-memory"])
def store(request: pytest.FixtureRequest, folder: Path) -> Iterator[Store]:
    opened = Store.open(folder if request.param == "on-disk" else None)
    yield opened
    opened.close()


@pytest.fixture
def disk(folder: Path) -> Iterator[Store]:
    opened = Store.open(folder)
    yield opened
    opened.close()


def run_of(talk: Conversation, **values: object) -> ExtractionRun:
    return ExtractionRun("c" * 32, talk.id, STAMP, **values)  # type: ignore[arg-type]


def grown(store: Store, talk: Conversation, branch: branching.Branch) -> None:
    """Take a branch into use, as an act of the person does."""
    add_nodes(store, replace(store.conversation(talk.id), head=branch.head), branch.nodes)


# What is pending


def test_questions_and_answers_wait_until_they_are_covered(store):
    talk = begin(store)
    assert waiting(store, talk.id) == [] and ExtractionLedger(store.database).behind() == []
    capture(store, talk.id, None, ["q1", "a1", "q2", "a2"])
    assert waiting(store, talk.id) == ["q1", "a1", "q2", "a2"]
    assert ExtractionLedger(store.database).behind() == [(talk.id, 4)]
    assert len(extract(store, talk.id, most=3)) == 3
    assert waiting(store, talk.id) == ["a2"] and ExtractionLedger(store.database).behind() == [(talk.id, 1)]
    assert len(extract(store, talk.id)) == 1
    assert waiting(store, talk.id) == [] and ExtractionLedger(store.database).behind() == []
    assert [run.noted for run in ExtractionLedger(store.database).runs()] == [1, 3]


def test_an_answer_waits_only_once_it_is_final(store):
    talk = begin(store)
    above = path(store, talk.id)[-1]
    question = node(above, Message(Role.USER, "q"), STAMP)
    answer = node(question, Message(Role.ASSISTANT, ""), STAMP, state=MessageState.STREAMING)
    add_nodes(store, replace(talk, head=answer.id), [question, answer])
    assert waiting(store, talk.id) == ["q"]
    assert ExtractionLedger(store.database).behind() == [(talk.id, 1)]
    assert not ExtractionLedger(store.database).cover(run_of(talk), [question.id, answer.id], [])
    seen = path(store, talk.id)
    store.settle(node(question, Message(Role.ASSISTANT, "a"), STAMP, id=answer.id, state=MessageState.CANCELLED))
    assert [one.text for one in ExtractionLedger(store.database).pending(seen)] == [
        "q"
    ]  # that view of it has no text yet
    assert waiting(store, talk.id) == ["q", "a"]


def test_messages_with_equal_text_and_stamp_one_after_the_other_are_different_messages(store):
    talk = begin(store)
    ids = capture(store, talk.id, None, ["again"] * 6)
    assert extract(store, talk.id, most=1) == ids[:1]
    assert waiting(store, talk.id) == ["again"] * 5
    assert ExtractionLedger(store.database).cover(run_of(talk), [ids[3]], [])
    assert extract(store, talk.id) == [ids[1], ids[2], ids[4], ids[5]]


def test_equal_messages_of_different_conversations_are_different_messages(store):
    talks = [begin(store) for _ in range(3)]
    for talk in talks:
        capture(store, talk.id, None, ["the same", "yes"])
    extract(store, talks[1].id)
    assert [waiting(store, talk.id) for talk in talks] == [["the same", "yes"], [], ["the same", "yes"]]


def test_behind_leaves_out_the_trash_and_where_memory_is_off(store):
    kept, trashed, off = begin(store), begin(store), begin(store, memory=False)
    for talk in (kept, trashed, off):
        capture(store, talk.id, None, ["q", "a"])
    put_row(store, replace(store.conversation(trashed.id), trashed=STAMP))
    assert ExtractionLedger(store.database).behind() == [(kept.id, 2)]
    assert waiting(store, off.id) == ["q", "a"]
    put_row(store, replace(store.conversation(trashed.id), trashed=None))
    put_row(store, replace(store.conversation(off.id), memory=True))
    assert {id for id, _ in ExtractionLedger(store.database).behind()} == {kept.id, trashed.id, off.id}


def test_behind_counts_the_branch_in_use(store):
    talk = begin(store)
    question, *_ = capture(store, talk.id, None, ["q", "first answer"])
    capture(store, talk.id, question, ["second answer", "q2"])
    assert ExtractionLedger(store.database).behind() == [(talk.id, 3)]
    extract(store, talk.id)
    assert ExtractionLedger(store.database).behind() == []
    first = next(one for one in store.tree(talk.id) if one.text == "first answer")
    put_row(store, replace(store.conversation(talk.id), head=first.id))
    assert ExtractionLedger(store.database).behind() == [(talk.id, 1)]
    assert waiting(store, talk.id) == ["first answer"]


def test_behind_counts_the_branches_that_other_windows_go_on_with(store):
    """What a window said on a branch of its own waits though the head stands elsewhere; what the person left does not."""
    talk = begin(store)
    capture(store, talk.id, None, ["q", "a"])
    start = store.conversation(talk.id).head
    mine, theirs = (
        capture(store, talk.id, start, [f"{who} q", f"{who} a"], shown=shown)[-1]
        for who, shown in (("mine", start), ("theirs", start))
    )
    assert store.conversation(talk.id).head == theirs
    assert ExtractionLedger(store.database).behind() == [(talk.id, 6)]
    assert ExtractionLedger(store.database).branches(talk.id) == [theirs, mine]
    mine = capture(store, talk.id, mine, ["mine q2"], shown=mine)[-1]
    assert ExtractionLedger(store.database).branches(talk.id) == [mine, theirs]
    assert ExtractionLedger(store.database).behind() == [(talk.id, 7)]
    capture(store, talk.id, start, ["instead"], shown=mine)  # an edit: that branch is left
    assert [one.text for one in path(store, talk.id)[1:]] == ["q", "a", "instead"]
    assert ExtractionLedger(store.database).behind() == [(talk.id, 5)]
    extract(store, talk.id)
    assert ExtractionLedger(store.database).behind() == [(talk.id, 2)]
    extract(store, talk.id, theirs)
    assert ExtractionLedger(store.database).behind() == []


# Copies


def three_turns(store: Store) -> Conversation:
    talk = begin(store)
    for turn in range(3):
        capture(store, talk.id, None, [f"q{turn}", f"a{turn}"], stamp=STAMP + turn)
    return talk


def test_a_deleted_turn_makes_nothing_pending_anew(store):
    talk = three_turns(store)
    first = path(store, talk.id)[1]
    extract(store, talk.id, most=5)
    grown(store, talk, branching.without_turn(store.tree(talk.id), store.conversation(talk.id).head, first.id))
    assert [one.text for one in path(store, talk.id)[1:]] == ["q1", "a1", "q2", "a2"]
    assert waiting(store, talk.id) == ["a2"] and ExtractionLedger(store.database).behind() == [(talk.id, 1)]
    copies = [one.id for one in path(store, talk.id)[1:]]
    assert not ExtractionLedger(store.database).cover(run_of(talk), copies, [])
    assert extract(store, talk.id) == copies[3:]


def test_what_is_covered_as_a_copy_is_covered_on_the_old_branch_too(store):
    talk = three_turns(store)
    old = store.conversation(talk.id)
    first = path(store, talk.id)[1]
    grown(store, talk, branching.without_turn(store.tree(talk.id), old.head, first.id))
    assert len(extract(store, talk.id)) == 4
    put_row(store, old)
    assert waiting(store, talk.id) == ["q0", "a0"]


def test_another_system_message_makes_nothing_pending_anew(store):
    talk = three_turns(store)
    extract(store, talk.id)
    head = store.conversation(talk.id).head
    grown(store, talk, branching.under_system(store.tree(talk.id), head, system_message("Rhyme."), 0.0))
    assert waiting(store, talk.id) == [] and ExtractionLedger(store.database).behind() == []


def test_of_equal_messages_as_many_copies_are_covered_as_originals(store):
    talk = begin(store)
    capture(store, talk.id, None, ["hello", "hi"], stamp=STAMP - 1)
    ids = capture(store, talk.id, None, ["again"] * 4)
    assert ExtractionLedger(store.database).cover(run_of(talk), ids[:2], [])
    hello = path(store, talk.id)[1]
    grown(store, talk, branching.without_turn(store.tree(talk.id), store.conversation(talk.id).head, hello.id))
    capture(store, talk.id, None, ["again"] * 2)
    assert waiting(store, talk.id) == ["again"] * 4
    assert len(extract(store, talk.id)) == 4 and waiting(store, talk.id) == []


def test_after_a_compaction_only_the_question_with_the_summary_is_new(store):
    talk = three_turns(store)
    extract(store, talk.id)
    head = store.conversation(talk.id).head
    grown(store, talk, compaction.compaction(store.tree(talk.id), head, "Before.", 2, STAMP + 9))
    assert waiting(store, talk.id) == ["q1"]
    grown(
        store,
        talk,
        branching.without_turn(store.tree(talk.id), store.conversation(talk.id).head, path(store, talk.id)[1].id),
    )
    assert waiting(store, talk.id) == []  # the summary went to a copy of q2


def test_a_fork_shares_what_is_covered_and_what_is_copied_in_it(store):
    talk = three_turns(store)
    extract(store, talk.id, most=4)
    at = path(store, talk.id)[-1]
    fork = replace(store.conversation(talk.id), id="f" * 32, forked_from=talk.id)
    store.create(fork, path(store, talk.id)[0])
    assert waiting(store, fork.id) == ["q2", "a2"]
    assert sorted(ExtractionLedger(store.database).behind()) == sorted([(talk.id, 2), (fork.id, 2)])
    first = path(store, fork.id)[1]
    grown(store, fork, branching.without_turn(store.tree(fork.id), at.id, first.id))
    capture(store, fork.id, None, ["q3"])
    assert waiting(store, fork.id) == ["q2", "a2", "q3"]
    extract(store, fork.id)
    assert waiting(store, talk.id) == [] and ExtractionLedger(store.database).behind() == []


def test_a_fork_keeps_what_was_covered_when_its_origin_is_gone_for_good(store):
    talk = three_turns(store)
    extract(store, talk.id)
    fork = replace(store.conversation(talk.id), id="f" * 32, forked_from=talk.id)
    store.create(fork, path(store, talk.id)[0])
    put_row(store, replace(store.conversation(talk.id), trashed=1.0))
    store.purge_trash(2.0)
    assert waiting(store, fork.id) == []
    first = path(store, fork.id)[1]
    grown(store, fork, branching.without_turn(store.tree(fork.id), fork.head, first.id))
    assert waiting(store, fork.id) == [] and ExtractionLedger(store.database).behind() == []


def test_a_fork_of_a_fork_that_is_gone_still_finds_what_waits_at_its_beginning(store):
    talk = begin(store)
    capture(store, talk.id, None, ["q", "a"])
    fork = replace(store.conversation(talk.id), id="e" * 32, forked_from=talk.id)
    store.create(fork, path(store, talk.id)[0])
    again = replace(fork, id="f" * 32, forked_from=fork.id)
    store.create(again, path(store, talk.id)[0])
    put_row(store, replace(store.conversation(talk.id), memory=False))
    assert ExtractionLedger(store.database).behind() == [(fork.id, 2), (again.id, 2)]
    put_row(store, replace(fork, trashed=1.0))
    store.purge_trash(2.0)
    assert ExtractionLedger(store.database).behind() == [(again.id, 2)]


def many(store: Store, count: int) -> list[str]:
    """Conversations with two messages each that wait, a system prompt of its own for each; their ids, oldest first."""
    ids = []
    for number in range(count):
        system = node(None, system_message(f"Be number {number}."), STAMP)
        talk = store.create(Conversation(f"{number:032x}", system.id, STAMP, STAMP), system)
        capture(store, talk.id, None, ["q", "a"], STAMP + number)
        ids.append(talk.id)
    return ids


def test_some_of_the_conversations_that_are_behind(store, monkeypatch):
    ids = many(store, 30)
    ledger = ExtractionLedger(store.database)
    assert [id for id, _ in ledger.behind()] == ids
    assert [id for id, _ in ledger.behind(5)] == ids[:5] and ledger.behind(100) == ledger.behind()
    assert [id for id, _ in ledger.behind(5, {ids[0], ids[3]})] == [ids[1], ids[2], *ids[4:7]]
    monkeypatch.setattr("kvchat.memory.ledger.SAMPLE", 8)  # more wait than are looked at first
    few = ledger.behind(3)
    assert len(few) == 3 and set(few) <= {(id, 2) for id in ids}
    assert ledger.behind(100) == ledger.behind() and len(ledger.behind(5, ids[:26])) == 4


def test_the_first_of_them_are_found_no_later_when_more_wait(store, monkeypatch):
    monkeypatch.setattr("kvchat.memory.ledger.SAMPLE", 40)
    steps = []

    def count() -> int:
        done = 0

        def step() -> int:
            nonlocal done
            done += 1
            return 0

        with store.database.reading() as connection:
            connection.set_progress_handler(step, 100)
            assert len(ExtractionLedger(store.database).behind(10)) == 10
            connection.set_progress_handler(None, 0)
        return done

    for more in (0, 1, 2, 3):
        for number in range(60):
            talk = begin(store)
            capture(store, talk.id, None, [f"q {more} {number}", "a"] * 5)
        steps.append(count())
    assert steps[3] < 2 * steps[0]


# Covering


def test_a_message_is_covered_once(store):
    talk = begin(store)
    ids = capture(store, talk.id, None, ["q1", "a1", "q2"])
    ledger = ExtractionLedger(store.database)
    run = run_of(talk, kind=EMPTY, model="small", session="s", refused='[["x","why"]]')
    assert ledger.cover(run, ids[:2], [])
    for again in (ids[:2], ids[1:], ids[:1], [*ids[2:], "0" * 32], []):
        late = fact("late")
        assert not ledger.cover(replace(run, id="d" * 32), again, [late])
        assert MemoryState(store.database).entries() == [] and ledger.runs() == [run]
    assert ledger.cover(replace(run, id="d" * 32), [ids[2], ids[2]], [fact("in time")])
    assert [entry.text for entry in MemoryState(store.database).entries()] == ["in time"]
    assert ledger.runs(talk.id, limit=1) == [replace(run, id="d" * 32)] and ledger.runs("other") == []


def test_a_system_message_and_what_was_there_before_memory_are_never_covered(disk, folder):
    talk = begin(disk)
    ids = capture(disk, talk.id, None, ["old", "old answer"])
    system = path(disk, talk.id)[0].id
    disk.set_setting("store.memory_since", "1000")
    ledger = ExtractionLedger(disk.database)
    assert waiting(disk, talk.id) == [] and ledger.behind() == []
    assert not ledger.cover(run_of(talk), ids, [])
    disk.set_setting("store.memory_since", None)
    assert not ledger.cover(run_of(talk), [system, ids[0]], [])
    assert waiting(disk, talk.id) == ["old", "old answer"]


def test_messages_of_two_branches_are_refused(store):
    talk = begin(store)
    question, one = capture(store, talk.id, None, ["q", "one"])
    (two,) = capture(store, talk.id, question, ["two"])
    with pytest.raises(ValueError, match="not on one branch"):
        ExtractionLedger(store.database).cover(run_of(talk), [question, one, two], [])
    assert ExtractionLedger(store.database).runs() == []


def test_an_extraction_with_a_stale_change_stores_nothing(store):
    talk = begin(store)
    ids = capture(store, talk.id, None, ["q", "a"])
    state, ledger = MemoryState(store.database), ExtractionLedger(store.database)
    known = fact("Lives in Bern.")
    state.apply([known])
    moved = replace(known.after, text="Lives in Basel.")
    state.apply([Change(Act.EDITED, known.after, moved, STAMP)])
    corrected = Change(Act.CORRECTED, known.after, replace(known.after, status=Status.SUPERSEDED), STAMP)
    with pytest.raises(StaleChange):
        ledger.cover(run_of(talk), ids, [fact("Has a cat."), corrected])
    assert state.entries() == [moved] and ledger.runs() == [] and waiting(store, talk.id) == ["q", "a"]
    again = replace(corrected, before=moved, after=replace(moved, status=Status.SUPERSEDED))
    assert ledger.cover(run_of(talk), ids, [fact("Has a cat."), again])
    assert [(entry.text, entry.status) for entry in state.entries()] == [
        ("Has a cat.", Status.LIVE),
        ("Lives in Basel.", Status.SUPERSEDED),
    ]


def test_what_an_extraction_changed_is_found_by_its_conversation(store):
    talk = begin(store)
    ids = capture(store, talk.id, None, ["q", "a"])
    state = MemoryState(store.database)
    known = fact("Lives in Bern.", "e" * 32)
    state.apply([replace(known, session="before")])
    corrected = Change(Act.CORRECTED, known.after, replace(known.after, status=Status.SUPERSEDED), STAMP, "now")
    ExtractionLedger(store.database).cover(run_of(talk), ids, [corrected])
    assert [change.act for change in state.changes(conversation=talk.id)] == [Act.CORRECTED]
    assert [change.act for change in state.changes(conversation="e" * 32)] == [Act.NOTED]
    assert state.last_session() == "now"


def test_a_conversation_gone_for_good_takes_its_refused_texts_with_it_and_leaves_its_facts(store):
    talk, other = begin(store), begin(store)
    ids = capture(store, talk.id, None, ["q", "a"])
    others = capture(store, other.id, None, ["q", "a"])
    ledger = ExtractionLedger(store.database)
    run = run_of(talk, refused='[["the key is 123","a secret"]]')
    ledger.cover(run, ids, [fact("Kept.")])
    ledger.cover(replace(run, id="d" * 32, conversation=other.id), others, [])
    put_row(store, replace(store.conversation(talk.id), trashed=1.0))
    store.purge_trash(2.0)
    assert [one.refused for one in ledger.runs()] == [run.refused, "[]"]
    assert [entry.text for entry in MemoryState(store.database).entries()] == ["Kept."]
    assert not ledger.cover(replace(run, id="e" * 32), ids, [])
    assert store.database.row("SELECT count(*) FROM covered") == (2,)


# Many at once


def work(store: Store, id: str, root: str | None, name: str, count: int, seed: int) -> None:
    """Capture messages, below what others say meanwhile too, and go through the first few of what waits each time."""
    chance = random.Random(seed)
    for number in range(count):
        capture(store, id, chance.choice((root, None)), [f"{name}.{number}"])
        leaf = chance.choice(store.tree(id).leaves())
        extract(store, id, leaf.id, most=chance.randrange(4))


CROWDS = [(4, 3), (2, 50)]


@pytest.mark.parametrize(("workers", "count"), CROWDS)
def test_threads_that_capture_and_extract_at_once_lose_and_double_nothing(disk, workers, count):
    talk = begin(disk)
    root = capture(disk, talk.id, None, ["q", "a"])[-1]
    gate = threading.Barrier(workers)

    def begin_work(number: int) -> None:
        gate.wait()
        work(disk, talk.id, root, f"worker {number}", count, seed=number)

    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(begin_work, range(workers)))
    covered, pending = check_places(disk, talk.id)
    assert len(covered) + len(pending) == workers * count + 2
    extract_all(disk, talk.id)
    covered, pending = check_places(disk, talk.id)
    assert (len(covered), pending) == (workers * count + 2, set())


@pytest.mark.process
@pytest.mark.parametrize(("workers", "count"), CROWDS)
def test_processes_that_capture_and_extract_at_once_lose_and_double_nothing(folder, workers, count):
    from forked import fork

    store = Store.open(folder)
    talk = begin(store)
    root = capture(store, talk.id, None, ["q", "a"])[-1]
    store.close()

    def begin_work(number: int) -> None:
        own = Store.open(folder)
        work(own, talk.id, root, f"worker {number}", count, seed=number)
        own.close()

    children = [fork(lambda say, number=number: begin_work(number)) for number in range(workers)]
    assert [(child.lines(), child.wait()) for child in children] == [([], 0)] * workers
    store = Store.open(folder)
    covered, pending = check_places(store, talk.id)
    assert len(covered) + len(pending) == workers * count + 2
    extract_all(store, talk.id)
    covered, pending = check_places(store, talk.id)
    assert (len(covered), pending) == (workers * count + 2, set())
    store.close()


@pytest.mark.process
@pytest.mark.parametrize("seed", range(4))
def test_of_many_extractors_of_the_same_messages_one_wins(folder, seed):
    """All of them saw the same as pending before any of them was done."""
    from forked import fork

    store = Store.open(folder)
    talk = begin(store)
    ids = capture(store, talk.id, None, [str(number) for number in range(10)])
    store.close()
    ready, go = os.pipe()

    def race(number: int, say) -> None:
        own = Store.open(folder)
        ledger = ExtractionLedger(own.database)
        wanted = [one.id for one in ledger.pending(path(own, talk.id))][: 3 + (number + seed) % 6]
        changes = [fact(f"fact of {one}") for one in wanted]
        os.close(go)
        say("ready")
        os.read(ready, 1)
        run = replace(run_of(talk, noted=len(wanted)), id=f"{number:032}")
        say(str(ledger.cover(run, wanted, changes)))
        own.close()

    children = [fork(lambda say, number=number: race(number, say)) for number in range(4)]
    assert [child.said.readline() for child in children] == [b"ready\n"] * 4
    os.close(go)
    outcomes = [child.lines() for child in children]
    assert [child.wait() for child in children] == [0] * 4
    os.close(ready)
    assert sorted(outcomes) == [["False"]] * 3 + [["True"]]
    store = Store.open(folder)
    covered, pending = check_places(store, talk.id)
    assert len(covered) == 3 + (outcomes.index(["True"]) + seed) % 6 and covered | pending == set(ids)
    store.close()


@pytest.mark.parametrize("hung", range(3))
def test_a_conversation_that_hangs_holds_no_other_one_up(disk, hung):
    talks = [begin(disk) for _ in range(3)]
    for number, talk in enumerate(talks):
        capture(disk, talk.id, None, [f"{number}.{i}" for i in range(6)])
        disk.jobs.put("extract", talk.id, STAMP)
    at_work, released = threading.Event(), threading.Event()

    def run(number: int) -> None:
        """What the queue does for one conversation; the model of one answers only when it is released."""
        id = talks[number].id
        assert disk.jobs.claim("extract", id)
        if number == hung:
            at_work.set()
            released.wait()
        while extract(disk, id, most=2):
            pass
        disk.jobs.done("extract", id)

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(run, hung)
        at_work.wait()
        try:
            for other in [threads.submit(run, number) for number in range(3) if number != hung]:
                other.result()
            assert [(job.subject, job.state.value) for job in disk.jobs.all()] == [(talks[hung].id, "running")]
            assert ExtractionLedger(disk.database).behind() == [(talks[hung].id, 6)]
            capture(disk, talks[hung].id, None, ["said meanwhile"])
        finally:
            released.set()
        first.result()
    assert disk.jobs.all() == [] and ExtractionLedger(disk.database).behind() == []
    assert [len(check_places(disk, talk.id)[0]) for talk in talks] == [7 if i == hung else 6 for i in range(3)]


KILLS = 100
ACTS = ("captured", "covered", "moved")


def two_rounds(folder: Path, at: str, killed_after: int | None, say) -> None:
    """Capture, cover and move, in a new conversation, twice; each is said once it is done. After so
    many steps of SQLite's machine while it does `at`, the process kills itself; else it says how many there were."""
    store = Store.open(folder)
    state = MemoryState(store.database)
    talk = begin(store)
    steps = 0
    doing = ""

    def step() -> int:
        nonlocal steps
        if doing == at:
            if steps == killed_after:
                os.kill(os.getpid(), signal.SIGKILL)
            steps += 1
        return 0  # go on

    def move() -> list[int]:
        entry = state.changes(1)[0].after
        return state.apply([Change(Act.MOVED, entry, replace(entry, page=f"{entry.page}+"), STAMP)])

    texts = [f"said in {talk.id}"] * 3
    acts = (lambda: capture(store, talk.id, None, texts), lambda: extract(store, talk.id, most=2) or [], move)
    with store.database.reading() as connection:
        connection.set_progress_handler(step, 1)
    for doing, act in zip(ACTS * 2, acts * 2, strict=True):
        say(" ".join([doing, *map(str, act())]))
    say(f"steps {steps}")


@pytest.mark.process
def test_a_kvchat_killed_at_any_moment_loses_and_doubles_nothing(folder):
    """What it said it did is there once, and nothing is half there."""
    from forked import fork

    Store.open(folder).close()
    chance = random.Random(5)
    said: dict[str, set[str]] = {word: set() for word in ACTS}
    for at in ACTS:
        unharmed = fork(lambda say, at=at: two_rounds(folder, at, None, say))
        steps = int(unharmed.lines()[-1].split()[1])
        assert unharmed.wait() == 0
        for _ in range(KILLS // len(ACTS)):
            killed_after = chance.randrange(steps)
            child = fork(lambda say, at=at, killed_after=killed_after: two_rounds(folder, at, killed_after, say))
            lines = child.lines()
            assert child.wait() == -signal.SIGKILL
            for word, *rest in map(str.split, lines):
                said[word].update(rest)
    assert min(map(len, said.values())) >= KILLS / 4
    store = Store.open(folder)
    state = MemoryState(store.database)
    history = state.changes(1_000_000)
    talks = [talk.id for talk in store.conversations()]
    places = [check_places(store, id) for id in talks]
    covered = set[str]().union(*(covered for covered, _ in places))
    pending = set[str]().union(*(pending for _, pending in places))
    assert said["captured"] <= covered | pending and said["covered"] <= covered
    assert said["moved"] <= {str(change.seq) for change in history if change.act is Act.MOVED}
    assert {entry.id: entry for entry in state.entries()} == {one.after.id: one.after for one in reversed(history)}
    with reading(store) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",)
    for id in talks:
        extract_all(store, id)
        assert check_places(store, id)[1] == set()
    store.close()
