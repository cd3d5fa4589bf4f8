"""Acts at a turn that ended, or is ended, among calls of tools, and what other windows do meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace
from test_broken_loops import stored

from kvchat.backends.dialect import BackendError
from kvchat.chat.errors import ChatError
from kvchat.chat.events import ToolAsked
from kvchat.chat.question import Question
from kvchat.chat.turns.alternatives import AlternativesRequest
from kvchat.prompt.message import Message, NoteKind, Role, State, node
from kvchat.prompt.tools import NOT_CARRIED_OUT, ToolCall
from kvchat.text.problems import ChatProblem
from strict_history import check_sent, check_tree, fault_of
from toyserver import ToyServer, calls, error, reply, tokens

READ = '{"path": "a.txt"}'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("The lamp.")
    monkeypatch.chdir(tmp_path / "work")


async def left(service, server: ToyServer):
    """A conversation that a killed kvchat left at a call which has no result."""
    server.on_chat(tokens("Hello " * 40, prompt=60))
    conversation = await service.new_conversations.create(tools=["files"], reuse=False)
    for number in range(3):
        await service.turns.send(conversation.id, Question(f"Question {number}? " + "And so on. " * 60))
        await service.conversations.wait(conversation.id)
    last = conversation.path()[-1]
    question = node(last, Message(Role.USER, "And the file?"), last.created + 1)
    made = (ToolCall("id1", "read_file", READ), ToolCall("id2", "read_file", READ))
    answer = node(question, Message(Role.ASSISTANT, "", calls=made), last.created + 2)
    await service.conversations.shared.add(
        conversation, [question, answer], lambda row: replace(row, head=answer.id, turns=row.turns + 1), whole=True
    )
    return conversation


async def test_a_request_beside_a_turn_that_ended_among_calls_closes_it(service, server: ToyServer):
    conversation = await left(service, server)
    server.on_chat(tokens("Nothing.", prompt=70))
    link = service.servers.link(conversation.id)
    async with link.lane.chat(conversation.id, ends_spare=False):
        await service.side_requests.at_the_end("memory", link, conversation, "What is new?", {"type": "text"}, 16)
    check_sent(server)
    sent = [json.dumps(one) for one in server.chats[-1].json["messages"]]
    server.on_chat(tokens("They spoke of a lamp.", prompt=170))
    await service.compactor.compact(conversation.id)
    check_sent(server)
    check_tree(conversation.tree)
    await service.branches.undo(conversation.id)
    await service.turns.send(conversation.id, Question("And?"))
    await service.conversations.wait(conversation.id)
    check_sent(server)
    asked = [json.dumps(one) for one in server.chats[-1].json["messages"]]
    assert asked[:-1] == sent[:-1], "what was prefilled is what the next question begins with"


async def test_what_is_prefilled_after_it_is_what_a_server_takes(service, server: ToyServer):
    conversation = await left(service, server)
    server.on("/apply-template", reply(200, {"prompt": "a prompt"}))
    service.warm_up.enabled, service.conversations.looked_at = True, conversation.id
    with suppress(BackendError):  # a toy has no tokens
        await service.warm_up.warm(conversation.id)
    rendered = [visit.json["messages"] for visit in server.visits if visit.path == "/apply-template"]
    rendered = [one for one in rendered if one[0]["role"] == "system" and "read_file" in json.dumps(one)]
    assert rendered
    assert [fault_of(one) for one in rendered] == [""] * len(rendered)


async def test_nothing_is_sent_beside_a_branch_that_lost_a_call(service, server: ToyServer):
    conversation = await stored(service, 1)
    await service.servers.connect()
    link = service.servers.link(conversation.id)
    async with link.lane.chat(conversation.id, ends_spare=False):
        answer = await service.side_requests.at_the_end("memory", link, conversation, "New?", {"type": "text"}, 16)
    assert answer.state is State.ERROR and answer.note.kind == NoteKind.CALLS_LOST
    with pytest.raises(ChatError) as refused:
        await service.turns.ask_again_for(conversation.id, AlternativesRequest(2), conversation.path()[-1].id)
    assert refused.value.problem is ChatProblem.CALLS_LOST
    service.warm_up.enabled, service.conversations.looked_at = True, conversation.id
    before = len(server.visits)
    await service.warm_up.warm(conversation.id)
    assert not [one for one in server.visits[before:] if one.path in ("/apply-template", "/completion")]
    assert not server.chats


async def test_nothing_with_tools_is_sent_beside_a_model_that_has_none(service, make, server: ToyServer):
    server.on_chat(tokens("Hello " * 40, prompt=60))
    conversation = await service.new_conversations.create(tools=["files"], reuse=False)
    for number in range(3):
        await service.turns.send(conversation.id, Question(f"Question {number}? " + "And so on. " * 60))
        await service.conversations.wait(conversation.id)
    sent = len(server.chats)
    caps = {"supports_tools": False, "supports_tool_calls": False}
    props = {"build_info": "b11549-toy", "total_slots": 1, "model_path": "toy.gguf", "chat_template_caps": caps}
    server.on("/props", reply(200, {**props, "default_generation_settings": {"n_ctx": 4096}}))
    later = make(server.url)
    found = await later.conversations.open(conversation.id)
    await later.servers.reach(found.id)
    link = later.servers.link(found.id)
    async with link.lane.chat(found.id, ends_spare=False):
        answer = await later.side_requests.at_the_end("memory", link, found, "New?", {"type": "text"}, 16)
    assert answer.state is State.ERROR and answer.note.kind == NoteKind.NO_TOOLS
    with pytest.raises(ChatError, match="has tools, and toy has none"):
        await later.compactor.compact(found.id)
    later.warm_up.enabled, later.conversations.looked_at = True, found.id
    before = len(server.visits)
    await later.warm_up.warm(found.id)
    assert not [one for one in server.visits[before:] if one.path in ("/apply-template", "/completion")]
    assert len(server.chats) == sent


async def test_undo_in_a_mended_fork_leads_to_nothing_that_cannot_be_sent(service, server: ToyServer):
    conversation = await stored(service, 1)
    fork = await service.branches.fork(conversation.id, conversation.path()[-1].id)
    mended = fork.path()
    assert not await service.branches.undo(fork.id)
    assert fork.path() == mended


async def test_stopped_after_another_window_has_left_the_branch_the_loop_is_closed(make, server: ToyServer):
    one, other = make(server.url), make(server.url)
    one.tools.can_ask = True
    waits = asyncio.Event()
    one.events.subscribe(lambda event: waits.set() if isinstance(event, ToolAsked) else None)
    server.on_chat(tokens("Hello.", prompt=20), calls(READ, READ), tokens("Otherwise.", prompt=30))
    conversation = await one.new_conversations.create(tools=["files"], reuse=False)
    await one.turns.send(conversation.id, Question("First?"))
    await one.conversations.wait(conversation.id)
    [_, first, *_] = conversation.path()
    await one.turns.send(conversation.id, Question("What does it say?"))
    async with asyncio.timeout(30):
        await waits.wait()
    await other.conversations.open(conversation.id)
    await other.turns.edit(conversation.id, first.id, "Something else?")
    await other.conversations.wait(conversation.id)
    await one.conversations.stop(conversation.id)
    tree = one.store.tree(conversation.id)
    results = [known for known in tree if known.role is Role.TOOL]
    assert [known.text for known in results] == [NOT_CARRIED_OUT, NOT_CARRIED_OUT]
    assert [known.role for known in tree.children(results[-1].id)] == [Role.ASSISTANT]
    assert one.store.conversation(conversation.id).head == other.conversations.load(conversation.id).record.head
    check_tree(tree)


@pytest.mark.parametrize("act", ["regenerate", "go_on", "ask_again_for", "delete_turn", "select", "walk", "fork"])
async def test_an_act_on_a_message_that_another_window_replaced_says_so(make, server: ToyServer, act: str):
    one, other = make(server.url), make(server.url)
    server.on_chat(error(400, "no luck"), tokens("Hello.", prompt=20))
    conversation = await one.new_conversations.create(tools=["files"], reuse=False)
    await one.turns.send(conversation.id, Question("First?"))
    await one.conversations.wait(conversation.id)
    failed = conversation.path()[-1].id
    await other.conversations.open(conversation.id)
    await other.turns.regenerate(conversation.id, failed)
    await other.conversations.wait(conversation.id)
    one.conversations.look_elsewhere()
    acts = {
        "regenerate": lambda: one.turns.regenerate(conversation.id, failed),
        "go_on": lambda: one.turns.go_on(conversation.id, failed),
        "ask_again_for": lambda: one.turns.ask_again_for(conversation.id, AlternativesRequest(2), failed),
        "delete_turn": lambda: one.branches.delete_turn(conversation.id, failed),
        "select": lambda: one.branches.select(conversation.id, failed),
        "walk": lambda: one.branches.walk(conversation.id, failed, 1),
        "fork": lambda: one.branches.fork(conversation.id, failed),
    }
    with pytest.raises(ChatError) as refused:
        await acts[act]()
    assert refused.value.problem is ChatProblem.REPLACED


@pytest.mark.slow
async def test_twenty_thousand_messages_with_loops_are_opened_and_gone_on_with(make, server: ToyServer):
    """Time counts, of this process alone: on the machine that this was written on it takes 2 s."""
    service = make(server.url)
    conversation = await service.new_conversations.create(tools=["files"], reuse=False)
    nodes = [*conversation.path()]
    while len(nodes) < 20_000:
        made = [ToolCall(f"id{len(nodes)}.{number}", "read_file", READ) for number in range(2)]
        said = [Message(Role.USER, f"Question {len(nodes)}?")]
        for call in made:
            said += [Message(Role.ASSISTANT, "I look.", calls=(call,)), Message(Role.TOOL, "A lamp.", calls=(call,))]
        for message in (*said, Message(Role.ASSISTANT, "A lamp.")):
            nodes.append(node(nodes[-1], message, nodes[-1].created + 1))
    await service.conversations.shared.add(
        conversation, nodes[1:], lambda row: replace(row, head=nodes[-1].id, turns=len(nodes) // 6), whole=True
    )
    later = make(server.url)
    began = time.process_time()
    found = await later.conversations.open(conversation.id)
    assert len(found.path()) == len(nodes)
    server.on_chat(tokens("Yes.", prompt=60))
    await later.turns.send(found.id, Question("Go on?"))
    await later.conversations.wait(found.id)
    await later.branches.undo(found.id)
    fork = await later.branches.fork(found.id, found.path()[-1].id)
    assert time.process_time() - began < 30
    assert fork.path() == found.path()
    assert len(server.chats[-1].json["messages"]) == len(nodes) + 1
    check_sent(server)
    check_tree(found.tree)
