"""The token ids of an answer are stored with it."""

from __future__ import annotations

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
