"""Collections, which of them a conversation searches, and where its passages are from: stored, upgraded, saved."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kvchat.prompt.branching import under_system, without_turn
from kvchat.prompt.compaction import compaction
from kvchat.prompt.context import NOTE, PASSAGE, ContextBlock
from kvchat.prompt.message import new_id, system_message
from kvchat.store import Store, StoreError
from kvchat.store.collections import StoredCollection
from whole_rows import add_nodes, put_row

SOURCE = ContextBlock(PASSAGE, "[1] handbook/guide.md:1-9", "Turn the key.", "docs/handbook/guide.md#1-9")


def test_a_collection_is_kept_with_its_folder_and_when_it_was_indexed(store):
    assert store.collections.all() == []
    store.collections.put("handbook", "/srv/handbook", 5.0)
    store.collections.put("notes", "/home/kim/notes", 6.0)
    store.collections.indexed("handbook", 7.5)
    assert store.collections.all() == [
        StoredCollection("handbook", "/srv/handbook", 5.0, 7.5),
        StoredCollection("notes", "/home/kim/notes", 6.0),
    ]
    store.collections.remove("handbook")
    store.collections.remove("nothing of that name")
    assert [one.name for one in store.collections.all()] == ["notes"]


def test_one_name_is_one_collection_whatever_the_case_of_its_letters(store):
    store.collections.put("Handbook", "/srv/handbook", 5.0)
    store.collections.indexed("handbook", 7.0)
    store.collections.put("handbook", "/srv/handbook", 8.0)
    assert store.collections.all() == [StoredCollection("Handbook", "/srv/handbook", 5.0, 7.0)]
    store.collections.put("HANDBOOK", "/srv/other", 9.0)
    assert store.collections.all() == [StoredCollection("Handbook", "/srv/other", 5.0)], "another folder: not indexed"
    store.collections.remove("handBOOK")
    assert store.collections.all() == []


def test_a_path_that_is_no_text_is_refused_with_a_sentence(store):
    with pytest.raises(StoreError, match="not valid text"):
        store.collections.put("odd", "/srv/\udcff", 5.0)
    assert store.collections.all() == []


def test_collections_are_there_after_the_next_start(folder):
    store = Store.open(folder)
    store.collections.put("notes", "/home/kim/Notizen – größer", 6.0)
    store.close()
    store = Store.open(folder)
    assert [one.root for one in store.collections.all()] == ["/home/kim/Notizen – größer"]
    store.close()


def test_a_store_in_memory_has_collections_too():
    store = Store.open(None)
    store.collections.put("notes", "/notes", 6.0)
    assert len(store.collections.all()) == 1
    store.close()


def test_which_collections_a_conversation_searches_is_stored(store, talk):
    found = store.conversation(talk.id)
    assert (found.collections, found.retrieval) == ((), "off")
    put_row(store, replace(talk.record, collections=("handbook", "notes-2"), retrieval="ask"))
    for found in (store.conversation(talk.id), store.conversations()[0]):
        assert (found.collections, found.retrieval) == (("handbook", "notes-2"), "ask")


def test_a_way_of_searching_that_is_not_known_is_off(store, talk):
    with store.database.write() as connection:
        connection.execute("UPDATE conversation SET retrieval = 'sometimes', collections = 'a//b/'")
    found = store.conversation(talk.id)
    assert (found.collections, found.retrieval) == (("a", "b"), "off")


def test_a_fork_searches_as_its_origin_does(store, talk):
    talk.record = replace(talk.record, collections=("handbook",), retrieval="always")
    talk.say("question", blocks=(SOURCE,))
    fork = replace(talk.record, id=new_id(), forked_from=talk.id)
    store.create(fork, talk.tip)
    found = store.conversation(fork.id)
    assert (found.collections, found.retrieval) == (("handbook",), "always")
    assert store.tree(fork.id).path(found.head)[1].message.blocks == (SOURCE,)


# Where a passage is from


def test_a_passage_keeps_where_it_is_from(store, talk):
    blocks = (ContextBlock("paste", "pasted", "text"), SOURCE)
    talk.say("question", blocks=blocks)
    assert store.tree(talk.id).path(talk.record.head)[1].message.blocks == blocks
    stored = store.database.row("SELECT blocks FROM node WHERE blocks IS NOT NULL")[0]
    assert stored.startswith('[["paste","pasted","text"],["passage",'), "no fourth value where there is nothing to say"


def test_where_a_passage_is_from_stays_when_turns_are_cut_moved_or_summed_up(store, talk):
    first = talk.say("first", blocks=(SOURCE,))
    other = replace(SOURCE, source="[2] handbook/b.md:3", text="Other.", ref="docs/handbook/b.md#3")
    talk.say("second", blocks=(other,))
    tree = store.tree(talk.id)
    head = talk.record.head
    cut = without_turn(tree, head, first.id)
    moved = under_system(tree, head, system_message("Be brief."), 9.0)
    short = compaction(tree, head, "What was said.", 1, 9.0)
    assert cut.nodes[0].message.blocks == (other,)
    assert [one.message.blocks for one in moved.nodes[1::2]] == [(SOURCE,), (other,)]
    for branch in (cut, moved, short):
        add_nodes(store, replace(talk.record, head=branch.head), branch.nodes)
        question = store.tree(talk.id).path(branch.head)[-2]
        assert question.message.blocks[-1] == other


def test_a_search_finds_a_passage_and_not_what_kvchat_says_of_it(store, talk):
    talk.say("question", blocks=(ContextBlock(NOTE, "kvchat", "The texts below are numbered."), SOURCE))
    assert [hit.snippet for hit in store.search("key")] == ["question Turn the \x02key\x03."]
    assert store.search("numbered") == []
