"""Memories change only by changes that start from what is stored, and every change is in the history."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_kit import STAMP, begin, capture, extract, fact
from msgspec.structs import replace

from kvchat.memory.entry import BY_HAND, Act, Change, Entry, Kind, Status
from kvchat.memory.state import MemoryState, StaleChange
from kvchat.prompt.wire import whole_characters
from kvchat.store import Store

any_text = st.text(st.characters(exclude_categories=()), max_size=40)
entries = st.builds(
    Entry,
    any_text.filter(bool),
    st.sampled_from(Kind),
    any_text,
    any_text,
    st.floats(0, 1e10),
    st.sampled_from(Status),
    st.none() | st.floats(0, 1),
    any_text,
    st.lists(any_text, max_size=3).map(tuple),
    any_text,
    any_text,
    st.booleans(),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture
def state(store: Store) -> MemoryState:
    return MemoryState(store.database)


def edited(entry: Entry, text: str, **values: object) -> Change:
    return replace(Change(Act.EDITED, entry, replace(entry, text=text), STAMP), **values)


def test_a_change_is_stored_with_what_was_before(state):
    noted = replace(fact("Likes tea."), why="said twice")
    (first,) = state.apply([noted])
    change = edited(noted.after, "Likes green tea.", at=STAMP + 1, session="later")
    (second,) = state.apply([change])
    assert state.entries() == [change.after] == [state.entry(noted.after.id)] and second > first
    assert state.changes() == [replace(change, seq=second), replace(noted, seq=first)]
    assert state.entry("nothing") is None


def test_what_was_called_proposed_is_pending_in_the_store_and_in_the_history_and_its_row_stays(store, state):
    noted = fact("Likes tea.")
    pending = replace(noted, after=replace(noted.after, status=Status.PENDING))
    state.apply([pending])
    with store.database.write() as connection:
        connection.execute("UPDATE entry SET status = 'proposed'")
        connection.execute("UPDATE change SET after = replace(after, 'pending', 'proposed')")
        assert connection.execute("SELECT 1 FROM change WHERE after LIKE '%proposed%'").fetchone()
    assert state.entries() == [pending.after] == [change.after for change in state.changes()]
    assert store.database.rows("SELECT status FROM entry") == [("proposed",)]
    state.apply([edited(pending.after, "Likes green tea.")])
    assert store.database.rows("SELECT status FROM entry") == [("pending",)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(entries, min_size=1, max_size=4, unique_by=lambda entry: whole_characters(entry.id)), any_text)
def test_any_entry_comes_back_as_it_was(given_entries, word):
    store = Store.open(None)
    state = MemoryState(store.database)
    state.apply([Change(Act.ADDED, None, entry, 1.0, word, word) for entry in given_entries])

    def whole(entry: Entry) -> Entry:
        text = {
            name: whole_characters(getattr(entry, name))
            for name in ("id", "text", "page", "conversation", "by", "superseded_by")
        }
        return replace(entry, nodes=tuple(map(whole_characters, entry.nodes)), **text)

    expected = {whole(entry).id: whole(entry) for entry in given_entries}
    assert {entry.id: entry for entry in state.entries()} == expected
    assert [change.after for change in reversed(state.changes())] == list(expected.values())
    assert {(change.session, change.why) for change in state.changes()} == {(whole_characters(word),) * 2}
    for entry in given_entries:
        state.apply([Change(Act.DELETED, entry, replace(entry, status=Status.DELETED), 2.0)])
    assert [entry.status for entry in state.entries()] == [Status.DELETED] * len(expected)
    store.close()


@pytest.mark.parametrize("before", ["nothing", "older", "other"])
def test_a_change_that_starts_from_what_is_no_longer_stored_is_refused_whole(state, before):
    noted = fact("Likes tea.")
    state.apply([noted])
    now = edited(noted.after, "Likes coffee.").after
    state.apply([edited(noted.after, now.text)])
    history = state.changes()
    stale = {"nothing": None, "older": noted.after, "other": replace(now, confidence=0.1)}[before]
    change = Change(Act.EDITED, stale, replace(now, text="Likes milk."), STAMP)
    with pytest.raises(StaleChange, match=rf"{now.id} was changed meanwhile") as raised:
        state.apply([fact("Has a dog."), change], undoes=[history[0].seq])
    assert raised.value.change == change
    assert state.entries() == [now] and state.changes() == history


def test_a_change_of_an_entry_that_does_not_exist_is_refused(state):
    with pytest.raises(StaleChange):
        state.apply([edited(fact("Likes tea.").after, "Likes coffee.")])
    assert state.entries() == [] and state.changes() == []


def test_changes_of_one_call_follow_each_other(state):
    noted = fact("one")
    changes = [noted]
    for text in ("two", "three"):
        changes.append(edited(changes[-1].after, text))
    seqs = state.apply(changes)
    assert [entry.text for entry in state.entries()] == ["three"]
    assert [change.seq for change in state.changes()] == seqs[::-1] == sorted(seqs, reverse=True)
    with pytest.raises(StaleChange):
        state.apply([edited(changes[-1].after, "four"), edited(changes[-1].after, "five")])
    assert [entry.text for entry in state.entries()] == ["three"]
    assert state.apply([]) == []


def test_of_many_who_change_an_entry_at_once_one_wins_each_time(state):
    noted = fact("0")
    state.apply([noted])
    gate = threading.Barrier(4)

    def change(number: int) -> int:
        """Count the entry's text up, from what is stored; how often that was refused."""
        gate.wait()
        refused = 0
        for _ in range(10):
            while True:
                entry = state.entry(noted.after.id)
                try:
                    state.apply([edited(entry, str(int(entry.text) + 1), session=str(number))])
                except StaleChange:
                    refused += 1
                    continue
                break
        return refused

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(change, range(4)))
    assert [entry.text for entry in state.entries()] == ["40"]
    assert [change.after.text for change in reversed(state.changes())] == [str(number) for number in range(41)]
    assert [len(state.changes(session=str(number))) for number in range(4)] == [10] * 4


@pytest.mark.process
def test_processes_that_change_an_entry_at_once_never_overwrite_each_other(store, state):
    from forked import fork

    noted = fact("0")
    state.apply([noted])
    folder = store.database.path.parent

    def change(say) -> None:
        own = Store.open(folder)
        mine = MemoryState(own.database)
        for _ in range(10):
            while True:
                entry = mine.entry(noted.after.id)
                try:
                    mine.apply([edited(entry, str(int(entry.text) + 1))])
                except StaleChange:
                    continue
                break
        own.close()

    children = [fork(change) for _ in range(3)]
    assert [(child.lines(), child.wait()) for child in children] == [([], 0)] * 3
    assert [change.after.text for change in reversed(state.changes())] == [str(number) for number in range(31)]


def test_what_cannot_be_written_is_not_stored(state):
    def full():
        raise ZeroDivisionError

    state.apply([fact("one")])
    with pytest.raises(ZeroDivisionError):
        state.apply([fact("two"), fact("three")], write=full)
    assert [change.after.text for change in state.changes()] == [entry.text for entry in state.entries()] == ["one"]


def test_what_undoes_a_change_marks_it_in_the_same_moment(state):
    noted = fact("one")
    (seq,) = state.apply([noted])
    undo = Change(Act.RESTORED, noted.after, replace(noted.after, status=Status.DELETED), STAMP)
    state.apply([undo], undoes=[seq])
    assert [(change.act, change.undone) for change in state.changes()] == [(Act.RESTORED, False), (Act.NOTED, True)]
    with pytest.raises(StaleChange):
        state.apply([undo], undoes=[seq])


def test_entries_of_all_states_are_given_newest_first(state):
    old = replace(fact("old").after, id="mabc00001", created=1.0)
    new = replace(fact("new").after, id="mabd00001", created=3.0, status=Status.PENDING)
    hand = replace(fact("hand").after, id="habc00001", created=2.0, by=BY_HAND, status=Status.SUPERSEDED)
    state.apply([Change(Act.ADDED, None, entry, 1.0) for entry in (old, new, hand)])
    assert state.entries() == [new, hand, old]


def test_the_history_is_found_by_run_conversation_entry_and_time(state):
    one, two = fact("one", "a" * 32), fact("two", "b" * 32)
    state.apply([replace(one, session="s1", at=1.0), replace(two, session="s2", at=2.0)])
    state.apply([edited(one.after, "uno", session="s2", at=3.0)])

    def texts(**values: object) -> list[str]:
        return [change.after.text for change in state.changes(**values)]

    assert texts() == ["uno", "two", "one"] and texts(limit=1) == ["uno"]
    assert texts(session="s2") == ["uno", "two"] and texts(conversation="a" * 32) == ["uno", "one"]
    assert texts(entry=two.after.id) == ["two"] and texts(since=2.0) == ["uno", "two"]
    assert texts(session="s2", conversation="a" * 32) == ["uno"] and texts(session="s3") == []


def test_the_last_session_is_that_of_the_newest_extraction(store, state):
    assert state.last_session() == ""
    state.apply([replace(fact("one"), session="first")])
    state.apply([replace(fact("two"), act=Act.ADDED, session="by the person")])
    assert state.last_session() == "first"
    talk = begin(store)
    capture(store, talk.id, None, ["q"])
    extract(store, talk.id)
    assert state.last_session() == "session"


def test_a_damaged_row_of_the_history_is_left_out(store, state):
    state.apply([fact("one"), fact("two"), fact("three")])
    with store.database.write() as connection:
        connection.execute("UPDATE change SET after = '[\"half' WHERE seq = 1")
        connection.execute("UPDATE change SET act = 'danced' WHERE seq = 2")
        connection.execute("UPDATE entry SET status = '?', kind = '?', nodes = '{' WHERE text = 'one'")
    assert [change.after.text for change in state.changes()] == ["three"]
    one = next(entry for entry in state.entries() if entry.text == "one")
    assert (one.status, one.kind, one.nodes) == (Status.PENDING, Kind.FACT, ())
