"""Going on with a cut answer: what is sent, what is stored, what stays, and what it costs."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvchat.chat.errors import ChatError
from kvchat.chat.events import Noticed
from kvchat.chat.question import Question
from kvchat.memory.ledger import ExtractionRun
from kvchat.prompt.branching import continuation
from kvchat.prompt.message import Message, Role, State, node, settled
from kvchat.prompt.request import Parameters
from kvchat.prompt.tree import Tree
from kvchat.prompt.wire import canonical, whole_characters
from kvchat.store import Store
from toyserver import ToyServer, error, hang, reply, tokens


async def cut(service, server, *answer, question="Tell me", finish="length", **options):
    """A conversation whose last answer was cut, and that answer."""
    server.on_chat(tokens(*answer, finish=finish, **{"prompt": 40, **options}))
    conversation = await service.new_conversations.create()
    await service.turns.send(conversation.id, Question(question))
    await service.conversations.wait(conversation.id)
    return conversation, conversation.path()[-1]


async def go_on(service, conversation, node, *answers):
    if answers:
        service_server = answers[0]
        service_server.on_chat(*answers[1:])
    await service.turns.go_on(conversation.id, node.id)
    await service.conversations.wait(conversation.id)
    return conversation.path()[-1]


def wires(visit) -> list[bytes]:
    return [canonical(message) for message in visit.json["messages"]]


async def test_it_begins_with_the_old_text_and_the_cut_one_stays(service, server):
    conversation, old = await cut(service, server, "Once ", "upon", prompt=40, cached=0)
    assert old.state is State.LENGTH
    new = await go_on(service, conversation, old, server, tokens(" a time.", prompt=42, cached=41))
    assert (new.text, new.state, new.parent) == ("Once upon a time.", State.DONE, old.parent)
    assert conversation.tree[old.id] == old
    assert [node.text for node in conversation.tree.siblings(new.id)] == ["Once upon", "Once upon a time."]
    assert new.digest != old.digest
    assert new.wire == canonical({"role": "assistant", "content": "Once upon a time."})
    sent = wires(server.chats[-1])
    assert sent[-1] == old.wire
    assert sent[:-1] == wires(server.chats[0])
    assert "continue_final_message" not in server.chats[-1].json, "a build as old as the toy needs no field"
    figures = new.figures
    assert (figures.new_tokens, figures.evaluated_tokens, figures.wasted_tokens) == (0, 1, 1)
    assert (figures.begun_tokens, figures.predicted_tokens) == (2, 1)


async def test_the_next_question_extends_the_joined_answer_whatever_comes_between(make, server):
    service = make(server.url)
    conversation, old = await cut(service, server, "one")
    again = await go_on(service, conversation, old, server, tokens(" two", finish="length"))
    whole = await go_on(service, conversation, again, server, tokens(" three"))
    assert whole.text == "one two three"
    service = make(server.url)  # as after a restart
    await service.conversations.open(conversation.id)
    await service.turns.send(conversation.id, Question("And then?"))
    await service.conversations.wait(conversation.id)
    sent = wires(server.chats[-1])
    assert sent[:-2] == wires(server.chats[0])
    assert sent[-2] == whole.wire
    stored = service.conversations.get(conversation.id)
    assert stored.tree[whole.id].figures == whole.figures
    assert len(stored.tree.siblings(whole.id)) == 3


async def test_reasoning_goes_back_and_is_gone_on_with(service, server):
    conversation, old = await cut(service, server, reasoning=["I th"])
    assert (old.text, old.message.reasoning, old.is_cut) == ("", "I th", True)
    new = await go_on(service, conversation, old, server, tokens("42", reasoning=["ink."]))
    assert (new.text, new.message.reasoning) == ("42", "I think.")
    assert server.chats[-1].json["messages"][-1] == {"role": "assistant", "content": "", "reasoning_content": "I th"}


async def test_a_server_that_says_the_beginning_again_is_not_repeated(service, server):
    conversation, old = await cut(service, server, "Once ", "upon", reasoning=["A fairy tale."])
    said_again = tokens("Once upon a", " time.", reasoning=["A fairy tale."])
    new = await go_on(service, conversation, old, server, said_again)
    assert (new.text, new.message.reasoning) == ("Once upon a time.", "A fairy tale.")


async def test_a_word_that_the_model_says_again_is_no_repetition(service, server):
    conversation, old = await cut(service, server, "Ha")
    new = await go_on(service, conversation, old, server, tokens("Ha", "Ha!"))
    assert new.text == "HaHaHa!"


async def test_esc_keeps_what_came_and_it_can_go_on_again(service, server, tmp_path):
    conversation, old = await cut(service, server, "Half")
    server.on_chat(tokens(" an hour", hang_after=1))
    await service.turns.go_on(conversation.id, old.id)
    await _until(lambda: conversation.live.text == "Half an hour")
    assert conversation.live.continued == old.id
    await service.conversations.stop(conversation.id)
    stopped = conversation.path()[-1]
    assert (stopped.text, stopped.state, stopped.note) == ("Half an hour", State.CANCELLED, None)
    whole = await go_on(service, conversation, stopped, server, tokens(" later."))
    assert whole.text == "Half an hour later."
    assert [n.state for n in conversation.tree.siblings(whole.id)] == [State.LENGTH, State.CANCELLED, State.DONE]


async def test_a_kill_while_it_streams_loses_nothing(service, server, tmp_path):
    conversation, old = await cut(service, server, "Half", reasoning=["hm"])
    server.on_chat(tokens(" an hour", hang_after=1))
    await service.turns.go_on(conversation.id, old.id)
    id = conversation.live.node
    await _until(lambda: _deltas(service, id) == " an hour")
    with service.store._db.write() as connection:  # its owner is no more
        connection.execute("UPDATE node SET owner = '1:1:gone' WHERE id = ?", (id,))
    other = Store.open(tmp_path / "data")
    left = other.tree(conversation.id)[id]
    assert (left.text, left.message.reasoning, left.state) == ("Half an hour", "hm", State.INTERRUPTED)
    assert left.is_cut
    other.close()


def _deltas(service, node) -> str:
    rows = service.store._db.rows("SELECT text FROM delta WHERE node = ? ORDER BY seq", (node,))
    return b"".join(row[0] for row in rows).decode()


async def _until(true) -> None:
    for _ in range(1_000_000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


async def test_one_that_brings_nothing_new_makes_room_for_the_next(service, server):
    conversation, old = await cut(service, server, "Half")
    failed = await go_on(service, conversation, old, server, error(500, "out of memory"))
    assert (failed.text, failed.state) == ("Half", State.ERROR)
    assert failed.digest == old.digest
    whole = await go_on(service, conversation, failed, server, tokens(" done"))
    assert [n.text for n in conversation.tree.siblings(whole.id)] == ["Half", "Half done"]
    assert old.id in conversation.tree and failed.id not in conversation.tree
    assert [n.id for n in service.store.tree(conversation.id) if n.role is Role.ASSISTANT] == [old.id, whole.id]


async def test_an_end_at_once_makes_it_whole(service, server):
    conversation, old = await cut(service, server, "All of it.")
    new = await go_on(service, conversation, old, server, tokens())
    assert (new.text, new.state, new.note) == ("All of it.", State.DONE, None)
    with pytest.raises(ChatError, match="complete"):
        await service.turns.go_on(conversation.id, new.id)


async def test_an_answer_without_a_word_is_answered_anew(service, server):
    server.on_chat(error(500, "no"), tokens("Hello"))
    conversation = await service.new_conversations.create()
    await service.turns.send(conversation.id, Question("Hi"))
    await service.conversations.wait(conversation.id)
    new = await go_on(service, conversation, conversation.path()[-1])
    assert new.text == "Hello"
    assert server.chats[-1].json["messages"][-1]["role"] == "user"
    assert len(conversation.tree.siblings(new.id)) == 1


async def test_what_cannot_go_on_is_said(service, server):
    call = {"index": 0, "function": {"name": "look", "arguments": "{}"}}

    async def calls(visit):
        await reply(
            200,
            {
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "tool_calls",
                        "message": {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
                    }
                ]
            },
        )(visit)

    server.on_chat(calls)
    conversation = await service.new_conversations.create()
    await service.turns.send(conversation.id, Question("Hi"))
    await service.conversations.wait(conversation.id)
    question, answer = conversation.path()[-2:]
    with pytest.raises(ChatError, match="called a tool"):
        await service.turns.go_on(conversation.id, answer.id)
    with pytest.raises(ChatError, match="question"):
        await service.turns.go_on(conversation.id, question.id)
    server.on_chat(tokens("x", finish="length", prompt=4095))
    await service.turns.send(conversation.id, Question("more"))
    await service.conversations.wait(conversation.id)
    assert conversation.path()[-1].state is State.CONTEXT_FULL
    with pytest.raises(ChatError, match="Compact"):
        await service.turns.go_on(conversation.id, conversation.path()[-1].id)
    assert server.posts == 2


async def test_a_server_that_cannot_is_asked_by_a_message_and_the_person_is_told(make):
    async with ToyServer("openai") as server:
        service = make(server.url)
        heard = []
        service.events.subscribe(lambda event: heard.append(event) if isinstance(event, Noticed) else None)
        conversation, old = await cut(service, server, "Half")
        new = await go_on(service, conversation, old, server, tokens(" done", prompt=50))
        assert [n.text for n in conversation.path()[1:]] == ["Tell me", "Half", "Continue.", " done"]
        assert new.parent != old.parent
        sent = wires(server.chats[-1])
        assert sent[:-1] == [*wires(server.chats[0]), old.wire], "the law: appended"
        assert [event.text for event in heard] == [
            "This kind of server (OpenAI-compatible) cannot continue an answer: “Continue.” was sent as a message."
        ]


async def test_a_cut_answer_in_the_middle_goes_on_in_a_branch_of_its_own(service, server):
    conversation, old = await cut(service, server, "Half")
    server.on_chat(tokens("then"))
    await service.turns.send(conversation.id, Question("And?"))
    await service.conversations.wait(conversation.id)
    before = conversation.path()
    new = await go_on(service, conversation, old, server, tokens(" done"))
    assert [n.text for n in conversation.path()[1:]] == ["Tell me", "Half done"]
    assert service.store.tree(conversation.id).path(before[-1].id) == before
    await service.branches.undo(conversation.id)
    assert conversation.path() == before
    assert new.id in conversation.tree


async def test_parameters_go_with_it_and_the_memory_has_every_message_in_one_place(make, server):
    from kvchat.memory.ledger import ExtractionLedger

    service = make(server.url)
    conversation, old = await cut(service, server, "Half")
    ledger = ExtractionLedger(service.store._db)
    first = [node.id for node in ledger.pending(conversation.path())]
    assert first == [node.id for node in conversation.path()[1:]]
    assert ledger.cover(ExtractionRun("1" * 32, conversation.id, 0.0), first, ())
    server.on_chat(tokens(" done"))
    await service.turns.go_on(conversation.id, old.id, Parameters(max_tokens=7))
    await service.conversations.wait(conversation.id)
    new = conversation.path()[-1]
    assert server.chats[-1].json["max_tokens"] == 7
    assert [node.id for node in ledger.pending(conversation.path())] == [new.id], "its question has its place already"
    assert ledger.cover(ExtractionRun("2" * 32, conversation.id, 0.0), [new.id], ())
    for tip in (old.id, new.id):
        assert ledger.pending(conversation.tree.path(tip)) == []
        rows = service.store._db.rows("SELECT node, count(*) FROM covered GROUP BY node")
        assert {count for _, count in rows} == {1}


async def test_it_waits_its_turn_like_any_answer(service, server):
    conversation, old = await cut(service, server, "Half")
    server.on_chat(hang())
    await service.turns.go_on(conversation.id, old.id)
    with pytest.raises(ChatError, match="still running"):
        await service.turns.go_on(conversation.id, old.id)
    await service.conversations.stop(conversation.id)
    unsaid = conversation.path()[-1]
    assert (unsaid.text, unsaid.state) == ("Half", State.CANCELLED)


PARTS = st.tuples(st.text(max_size=20), st.text(max_size=20))


@given(PARTS.filter(any), PARTS)
def test_the_cut_one_stays_and_the_new_one_is_what_was_joined(old: tuple[str, str], new: tuple[str, str]) -> None:
    question = node(None, Message(Role.USER, "Go on"), 0.0)
    cut = node(question, Message(Role.ASSISTANT, old[0], reasoning=old[1]), 1.0, state=State.LENGTH)
    streaming = continuation(question, cut, datetime(2026, 11, 21, tzinfo=UTC))
    assert (streaming.parent, streaming.wire, streaming.digest) == (cut.parent, cut.wire, cut.digest)
    assert streaming.id != cut.id and streaming.state is State.STREAMING
    text, reasoning = (one + more for one, more in zip(old, new, strict=True))
    whole = settled(streaming, question, text, reasoning, State.DONE)
    assert (whole.digest == cut.digest) == (not any(new))
    assert json.loads(whole.wire)["content"] == whole_characters(text)
    assert Tree([question, cut, whole]).siblings(whole.id) in ([cut, whole], [whole, cut])
