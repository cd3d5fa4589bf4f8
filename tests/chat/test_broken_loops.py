"""Histories whose calls and results are not whole: refused where they are sent, mended by a fork and by an import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.prompt.branching import grafted
from kvchat.prompt.message import Message, Node, Role, State, node
from kvchat.prompt.tools import INTERRUPTED, ToolCall
from kvchat.store import Store
from kvchat.text.problems import ChatProblem
from kvchat.transfer import lossless
from kvchat.transfer.formats import Source
from kvchat.transfer.importing.thread import ImportRefusal
from strict_history import check_branch, check_sent, check_tree
from toyserver import ToyServer, tokens

CALLS = tuple(ToolCall(f"id{number}", "read_file", json.dumps({"path": f"{number}.txt"})) for number in range(2))


def loop(root: Node) -> list[Node]:
    said = [Message(Role.USER, "What do they say?"), Message(Role.ASSISTANT, "Let me look.", calls=CALLS)]
    said += [Message(Role.TOOL, f"gave {call.id}", calls=(call,)) for call in CALLS]
    nodes = [root]
    for message in (*said, Message(Role.ASSISTANT, "Ada.")):
        nodes.append(node(nodes[-1], message, nodes[-1].created + 1))
    return nodes[1:]


def lacking(root: Node, *gone: int) -> list[Node]:
    """The turn without some of its messages."""
    made = [root]
    for at, one in enumerate(loop(root)):
        if at not in gone:
            made.append(grafted(made[-1], one))
    return made[1:]


async def stored(service, *gone: int):
    conversation = await service.new_conversations.create(tools=["files"], reuse=False)
    nodes = lacking(conversation.path()[0], *gone)
    await service.conversations.shared.add(
        conversation, nodes, lambda row: replace(row, head=nodes[-1].id, turns=1), whole=True
    )
    return conversation


@pytest.mark.parametrize("gone", [(1,), (2,), (3,), (0, 1), (1, 2), (2, 3), (0, 1, 2)])
async def test_what_no_server_takes_is_refused_and_its_fork_goes_on(service, server: ToyServer, gone):
    conversation = await stored(service, *gone)
    before = conversation.path()
    with pytest.raises(ChatError, match="Fork the conversation") as refused:
        await service.turns.send(conversation.id, Question("Go on?"))
    assert refused.value.problem is ChatProblem.CALLS_LOST
    assert conversation.path() == before and not server.chats, "nothing was sent or stored"
    fork = await service.branches.fork(conversation.id, before[-1].id)
    assert conversation.path() == before, "nothing is repaired behind the user's back"
    server.on_chat(tokens("Yes.", prompt=60))
    await service.turns.send(fork.id, Question("Go on?"))
    await service.conversations.wait(fork.id)
    assert fork.path()[-1].text == "Yes."
    check_sent(server)
    check_branch(fork.path())
    wires = [one.wire for one in fork.path()]
    assert [one for one in wires if one in {known.wire for known in before}] == [one.wire for one in before]


async def test_a_fork_of_what_is_whole_shares_its_messages(service, server: ToyServer):
    conversation = await stored(service)
    fork = await service.branches.fork(conversation.id, conversation.path()[-1].id)
    assert fork.path() == conversation.path()


def written(service, conversation, path: Path, change=lambda document: None) -> Path:
    source = Source(conversation.record, conversation.tree)
    document = {"format": lossless.DOCUMENT, "version": lossless.VERSION, "conversations": [lossless.fields_of(source)]}
    change(document["conversations"][0])
    path.write_text(lossless.dumps(document))
    return path


@pytest.mark.parametrize("gone", [(1,), (2,), (3,), (0, 1), (2, 3)])
async def test_an_import_mends_what_cannot_be_sent_and_keeps_every_word(
    make, service, server: ToyServer, tmp_path, gone
):
    conversation = await stored(service, *gone)
    file = written(service, conversation, tmp_path / "x.json")
    words = {one.wire for one in conversation.path()}
    await service.aclose()
    (tmp_path / "data").rename(tmp_path / "old")
    other = make(server.url)
    report = await other.imports.run([file])
    assert (report.made, report.skipped) == (1, {})
    found = await other.conversations.open(conversation.id)
    check_tree(found.tree)
    assert words <= {one.wire for one in found.path()}
    assert (await other.imports.run([file])).unchanged == 1
    server.on_chat(tokens("Yes.", prompt=60))
    await other.turns.send(found.id, Question("Go on?"))
    await other.conversations.wait(found.id)
    check_sent(server)


async def test_an_export_made_while_a_call_ran_says_that_it_is_unknown(make, service, server, tmp_path):
    conversation = await stored(service, 3, 4)
    [*_, last] = conversation.path()
    running = node(last, Message(Role.TOOL, "", calls=CALLS[1:]), last.created, state=State.STREAMING)
    await service.conversations.shared.add(conversation, [running], lambda row: replace(row, head=running.id), whole=1)
    file = written(service, conversation, tmp_path / "x.json")
    await service.aclose()
    (tmp_path / "data").rename(tmp_path / "old")
    other = make(server.url)
    await other.imports.run([file])
    found = await other.conversations.open(conversation.id)
    assert (found.path()[-1].text, found.path()[-1].state) == (INTERRUPTED, State.INTERRUPTED)
    check_tree(found.tree)


async def test_a_file_with_a_call_that_is_none_is_refused(make, service, server, tmp_path):
    conversation = await service.new_conversations.create(tools=["files"], reuse=False)
    path = loop(conversation.path()[0])
    broken = replace(path[1].message, calls=(replace(CALLS[0], arguments="{"),))
    call = node(path[0], broken, path[1].created)
    await service.conversations.shared.add(
        conversation, [path[0], call], lambda row: replace(row, head=call.id, turns=1), whole=True
    )
    file = written(service, conversation, tmp_path / "x.json")
    await service.aclose()
    (tmp_path / "data").rename(tmp_path / "old")
    report = await make(server.url).imports.run([file])
    assert [one.why.kind for one in report.skipped] == [ImportRefusal.INVALID]
    assert "arguments are not JSON" in str([one.why["why"] for one in report.skipped])
    assert Store.open(tmp_path / "data").conversations() == []
