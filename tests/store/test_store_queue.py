"""The queue in the store: order, what leaves it, and what survives damage and an upgrade."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kvchat.prompt.branching import asked
from kvchat.prompt.message import new_id
from kvchat.store import NotQueued, Store
from kvchat.store.queue import QueuedRow


def row(conversation, text, place=None):
    return QueuedRow(new_id(), conversation, text, "{}", 1.5, place)


def waiting(store, conversation):
    return [one.text for one in store.queue.of(conversation)]


def test_they_stand_in_their_order_and_change_places(folder, new_talk):
    store = Store.open(folder)
    here, there = new_talk(store).id, new_talk(store).id
    rows = [row(here, text) for text in "abc"]
    for one in rows:
        store.queue.put(one)
        store.queue.put(one)  # a write that is tried again
    store.queue.put(row(there, "else"))
    store.queue.put(row(here, "between", 0.5))
    assert waiting(store, here) == ["a", "between", "b", "c"]
    store.queue.move(rows[2].id, -1)
    store.queue.move(rows[0].id, -1)
    assert waiting(store, here) == ["a", "between", "c", "b"]
    assert store.queue.drop(rows[0].id) and not store.queue.drop(rows[0].id)
    assert waiting(store, here) == ["between", "c", "b"] and waiting(store, there) == ["else"]
    store.close()


def test_a_question_that_is_not_in_the_queue_any_more_is_not_stored(folder, new_talk):
    one, other = Store.open(folder), Store.open(folder)
    talk = new_talk(one)
    talk.say("first")
    queued = row(talk.id, "second")
    one.queue.put(queued)
    record = one.conversation(talk.id)

    def add(store):
        branch = asked(store.tree(talk.id), record.head, "second", (), talk_now)
        store.add(record, branch.nodes, lambda row: replace(row, head=branch.head), queued=queued.id)

    from datetime import UTC, datetime

    talk_now = datetime(2026, 11, 21, tzinfo=UTC)
    add(one)
    with pytest.raises(NotQueued):
        add(other)
    assert [node.text for node in one.tree(talk.id)].count("second") == 1 and waiting(other, talk.id) == []
    one.close()
    other.close()


def test_the_trash_takes_the_queue_along(folder, new_talk):
    store = Store.open(folder)
    talk = new_talk(store)
    store.queue.put(row(talk.id, "waits"))
    store.change(talk.record, lambda row: replace(row, trashed=5.0))
    store.purge_trash(6.0)
    assert waiting(store, talk.id) == []
    store.close()
