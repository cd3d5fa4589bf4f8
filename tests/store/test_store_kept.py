"""Which states are kept: one row for a conversation, that goes with it, survives an upgrade and a damaged file."""

from __future__ import annotations

from msgspec.structs import replace

from kvchat.reports.kept import Keep


def digests(store, talk, tip):
    return tuple(node.digest.hex() for node in store.tree(talk.id).path(tip))


def test_the_last_word_counts_and_nothing_is_kept_of_what_is_not_there(store, talk) -> None:
    answer = talk.say("one")
    store.kept.put(Keep("0" * 32, "", 1.0))
    assert store.kept.all() == [] and store.kept.paths() == {}
    store.kept.put(Keep(talk.id, "", 1.0))
    store.kept.put(Keep(talk.id, answer.id, 2.0))
    assert store.kept.all() == [Keep(talk.id, answer.id, 2.0)]
    store.kept.remove(talk.id)
    store.kept.remove(talk.id)
    assert store.kept.all() == []


def test_the_path_follows_the_conversation_or_stays_with_its_message(store, talk, new_talk) -> None:
    first, other = talk.say("one"), new_talk(store, "Other")
    other.say("two")
    store.kept.put(Keep(talk.id, "", 1.0))
    store.kept.put(Keep(other.id, "", 1.0))
    assert store.kept.paths()[talk.id] == digests(store, talk, first.id)
    second = talk.say("three")
    assert store.kept.paths() == {
        talk.id: digests(store, talk, second.id),
        other.id: digests(store, other, other.tip.id),
    }
    store.kept.put(Keep(talk.id, first.id, 2.0))
    assert store.kept.paths()[talk.id] == digests(store, talk, first.id)


def test_it_outlives_the_trash_and_goes_when_that_is_emptied(store, talk) -> None:
    talk.say("one")
    store.kept.put(Keep(talk.id, "", 1.0))
    store.change(store.conversation(talk.id), lambda row: replace(row, trashed=5.0))
    store.purge_trash(5.0)
    assert [kept.id for kept in store.kept.all()] == [talk.id]
    store.purge_trash(6.0)
    assert store.kept.all() == []
