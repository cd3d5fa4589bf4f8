"""Two stores on one file: what each writes stands on what is there by then."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kvchat.prompt.message import Message, Node, Role, State, node, system_message
from kvchat.store import ConversationDeleted, HeadMoved, Store, UnknownConversation, tips


@pytest.fixture
def other(folder, store):
    opened = Store.open(folder)
    yield opened
    opened.close()


def turn(above: Node, text: str, state: State = State.DONE) -> tuple[Node, Node]:
    question = node(above, Message(Role.USER, text), above.created + 1)
    answer = Message(Role.ASSISTANT, "" if state is State.STREAMING else f"to {text}")
    return question, node(question, answer, above.created + 2, state=state)


def grows(store, record, nodes, **options):
    return store.add(record, nodes, lambda row: replace(row, head=nodes[-1].id, turns=row.turns + 1), **options)


def test_only_the_fields_of_an_act_are_written(store, other, talk):
    talk.say("hello")
    known = store.conversation(talk.id)
    other.change(known, lambda row: replace(row, title="Bees", memory=False))
    found = store.change(known, lambda row: replace(row, unread=True))
    assert (found.title, found.memory, found.unread) == ("Bees", False, True)
    assert found == store.conversation(talk.id) == other.conversation(talk.id)


def test_nothing_is_added_to_a_reply_that_streams(store, other, talk):
    talk.say("first")
    answer = talk.ask("second")
    known = other.conversation(talk.id)
    with pytest.raises(HeadMoved):
        grows(other, known, turn(other.tree(talk.id)[answer.id], "third"), shown=answer.id, whole=True)
    assert other.conversation(talk.id) == known and len(other.tree(talk.id)) == 5


def test_nothing_is_added_to_a_reply_that_ended_otherwise_than_it_was_known(store, other, talk):
    answer = talk.ask("first")
    seen = other.tree(talk.id)[answer.id]
    store.settle(node(store.tree(talk.id)[answer.parent], Message(Role.ASSISTANT, "Whole."), 1.0, id=answer.id))
    with pytest.raises(HeadMoved):
        grows(other, other.conversation(talk.id), turn(seen, "second"), shown=seen.id, whole=True)
    question, reply = turn(other.tree(talk.id)[answer.id], "second")
    grows(other, other.conversation(talk.id), (question, reply), shown=seen.id, whole=True)
    assert [one.text for one in store.tree(talk.id).path(reply.id)[1:]] == ["first", "Whole.", "second", "to second"]


def test_what_is_made_of_a_whole_branch_is_refused_when_that_has_gone_on(store, other, talk):
    end = talk.say("first")
    known, nodes = other.conversation(talk.id), turn(end, "mine")
    talk.say("theirs")
    with pytest.raises(HeadMoved):
        grows(other, known, nodes, shown=end.id, whole=True)
    grows(other, known, nodes, shown=end.id)  # a branch of its own, as an edit makes one
    assert other.conversation(talk.id).turns == 3


def test_a_branch_that_stands_elsewhere_goes_on_though_the_head_is_on_another_one(store, other, talk):
    first = talk.say("first")
    mine = turn(store.tree(talk.id)[first.id], "mine")
    theirs = turn(store.tree(talk.id)[first.id], "theirs")
    grows(store, talk.record, mine, shown=first.id, whole=True)
    grows(other, talk.record, theirs, shown=first.id)
    more = turn(mine[-1], "more")
    grows(store, talk.record, more, shown=mine[-1].id, whole=True)
    assert store.conversation(talk.id).head == more[-1].id


def test_nothing_is_added_in_the_trash_but_what_has_happened_already(store, other, talk):
    end = talk.say("first")
    known = other.conversation(talk.id)
    store.change(known, lambda row: replace(row, trashed=5.0))
    with pytest.raises(ConversationDeleted):
        grows(other, known, turn(end, "second"))
    grows(other, known, turn(end, "second"), late=True)
    assert other.conversation(talk.id).trashed == 5.0 and other.conversation(talk.id).turns == 2


def test_what_is_gone_for_good_stays_gone(store, other, talk):
    end = talk.say("first")
    known = other.conversation(talk.id)
    store.change(known, lambda row: replace(row, trashed=5.0))
    store.purge_trash(6.0)
    for write in (
        lambda: grows(other, known, turn(end, "second")),
        lambda: grows(other, known, turn(end, "second"), late=True),
        lambda: other.change(known, lambda row: replace(row, title="back")),
        lambda: other.settle(end, known, lambda row: replace(row, title="back")),
    ):
        with pytest.raises(ConversationDeleted):
            write()
    with pytest.raises(UnknownConversation):
        store.conversation(talk.id)


def test_the_same_write_again_counts_once(store, talk):
    end = talk.say("first")
    nodes = turn(end, "second")
    for _ in range(2):  # as when the disk said that it had failed
        grows(store, talk.record, nodes, late=True)
    assert store.conversation(talk.id).turns == 2


def test_an_empty_conversation_belongs_to_one_living_kvchat(folder, store, other, new_talk):
    talk = new_talk(store)
    assert not other.take_empty(talk.id) and store.take_empty(talk.id)
    third = Store.open(folder)
    left = new_talk(third)
    third.close()
    assert other.take_empty(left.id) and not store.take_empty(left.id)
    left.store = other
    left.ask("first")
    assert not other.take_empty(left.id) and not store.take_empty(left.id)
    assert store.setting(f"store.begun {left.id}") is None


def test_the_end_of_a_branch_that_another_window_goes_on_with_is_kept_until_that_leaves_it(store, other, talk):
    start = talk.say("first")

    def kept():
        with store.database.reading() as connection:
            return tips.of(connection, talk.id)

    mine, theirs = turn(start, "mine"), turn(start, "theirs")
    grows(store, talk.record, mine, shown=start.id)
    grows(other, talk.record, theirs, shown=start.id)
    assert kept() == [mine[-1].id]
    more = turn(mine[-1], "more")
    grows(store, talk.record, more, shown=mine[-1].id)
    assert kept() == [theirs[-1].id]
    store.change(talk.record, lambda row: replace(row, head=start.id), shown=more[-1].id)  # it leaves its own branch
    assert kept() == [theirs[-1].id]
    other.change(talk.record, lambda row: replace(row, head=theirs[-1].id), shown=start.id)
    assert kept() == []
    store.change(talk.record, lambda row: replace(row, head=more[-1].id), shown=start.id)
    assert kept() == [theirs[-1].id]
    store.change(talk.record, lambda row: replace(row, trashed=1.0))
    store.purge_trash(2.0)
    assert kept() == []


def test_a_system_message_of_ones_own_is_added_beside_another_windows_turn(store, other, talk):
    """A branch that begins with another system message has no parent that could stream."""
    end = talk.say("first")
    root = node(None, system_message("Be long."), 5.0)
    grows(store, talk.record, [root], shown=end.id, whole=True)
    assert store.conversation(talk.id).head == root.id
