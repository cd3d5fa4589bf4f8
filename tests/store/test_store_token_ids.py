"""The token ids of an answer are stored with it, and come out of a damaged file with it."""

from __future__ import annotations

from damaging import check_sound, open_damaged
from test_store_collections import OLD, old_database

from kvchat.cache.tokens import Tokens
from kvchat.prompt.message import Node, State, settled
from kvchat.prompt.token_ids import AnswerIds
from kvchat.store import Store
from whole_rows import settle_node

IDS = AnswerIds('["qwen 151936",{},false]', 7, Tokens([1, 2, 151_000]), Tokens(range(3000)))


def answered(store: Store, talk) -> Node:
    """A settled answer with ids, beside one without."""
    talk.say("one")
    streaming = talk.ask("And the sea?")
    question = store.tree(talk.id)[streaming.parent]
    answer = settled(streaming, question, "It is wide.", "Hm.", State.DONE, ids=IDS)
    settle_node(store, answer, talk.moved(answer))
    return answer


def test_they_come_back_with_the_answer(folder, new_talk):
    store = Store.open(folder)
    talk = new_talk(store)
    answer = answered(store, talk)
    store.close()
    store = Store.open(folder)
    tree = store.tree(talk.id)
    assert tree[answer.id] == answer and [node.ids for node in tree if node.id != answer.id] == [None] * 4
    store.close()


def test_they_are_saved_from_a_damaged_database(folder, new_talk):
    store = Store.open(folder)
    talk = new_talk(store)
    answer = answered(store, talk)
    store.close()
    path = folder / "kvchat.db"
    data = bytearray(path.read_bytes())
    data[:100] = b"\xff" * 100
    path.write_bytes(data)
    store, _ = open_damaged(path)
    assert store.tree(talk.id)[answer.id] == answer
    store.close()
    check_sound(folder)


def test_an_older_database_has_none(folder):
    old_database(folder, 12)
    store = Store.open(folder)
    assert {node.ids for node in store.tree(OLD)} == {None}
    store.close()
    check_sound(folder)
