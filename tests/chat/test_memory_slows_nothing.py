"""A chat that is slowed, or an end that is held up, by the memory."""

from __future__ import annotations

import asyncio
import fcntl
import os

import pytest
from remembering_kit import remembering, said

from kvchat.chat.background import memory_service as remembering_parts
from kvchat.memory.entry import Kind
from toyserver import ToyServer, tokens


@pytest.mark.slow
async def test_the_end_of_the_app_does_not_wait_for_another_kvchat_that_hangs_in_a_sync(tmp_path):
    async with ToyServer(slots=2) as server:
        server.on_chat(tokens("Yes."))
        async with remembering(server.url, tmp_path) as service:
            await service.memory.with_memories(lambda m: m.add("I keep bees in Bergen.", Kind.FACT))
            id = (await service.new_conversations.create("Be brief.")).id
            await service.conversations.open(id)
            hung = os.open(tmp_path / "memory-sync.lock", os.O_RDWR)  # another process, stopped while it syncs
            fcntl.flock(hung, fcntl.LOCK_EX)
            page = next(path for path in (tmp_path / "memory").rglob("*.md") if "log" not in path.parts)
            page.write_text(page.read_text() + "- I have a cat.\n")
            async with asyncio.timeout(60):  # it hangs for ever
                await said(service, id, "Where do I keep bees?")
                await service.aclose()
            os.close(hung)


@pytest.mark.slow
async def test_the_first_question_of_a_run_has_its_memories_with_10_000_entries(tmp_path, monkeypatch):
    monkeypatch.setattr(remembering_parts, "FIRST_RECALL_S", 120.0)  # the machine may be busy
    async with ToyServer(slots=2) as server:
        server.on_chat(tokens("Yes."))
        folder = tmp_path / "memory" / "topics"
        folder.mkdir(parents=True)
        for page in range(20):
            (folder / f"page{page}.md").write_text(
                f"# Page {page}\n\n"
                + "".join(
                    f"- Item {page * 500 + i} of the register lies in drawer {i} of cabinet {page}.\n"
                    for i in range(500)
                )
            )
        async with remembering(server.url, tmp_path) as service:
            await service.memory.with_memories(lambda m: m.sync())
            await service.memory.with_memories(lambda m: m.add("I keep my bees in Bergen.", Kind.FACT))
            await service.memory.with_memories(lambda m: m.add("My lighthouse stands on Utsira.", page="profile.md"))
        async with remembering(server.url, tmp_path) as service:
            id = (await service.new_conversations.create("Be brief.")).id
            await service.conversations.open(id)
            await said(service, id, "Where do I keep my bees?")
            question = service.conversations.get(id).path()[1].wire.decode()
    assert "Utsira" in question, "the first question of the run went out without the profile"
