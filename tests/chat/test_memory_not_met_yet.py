"""A server on this machine that was not met yet: `kvchat ask`, and the app's first question while a model loads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from remembering_kit import QUICK

from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import MemorySettings, Settings, changed
from kvchat.memory.entry import Kind
from kvchat.memory.memories import Memories
from kvchat.store import Store
from toyserver import ToyServer, tokens


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_first_question_has_its_memories(tmp_path, host):
    async with ToyServer(slots=2) as server:
        server.on_chat(tokens("In Bergen."))
        store = Store.open(tmp_path)
        settings = replace(changed(Settings(), "server.base_url", server.url.replace("127.0.0.1", host)),
                           memory=MemorySettings(**QUICK))
        service = ChatService(store, settings, lanes=tmp_path / "lanes", memories=lambda: Memories.open(
            store, tmp_path / "memory", tmp_path / "index.db", session="s"))
        try:
            await service.memory.with_memories(lambda m: m.add("I keep my bees in Bergen.", Kind.FACT))
            id = (await service.new_conversations.create("Be brief.")).id
            await service.turns.send(id, Question("Where do I keep my bees?"))
            await service.conversations.wait(id)
            wire = service.conversations.loaded[id].path()[1].wire
            assert b"Bergen" in wire, "it was taken for a service on the internet"
        finally:
            await service.aclose()
