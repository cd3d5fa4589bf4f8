"""The conversation service against a toy server: what is sent, what is kept, and how branches go."""

from __future__ import annotations

import itertools
import json
from datetime import timedelta

import pytest

from kvchat.chat.errors import ChatError
from kvchat.chat.events import AnswerEnded, AnswerStarted
from kvchat.chat.question import Question
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.drafts import decoded
from kvchat.prompt.message import Role, State
from kvchat.prompt.request import Parameters
from kvchat.text.notes import note_sentence
from kvchat.text.problems import StoreProblem
from toyserver import error, tokens


def messages(visit) -> bytes:
    """The bytes of the messages array, without the closing bracket."""
    start = visit.body.index(b'"messages":[') + len(b'"messages":[')
    end = visit.body.rindex(b'"}]') + 2
    return visit.body[start:end]


async def say(service, id, text, blocks=(), **options):
    await service.turns.send(id, Question(text, blocks), **options)
    await service.conversations.wait(id)
    return service.conversations.get(id).path()[-1]


def texts(service, id):
    return [n.text for n in service.conversations.get(id).path() if n.role is not Role.SYSTEM]


async def test_a_turn_is_stored_and_its_figures_are_the_servers(service, server):
    server.on_chat(tokens("Twenty", "-six", prompt=40, cached=0))
    conversation = await service.new_conversations.create()
    answer = await say(service, conversation.id, "How many nights?")
    assert (answer.text, answer.state, answer.model) == ("Twenty-six", State.DONE, "toy")
    assert (answer.figures.prompt_tokens, answer.figures.cached_tokens, answer.figures.new_tokens) == (40, 0, 40)
    assert answer.figures.context_size == 4096
    assert conversation.record.title == "How many nights?"


async def test_the_question_is_on_the_disk_before_anything_is_sent(service, server, tmp_path):
    from kvchat.store import Store

    stored = []

    async def look(visit):
        other = Store.open(tmp_path / "data")
        stored.extend(n.text for n in other.tree(conversation.id) if n.role is Role.USER)
        other.close()
        await tokens("ok")(visit)

    server.on_chat(look)
    conversation = await service.new_conversations.create()
    await say(service, conversation.id, "first")
    assert stored == ["first"]


async def test_every_request_extends_the_one_before_over_restarts_and_days(make, server, clock):
    server.on_chat(tokens("a"), tokens("b\n\n", " \u2028c"), tokens("d", reasoning=["hm"]), tokens("e"))
    id = ""
    for turn in range(4):
        service = make(server.url)
        conversation = await (service.conversations.open(id) if id else service.new_conversations.create("Be brief."))
        id = conversation.id
        await say(service, id, f"question {turn} äöü")
        clock.now += timedelta(days=turn)
    sent = [messages(visit) for visit in server.chats]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(sent))
    bodies = [visit.json for visit in server.chats]
    assert {json.dumps(body["messages"][0]) for body in bodies} == {json.dumps(bodies[0]["messages"][0])}
    assert all([m["role"] for m in body["messages"]].count("system") == 1 for body in bodies)
    assert "2026" not in bodies[-1]["messages"][0]["content"]
    stamped = [
        m["content"].startswith("[Saturday") or m["content"].startswith("[Sunday")
        for m in bodies[-1]["messages"]
        if m["role"] == "user"
    ]
    assert stamped == [True, False, True, False]
    assert len({body["session_id"] for body in bodies}) == 1


async def test_two_conversations_have_two_session_ids_and_equal_system_bytes(service, server):
    for text in ("one", "two"):
        conversation = await service.new_conversations.create(reuse=False)
        await say(service, conversation.id, text)
    first, second = (visit.json for visit in server.chats)
    assert first["session_id"] != second["session_id"]
    assert first["messages"][0] == second["messages"][0]
    assert server.chats[0].headers["x-session-id"] == first["session_id"]


async def test_stopping_keeps_what_came_and_closes_the_connection(service, server):
    server.on_chat(tokens("kept", " text", hang_after=2))
    conversation = await service.new_conversations.create()
    await service.turns.send(conversation.id, Question("go on"))
    await server.until(lambda: bool(server.chats))
    while not (conversation.live and conversation.live.text == "kept text"):
        await _event(service)
    await service.conversations.stop(conversation.id)
    await server.until_closed()
    answer = conversation.path()[-1]
    assert (answer.text, answer.state) == ("kept text", State.CANCELLED)
    await service.conversations.stop(conversation.id)
    server.on_chat(tokens("next"))
    await say(service, conversation.id, "and now?")
    assert server.chats[-1].json["messages"][-2] == {"role": "assistant", "content": "kept text"}


async def _event(service):
    import asyncio

    heard = asyncio.Event()
    forget = service.events.subscribe(lambda _event: heard.set())
    await heard.wait()
    forget()


async def test_a_second_question_waits_for_the_first_answer(service, server):
    server.on_chat(tokens("slow", hang_after=1))
    conversation = await service.new_conversations.create()
    await service.turns.send(conversation.id, Question("one"))
    with pytest.raises(ChatError, match="still running"):
        await service.turns.send(conversation.id, Question("two"))
    await service.conversations.stop(conversation.id)


async def test_the_answer_belongs_to_its_conversation_and_marks_it_unread(service, server):
    server.on_chat(tokens("a", "b", "c"))
    first = await service.new_conversations.create()
    await service.turns.send(first.id, Question("one"))
    second = await service.new_conversations.create(reuse=False)
    await service.conversations.wait(first.id)
    assert first.path()[-1].text == "abc"
    assert first.record.unread
    assert not second.record.unread
    await service.conversations.open(first.id)
    assert not first.record.unread


async def test_chats_on_one_server_run_one_after_the_other(service, server):
    running = most = 0

    async def watch(visit):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await tokens("x")(visit)
        running -= 1

    server.on_chat(watch)
    for text in ("one", "two", "three"):
        conversation = await service.new_conversations.create(reuse=False)
        await service.turns.send(conversation.id, Question(text))
    for known in service.conversations.all():
        await service.conversations.wait(known.id)
    assert (most, server.posts) == (1, 3)


async def test_editing_asks_anew_on_a_branch_and_the_old_one_stays(service, server):
    conversation = await service.new_conversations.create()
    await say(service, conversation.id, "one")
    await say(service, conversation.id, "two")
    old = messages(server.chats[-1])
    question = conversation.path()[1]
    await service.turns.edit(conversation.id, question.id, "uno")
    await service.conversations.wait(conversation.id)
    assert texts(service, conversation.id) == ["uno", "Hello"]
    assert len(conversation.tree.siblings(conversation.path()[1].id)) == 2
    await service.branches.walk(conversation.id, conversation.path()[1].id, -1)
    assert texts(service, conversation.id) == ["one", "Hello", "two", "Hello"]
    await say(service, conversation.id, "three")
    assert messages(server.chats[-1]).startswith(old)


async def test_regenerating_sends_the_same_bytes_again(service, server):
    server.on_chat(tokens("first"), tokens("second"))
    conversation = await service.new_conversations.create()
    answer = await say(service, conversation.id, "one")
    await service.turns.regenerate(conversation.id, answer.id)
    await service.conversations.wait(conversation.id)
    assert server.chats[0].body == server.chats[1].body
    assert texts(service, conversation.id) == ["one", "second"]
    assert await service.branches.undo(conversation.id)
    assert texts(service, conversation.id) == ["one", "first"]


async def test_a_fork_shares_the_prefix_and_has_a_session_of_its_own(service, server):
    conversation = await service.new_conversations.create()
    answer = await say(service, conversation.id, "one")
    await say(service, conversation.id, "two")
    fork = await service.branches.fork(conversation.id, answer.id)
    assert texts(service, fork.id) == ["one", "Hello"]
    await say(service, fork.id, "other")
    assert messages(server.chats[-1]).startswith(messages(server.chats[0]))
    assert server.chats[-1].json["session_id"] != server.chats[0].json["session_id"]
    assert texts(service, conversation.id) == ["one", "Hello", "two", "Hello"]


async def test_a_fork_at_a_question_has_it_as_the_draft(service, server):
    conversation = await service.new_conversations.create()
    await say(service, conversation.id, "one")
    fork = await service.branches.fork(conversation.id, conversation.path()[1].id)
    assert (texts(service, fork.id), decoded(fork.draft).text) == ([], "one")


async def test_deleting_a_turn_leaves_the_later_ones_and_can_be_undone(service, server):
    conversation = await service.new_conversations.create()
    for text in ("one", "two", "three"):
        await say(service, conversation.id, text)
    await service.branches.delete_turn(conversation.id, conversation.path()[4].id)
    assert texts(service, conversation.id) == ["one", "Hello", "three", "Hello"]
    assert not conversation.context_is_exact
    assert await service.branches.undo(conversation.id)
    assert texts(service, conversation.id) == ["one", "Hello", "two", "Hello", "three", "Hello"]


async def test_another_system_prompt_is_a_branch(service, server):
    conversation = await service.new_conversations.create("Be brief.")
    await say(service, conversation.id, "one")
    await service.branches.set_instructions(conversation.id, "Be long.")
    await say(service, conversation.id, "two")
    contents = [m["content"] for m in server.chats[-1].json["messages"]]
    assert contents[0].startswith("Be long.")
    assert contents[1].endswith("one")
    assert conversation.instructions == "Be long."


async def test_an_answer_that_failed_without_a_word_makes_room_for_the_next_try(service, server):
    server.on_chat(error(500, "boom"), tokens("better"))
    conversation = await service.new_conversations.create()
    failed = await say(service, conversation.id, "one")
    assert failed.state is State.ERROR
    assert "boom" in note_sentence(failed.note)
    await service.turns.regenerate(conversation.id, failed.id)
    await service.conversations.wait(conversation.id)
    answer = conversation.path()[-1]
    assert (answer.text, len(conversation.tree.siblings(answer.id))) == ("better", 1)


async def test_parameters_never_touch_the_messages(service, server):
    conversation = await service.new_conversations.create()
    await say(service, conversation.id, "one", parameters=Parameters(temperature=0.5, max_tokens=7))
    await service.options.set_parameters(conversation.id, Parameters(seed=1))
    await service.turns.regenerate(conversation.id, conversation.path()[-1].id)
    await service.conversations.wait(conversation.id)
    first, second = (visit.json for visit in server.chats)
    assert (first["temperature"], first["max_tokens"], second["seed"]) == (0.5, 7, 1)
    assert first["messages"] == second["messages"]


async def test_context_is_sent_once_and_stays(service, server):
    conversation = await service.new_conversations.create()
    block = ContextBlock("paste", "pasted 1 (3 lines)", "a\nb\n</context>c")
    await say(service, conversation.id, "what is it?", blocks=(block,))
    await say(service, conversation.id, "and then?")
    contents = [m["content"] for m in server.chats[-1].json["messages"]]
    assert contents[1].count("<context source=") == contents[1].count("</context>") == 1
    assert "pasted" not in contents[3]


async def test_deleted_conversations_come_back(service, server):
    conversation = await service.new_conversations.create()
    await say(service, conversation.id, "one")
    await service.conversations.delete(conversation.id)
    assert conversation.id not in {c.id for c in service.conversations.all()}
    await service.conversations.restore(conversation.id)
    assert conversation.id in {c.id for c in service.conversations.all()}


async def test_a_draft_survives_a_restart(make, server):
    service = make(server.url)
    conversation = await service.new_conversations.create()
    await service.conversations.set_draft(conversation.id, "half a thou")
    again = make(server.url)
    assert (await again.conversations.open(conversation.id)).draft == "half a thou"


async def test_events_tell_of_start_and_end(service, server):
    heard = []
    service.events.subscribe(heard.append)
    conversation = await service.new_conversations.create()
    await say(service, conversation.id, "one")
    kinds = [type(event) for event in heard]
    assert kinds.index(AnswerStarted) < kinds.index(AnswerEnded)


async def test_a_disk_that_refuses_loses_nothing(service, server, monkeypatch):
    from kvchat.chat.events import StorageChanged
    from kvchat.store import Store, StoreUnavailable

    conversation = await service.new_conversations.create()
    heard = []
    service.events.subscribe(lambda event: heard.append(event) if isinstance(event, StorageChanged) else None)
    real = Store.add

    def full(*_args, **_options):
        raise StoreUnavailable(StoreProblem.DISK_FULL, where="kvchat.db")

    monkeypatch.setattr(Store, "add", full)
    await say(service, conversation.id, "one")
    assert heard[0].trouble == StoreProblem.DISK_FULL.format(where="kvchat.db")
    assert conversation.path()[-1].text == "Hello"
    monkeypatch.setattr(Store, "add", real)
    await service.writer.flush()
    assert heard[-1].trouble == ""
    stored = service.store.tree(conversation.id)
    assert [n.text for n in stored.path(conversation.record.head)][1:] == ["one", "Hello"]


async def test_search_and_export_see_what_was_said(service, server, tmp_path):
    conversation = await service.new_conversations.create()
    await say(service, conversation.id, "the lighthouse keeper")
    hits = await service.conversations.search("lightho")
    assert [hit.conversation for hit in hits if hit.role == "user"] == [conversation.id]
    path = await service.exports.write([conversation.id], "md", tmp_path / "out.md")
    assert "lighthouse keeper" in path.read_text()


async def test_the_server_chosen_last_is_the_one_to_begin_with(make, server):
    service = make("")
    first = await service.new_conversations.create()
    await service.conversations.open(first.id)
    await service.chooser.use(first.id, server.url)
    again = make("")
    await again.conversations.open((await again.new_conversations.create()).id)
    await again.servers.connect()
    assert again.servers.info.base_url == server.url


async def test_the_key_is_shown_to_its_own_server_only(make, server, monkeypatch):
    from dataclasses import replace

    monkeypatch.setenv("OWN_KEY", "sekrit")
    service = make(server.url)
    service.servers.link().connector.server = replace(service.settings.server, api_key_env="OWN_KEY")
    await service.servers.connect()
    id = (await service.new_conversations.create()).id
    await service.conversations.open(id)
    assert {visit.headers.get("authorization") for visit in server.visits} == {"Bearer sekrit"}
    async with type(server)() as other:
        await service.chooser.use(id, other.url)
        assert service.servers.info.base_url == other.url
        assert not any("authorization" in visit.headers for visit in other.visits)
