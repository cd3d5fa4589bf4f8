"""A chat that is slowed, or an end that is held up, by the memory."""

from __future__ import annotations

import fcntl
import os
import time

from remembering_kit import remembering, said

from kvchat.memory.entry import Kind
from toyserver import ToyServer, tokens


async def test_the_end_of_the_app_does_not_wait_for_another_kvchat_that_hangs_in_a_sync(tmp_path):
    async with ToyServer(slots=2) as server:
        server.on_chat(tokens("Yes."))
        async with remembering(server.url, tmp_path) as service:
            await service.with_memories(lambda m: m.add("I keep bees in Bergen.", Kind.FACT))
            id = (await service.create("Be brief.")).id
            await service.open(id)
            hung = os.open(tmp_path / "memory-sync.lock", os.O_RDWR)  # another process, stopped while it syncs
            fcntl.flock(hung, fcntl.LOCK_EX)
            page = next(path for path in (tmp_path / "memory").rglob("*.md") if "log" not in path.parts)
            page.write_text(page.read_text() + "- I have a cat.\n")
            began = time.monotonic()
            await said(service, id, "Where do I keep bees?")
            asked = time.monotonic() - began
            began = time.monotonic()
            await service.aclose()
            took = time.monotonic() - began
            os.close(hung)
    assert asked < 1.0 and took < 3, f"the question took {asked:.1f} s, the end of the app {took:.1f} s"


async def test_the_first_question_of_a_run_has_its_memories_with_10_000_entries(tmp_path):
    async with ToyServer(slots=2) as server:
        server.on_chat(tokens("Yes."))
        folder = tmp_path / "memory" / "topics"
        folder.mkdir(parents=True)
        for page in range(20):
            (folder / f"page{page}.md").write_text(f"# Page {page}\n\n" + "".join(
                f"- Item {page * 500 + i} of the register lies in drawer {i} of cabinet {page}.\n" for i in range(500)))
        async with remembering(server.url, tmp_path) as service:
            await service.with_memories(lambda m: m.sync())
            await service.with_memories(lambda m: m.add("I keep my bees in Bergen.", Kind.FACT))
            await service.with_memories(lambda m: m.add("My lighthouse stands on Utsira.", page="profile.md"))
        async with remembering(server.url, tmp_path) as service:
            id = (await service.create("Be brief.")).id
            await service.open(id)
            began = time.monotonic()
            await said(service, id, "Where do I keep my bees?")
            took = time.monotonic() - began
            question = service.get(id).path()[1].wire.decode()
    assert "Utsira" in question, f"the first question of the run went out without the profile, after {took:.2f} s"
