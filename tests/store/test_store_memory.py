"""What the store keeps of memory in its other tables."""

from __future__ import annotations

from msgspec.structs import replace

from whole_rows import put_row


def test_whether_a_conversation_has_memory_is_stored(store, talk):
    assert store.conversation(talk.id).memory
    put_row(store, replace(talk.record, memory=False))
    assert not store.conversation(talk.id).memory and [one.memory for one in store.conversations()] == [False]


def test_a_conversation_gone_for_good_takes_its_waiting_work_with_it(store, new_talk):
    gone, kept = new_talk(store), new_talk(store)
    for talk in (gone, kept):
        store.jobs.put("extract", talk.id, 1.0)
    store.jobs.put("consolidate", "", 1.0)
    put_row(store, replace(gone.record, trashed=1.0))
    assert len(store.jobs.all()) == 3
    store.purge_trash(2.0)
    assert sorted(job.subject for job in store.jobs.all()) == sorted(["", kept.id])
