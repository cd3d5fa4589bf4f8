"""What is stored comes back as it was, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.conversation import Conversation, SavedPrompt
from kvchat.prompt.message import Message, Node, NoteKind, Role, State, new_id, node, system_message
from kvchat.prompt.request import Parameters
from kvchat.prompt.wire import whole_characters
from kvchat.store import Store, StoreUnavailable, UnknownConversation
from kvchat.store.messages import _SPEEDS_OF_LATE
from kvchat.store.rows import FIGURE_FIELDS
from kvchat.values import statement
from whole_rows import add_nodes, put_row

any_text = st.text(st.characters(exclude_categories=()), max_size=60)
blocks = st.lists(st.builds(ContextBlock, any_text, any_text, any_text), max_size=3).map(tuple)
counts = st.none() | st.integers(0, 10**9)
times = st.none() | st.floats(0, 1e9)
figures = st.none() | st.builds(TurnFigures, counts, counts, counts, counts, times, times, times, counts)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
)
parameters = st.builds(
    Parameters,
    temperature=times,
    top_k=counts,
    stop=st.lists(st.text(), max_size=2).map(tuple),
    extra=st.dictionaries(st.text(), json_values, max_size=2),
)
messages = st.builds(
    Message,
    st.sampled_from([Role.USER, Role.ASSISTANT]),
    any_text,
    blocks,
    any_text,
    st.sampled_from(["reasoning_content", "reasoning"]),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=2).map(tuple),
)
NOTE = statement(NoteKind.MODEL_REFUSED, {"refusal": "[no] – “never”"})
final = st.sampled_from([state for state in State if state is not State.STREAMING])


def whole(value: Node) -> Node:
    """The node with every text made of whole characters, as a store can hold it. The bytes are untouched."""
    said = value.message
    parts = tuple(ContextBlock(*map(whole_characters, (b.kind, b.source, b.text))) for b in said.blocks)
    message = replace(said, text=whole_characters(said.text), reasoning=whole_characters(said.reasoning), blocks=parts)
    return replace(value, message=message, model=whole_characters(value.model))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(messages, final, any_text, figures, st.none() | st.binary()), min_size=1, max_size=4),
    parameters,
    any_text,
    st.dictionaries(st.text(), json_values, max_size=2),
    counts,
)
def test_any_conversation_comes_back_as_it_was(said, options, title, template, used):
    store = Store.open(None)
    root = tip = node(None, system_message(title), 0.5)
    record = store.create(Conversation(new_id(), root.id, 1.0, 2.0), root)
    given_nodes = []
    for i, (message, state, word, cost, wire) in enumerate(said):
        tip = node(tip, message, i + 0.25, state=state, model=word, figures=cost, note=NOTE)
        if wire is not None:  # bytes as another version made them
            tip = replace(tip, wire=wire)
        given_nodes.append(tip)
    record = replace(
        record,
        head=tip.id,
        title=title,
        parameters=options,
        template_options=template,
        turns=3,
        model=title,
        unread=True,
        trashed=7.5,
        context_used=used,
    )
    add_nodes(store, record, given_nodes)
    tree = store.tree(record.id)
    expected = [root, *map(whole, given_nodes)]
    assert tree.path(tip.id) == expected
    assert [(n.wire, n.digest) for n in tree.path(tip.id)] == [(n.wire, n.digest) for n in (root, *given_nodes)]
    title = whole_characters(title)
    assert store.conversation(record.id) == replace(record, title=title, model=title)
    assert store.conversations(trashed=True) == [store.conversation(record.id)]
    assert store.conversations() == []


def test_every_figure_has_its_place_in_the_store():
    assert set(FIGURE_FIELDS) == set(TurnFigures.__struct_fields__)


def test_figures_stored_before_a_figure_was_added_still_load(talk):
    answer = talk.say("?")
    with talk.store._db.write() as connection:
        connection.execute("UPDATE node SET figures = '[12,3]' WHERE id = ?", (answer.id,))
    assert talk.store.tree(talk.id)[answer.id].figures == TurnFigures(12, 3)


def test_conversations_are_listed_newest_first(store, new_talk):
    old, new = new_talk(store, "old"), new_talk(store, "new")
    old.say("hello")
    assert [c.title for c in store.conversations()] == ["old", "new"]
    new.say("hello")
    assert [c.title for c in store.conversations()] == ["new", "old"]


@pytest.mark.parametrize("back", [7_200.0, 86_400.0 * 400, 1.7e9])
def test_the_clock_set_back_makes_nothing_that_is_used_later_an_older_one(store, new_talk, monkeypatch, back):
    ahead, later = new_talk(store, "ahead"), new_talk(store, "later")
    monkeypatch.setattr(type(ahead), "now", lambda self: 1.8e9)
    ahead.say("hello")
    monkeypatch.setattr(type(ahead), "now", lambda self: 1.8e9 - back)
    later.say("hello")
    assert [c.title for c in store.conversations()] == ["later", "ahead"]
    new_talk(store, "new")
    ahead.ask("?")
    assert [c.title for c in store.conversations()] == ["ahead", "new", "later"]


def test_a_conversation_is_found_by_the_beginning_of_its_id(store):
    root = node(None, system_message(""), 0.0)
    for id in ("abcd" + "0" * 28, "abce" + "0" * 28, "abce" + "1" * 28):
        store.create(Conversation(id, root.id, 0.0, 0.0), root)
    assert store.conversation("ABCD").id == "abcd" + "0" * 28
    assert store.conversation("abce1").id == "abce" + "1" * 28
    for unknown, part in (
        ("abce", "Several conversations begin with"),
        *((unknown, f'No conversation "{unknown}"') for unknown in ("abc", "ffff", "%", "", "zzzz")),
    ):
        with pytest.raises(UnknownConversation, match=part):
            store.conversation(unknown)
    with pytest.raises(UnknownConversation):
        store.tree("f" * 32)


def test_the_same_instructions_share_one_system_message(store, new_talk):
    first, second, other = new_talk(store), new_talk(store), new_talk(store, instructions="Be brief.")
    assert first.record.head == second.record.head != other.record.head
    first.say("one")
    second.say("two")
    assert (first.texts(), second.texts()) == (["one", "Yes."], ["two", "Yes."])


def test_a_fork_shares_its_ancestors_and_goes_its_own_way(store, talk):
    middle = talk.say("first")
    talk.say("second")
    fork = store.create(
        Conversation(new_id(), middle.id, 1.0, 1.0, forked_from=talk.id, turns=1),
        store.tree(talk.id).path(middle.id)[0],
    )
    assert fork.head == middle.id
    assert [n.text for n in store.tree(fork.id).path(fork.head)[1:]] == ["first", "Yes."]
    question = node(middle, Message(Role.USER, "elsewhere"), talk.now())
    fork = replace(fork, head=question.id)
    add_nodes(store, fork, [question])
    assert [n.text for n in store.tree(fork.id).path(fork.head)[1:]] == ["first", "Yes.", "elsewhere"]
    assert question.id not in store.tree(talk.id)


def test_emptying_the_trash_keeps_what_a_fork_needs_and_nothing_else(store, talk):
    middle = talk.say("shared words")
    end = talk.say("private words")
    root = store.tree(talk.id).path(middle.id)[0]
    fork = store.create(Conversation(new_id(), middle.id, 1.0, 1.0, title="fork", turns=1), root)
    put_row(store, replace(talk.record, trashed=100.0))
    store.purge_trash(50.0)
    assert store.conversation(talk.id).trashed == 100.0
    store.purge_trash(101.0)
    with pytest.raises(UnknownConversation):
        store.conversation(talk.id)
    assert [n.text for n in store.tree(fork.id).path(fork.head)[1:]] == ["shared words", "Yes."]
    assert end.id not in store.tree(fork.id)
    assert store.search("private") == []
    assert [hit.conversation for hit in store.search("shared")] == [fork.id]
    put_row(store, replace(fork, trashed=100.0))
    store.purge_trash(101.0)
    assert store._db.row("SELECT (SELECT count(*) FROM node), (SELECT count(*) FROM draft)") == (0, 0)
    assert store.search("shared") == []


def test_an_empty_conversation_that_another_kvchat_deleted_for_good_can_still_be_begun(folder, store, new_talk):
    talk = new_talk(store, instructions="Only here.")
    other = Store.open(folder)
    put_row(other, replace(talk.record, trashed=5.0))
    other.purge_trash(6.0)
    other.close()
    talk.say("hello")
    assert talk.texts() == ["hello", "Yes."]
    assert talk.id in {c.id for c in store.conversations()}


def test_a_system_prompt_that_was_replaced_can_come_back(store, talk, new_talk):
    first = talk.tip
    second = node(None, system_message("Another."), talk.now())
    add_nodes(store, talk.moved(second), [second])
    put_row(store, replace(new_talk(store).record, trashed=5.0))
    store.purge_trash(6.0)
    assert first.id not in store.tree(talk.id)
    put_row(store, talk.moved(first))
    assert [n.id for n in store.tree(talk.id).path(store.conversation(talk.id).head)] == [first.id]


def test_storing_the_same_message_twice_gives_one(store, talk):
    talk.ask("hello")
    question = store.tree(talk.id).path(talk.tip.id)[1]
    add_nodes(store, talk.record, [question, talk.tip])
    add_nodes(store, talk.record, [question, talk.tip])
    assert len(store.tree(talk.id)) == 3
    assert [hit.node for hit in store.search("hello")] == [question.id]


def test_a_settled_answer_is_never_rewritten(store, talk):
    answer = talk.say("?", "the first form")
    question = store.tree(talk.id)[answer.parent]
    store.settle(node(question, Message(Role.ASSISTANT, "another form"), 1.0, id=answer.id))
    store.append(answer.id, "late", "")
    assert store.tree(talk.id)[answer.id].text == "the first form"


def test_only_an_empty_answer_without_children_can_be_dropped(store, talk):
    full = talk.say("one", "words")
    store.drop(full.id)
    empty = talk.say("two", "")
    after = talk.say("three")
    store.drop(empty.id)
    assert {full.id, empty.id, after.id} <= {n.id for n in store.tree(talk.id)}
    failed = talk.ask("four")
    store.drop(failed.id)
    assert failed.id not in store.tree(talk.id)
    assert store.conversation(talk.id).head == failed.parent


def test_drafts_prompts_and_settings_are_kept_until_they_are_removed(folder, store, talk):
    store.set_draft(talk.id, "unsent \x00 \ud83d text")
    store.save_prompt(SavedPrompt("zeta", "Z"))
    store.save_prompt(SavedPrompt("Alpha", "A"))
    store.save_prompt(SavedPrompt("Alpha", "B"))
    store.set_setting("theme", "dark")
    store.close()
    again = Store.open(folder)
    assert again.drafts() == {talk.id: "unsent \x00 \ufffd text"} and again.draft(talk.id) == "unsent \x00 \ufffd text"
    assert again.prompts() == [SavedPrompt("Alpha", "B"), SavedPrompt("zeta", "Z")]
    assert again.setting("theme") == "dark"
    again.set_draft(talk.id, "")
    again.delete_prompt("zeta")
    again.set_setting("theme", None)
    assert (again.drafts(), again.draft("none"), again.setting("theme")) == ({}, "", None)
    assert again.prompts() == [SavedPrompt("Alpha", "B")]
    again.close()


def test_figures_are_given_by_time_and_by_server(store, talk):
    for i, server in enumerate(["http://a", "http://b", "http://a"]):
        answer = talk.ask("?")
        store.record_request(answer.id, body_sha256="0" * 64, server=server, model="m")
        question = store.tree(talk.id)[answer.parent]
        store.settle(
            node(
                question,
                Message(Role.ASSISTANT, "x"),
                answer.created,
                id=answer.id,
                figures=TurnFigures(prompt_tokens=i),
            )
        )
        talk.tip = store.tree(talk.id)[answer.id]
    assert [a.figures.prompt_tokens for a in store.answers()] == [0, 1, 2]
    assert [a.by for a in store.answers()] == [("http://a", "m"), ("http://b", "m"), ("http://a", "m")]
    assert [a.figures.prompt_tokens for a in store.answers(talk.tip.created)] == [2]
    assert [f.prompt_tokens for f in store.speed_samples("http://a", "m")] == [2, 0]
    assert [f.prompt_tokens for f in store.speed_samples("http://a", "m", limit=1)] == [2]
    assert store.speed_samples("http://a", "other") == []


def test_the_samples_of_a_server_not_used_for_long_are_found_too(store, talk, monkeypatch):
    for i, server in enumerate(["http://a", "http://a", "http://b"]):
        answer = talk.ask("?")
        store.record_request(answer.id, body_sha256="0" * 64, server=server, model="m")
        question = store.tree(talk.id)[answer.parent]
        store.settle(
            node(
                question,
                Message(Role.ASSISTANT, "x"),
                answer.created,
                id=answer.id,
                figures=TurnFigures(prompt_tokens=i),
            )
        )
        talk.tip = store.tree(talk.id)[answer.id]
    for newest in (1, 2, 1000):
        query = _SPEEDS_OF_LATE.replace("LIMIT 1000", f"LIMIT {newest}")
        monkeypatch.setattr("kvchat.store.messages._SPEEDS_OF_LATE", query)
        for limit in (1, 2):
            found = store.speed_samples("http://a", "m", limit)
            assert [f.prompt_tokens for f in found] == [1, 0][:limit], newest


def test_another_kvchats_write_shows_in_the_data_version(folder, store, talk):
    before = store.data_version()
    talk.say("mine")
    assert store.data_version() == before
    other = Store.open(folder)
    other.set_setting("x", "y")
    other.close()
    assert store.data_version() != before


def test_an_incognito_store_writes_nothing(tmp_path, new_talk, monkeypatch):
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    store = Store.open(None)
    talk = new_talk(store)
    talk.say("secret")
    assert talk.texts() == ["secret", "Yes."] and store.search("secret")
    assert store.backup_if_due() is None
    store.close()
    assert list(place.iterdir()) == []


def test_a_closed_store_says_so(store):
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.conversations()


def test_an_estimate_is_no_sample_of_the_servers_speed(store, talk):
    for estimated in (True, None):
        answer = talk.ask("?")
        store.record_request(answer.id, body_sha256="0" * 64, server="http://a", model="m")
        question = store.tree(talk.id)[answer.parent]
        store.settle(
            node(
                question,
                Message(Role.ASSISTANT, "x"),
                answer.created,
                id=answer.id,
                figures=TurnFigures(500, 400, prompt_ms=9.0, estimated=estimated),
            )
        )
        talk.tip = store.tree(talk.id)[answer.id]
    assert [found.figures.estimated for found in store.answers()] == [True, None]
    fitted = store.speed_fit("http://a", "m")
    assert fitted is not None and fitted.samples == 1
