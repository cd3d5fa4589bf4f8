"""What is kept in memory does not grow with all that was ever looked at."""

from __future__ import annotations

import gc

import pytest

from engine_fixture import running_server
from kvchat.backends.dialect import HostClass, ServerInfo
from kvchat.chat.cache.shared_prefixes import SharedPrefixes
from kvchat.chat.conversations.conversations import KEPT
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.message import Message, Node, Role, node, system_message
from kvchat.prompt.request import Parameters
from kvchat.reports.warmth import Heat
from kvchat.store import Store, StoreUnavailable
from kvchat.text.problems import StoreProblem
from toyserver import tokens


def alive(kind: type) -> int:
    gc.collect()
    return sum(isinstance(found, kind) for found in gc.get_objects())


@pytest.mark.slow
async def test_conversations_that_nobody_looks_at_any_more_are_let_go(service, server):
    server.on_chat(tokens("Yes."))
    conversations, messages = alive(OpenConversation), alive(Node)
    first = (await service.new_conversations.create()).id
    for number in range(3 * KEPT):
        id = first if number == 0 else (await service.new_conversations.create()).id
        await service.turns.send(id, Question(f"question {number}"))
        await service.conversations.wait(id)
    assert alive(OpenConversation) - conversations <= KEPT + 1
    assert alive(Node) - messages <= 3 * (KEPT + 1)
    assert [node.text for node in (await service.conversations.open(first)).path()][1:] == ["question 0", "Yes."]


async def test_one_that_somebody_holds_stays_the_same_for_all(service, server):
    server.on_chat(tokens("Yes."))
    held = await service.new_conversations.create()
    await service.turns.send(held.id, Question("still here?"))
    await service.conversations.wait(held.id)
    for _ in range(2 * KEPT):
        await service.new_conversations.create(reuse=False)
    await service.conversations.rename(held.id, "held")
    assert held.record.title == "held"
    assert await service.conversations.open(held.id) is held


async def test_what_the_disk_refused_is_never_let_go(service, monkeypatch):
    ids = [(await service.new_conversations.create(reuse=False)).id for _ in range(2 * KEPT)]

    def full(*_: object) -> None:
        raise StoreUnavailable(StoreProblem.DISK_FULL, where="kvchat.db")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "set_draft", full)
        for id in ids:
            await service.conversations.set_draft(id, f"draft of {id}")
        drafts = [held and held.draft for held in map(service.conversations.get, ids)]
        assert drafts == [f"draft of {id}" for id in ids]
    assert not await service.conversations.unsaved.retry()
    await service.conversations.open(ids[0])
    assert sum(service.conversations.get(id) is not None for id in ids) <= KEPT + 1
    assert [service.store.draft(id) for id in ids] == [f"draft of {id}" for id in ids]


def test_a_server_that_cannot_be_followed_is_not_thought_to_hold_all_that_was_ever_sent():
    info = ServerInfo("vllm", "http://127.0.0.1:9", HostClass.LOOPBACK)
    shared, paths = SharedPrefixes(info), []
    for number in range(200):
        root = node(None, system_message(f"{number}"), 0.0)
        path = [root, node(root, Message(Role.USER, f"{number} " + "word " * 4000), 0.0)]
        shared.sent(path, 1.0)
        shared.answered(node(path[-1], Message(Role.ASSISTANT, "Yes."), 0.0), 1.0)
        paths.append(path)
    assert shared.warmth(paths[-1], 2.0).heat is Heat.WARM
    assert shared.warmth(paths[0], 2.0).heat is Heat.COLD


@pytest.mark.engine
async def test_of_a_followed_server_the_branches_are_noted_that_were_answered_last(tmp_path, monkeypatch):
    monkeypatch.setattr("kvchat.chat.cache.server_cache.KEPT_HEADS", 2)
    with running_server(context=2048) as server:
        service = ChatService(Store.open(tmp_path / "data"), changed(Settings(), "server.base_url", server.base_url))
        service.warm_up.enabled = False
        try:
            await service.servers.connect()
            made = [await service.new_conversations.create(reuse=False) for _ in range(4)]
            for conversation in (*made, made[2]):
                await service.turns.send(conversation.id, Question("Hello?"), parameters=Parameters(max_tokens=2))
                await service.conversations.wait(conversation.id)
                cache = service.servers.link().cache
                await cache.settled()
            assert cache.heads == {
                one.id: tuple(node.digest.hex() for node in one.path()) for one in (made[3], made[2])
            }
        finally:
            await service.aclose()
