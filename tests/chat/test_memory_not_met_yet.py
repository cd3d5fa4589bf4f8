"""A first question: at a server on this machine that was not met yet, as with `kvchat ask` and in the app while a model
loads; and where nothing was ever remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from remembering_kit import QUICK

from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import MemorySettings, Settings, changed
from kvchat.memory.entry import Kind
from kvchat.memory.memories import Memories, open_memories
from kvchat.memory.place import is_untouched
from kvchat.paths import Paths
from kvchat.store import Store
from toyserver import ToyServer, tokens


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_first_question_has_its_memories(tmp_path, host):
    async with ToyServer(slots=2) as server:
        server.on_chat(tokens("In Bergen."))
        store = Store.open(tmp_path)
        settings = replace(
            changed(Settings(), "server.base_url", server.url.replace("127.0.0.1", host)),
            memory=MemorySettings(**QUICK),
        )
        service = ChatService(
            store,
            settings,
            lanes=tmp_path / "lanes",
            memories=lambda: Memories.open(store, tmp_path / "memory", tmp_path / "index.db", session="s"),
        )
        try:
            await service.memory.with_memories(lambda m: m.add("I keep my bees in Bergen.", Kind.FACT))
            id = (await service.new_conversations.create("Be brief.")).id
            await service.turns.send(id, Question("Where do I keep my bees?"))
            await service.conversations.wait(id)
            wire = service.conversations.loaded[id].path()[1].wire
            assert b"Bergen" in wire, "it was taken for a service on the internet"
        finally:
            await service.aclose()


async def test_a_memory_that_nothing_was_put_into_is_not_opened_and_is_when_another_kvchat_put_something(tmp_path):
    async with ToyServer(slots=2) as server:
        for answer in ("I do not know.", "In Bergen."):
            server.on_chat(tokens(answer))
        settings = replace(changed(Settings(), "server.base_url", server.url), memory=MemorySettings(**QUICK))
        store, other = Store.open(tmp_path), Store.open(tmp_path)
        places, opened = Paths(tmp_path, tmp_path / "config.toml", tmp_path / "cache"), []

        def memories():
            opened.append(open_memories(places, settings, store, "s"))
            return opened[-1]

        service = ChatService(
            store,
            settings,
            lanes=tmp_path / "lanes",
            memories=memories,
            memory_is_untouched=lambda: is_untouched(places, settings, store),
        )
        try:
            id = (await service.new_conversations.create("Be brief.")).id
            await service.turns.send(id, Question("Where do I keep my bees?"))
            await service.conversations.wait(id)
            assert not opened
            elsewhere = open_memories(places, settings, other, "t")
            elsewhere.add("I keep my bees in Bergen.", Kind.FACT)
            elsewhere.close()
            await service.turns.send(id, Question("Where are my bees?"))
            await service.conversations.wait(id)
            assert b"Bergen" in service.conversations.loaded[id].path()[3].wire
        finally:
            await service.aclose()
            other.close()
