"""Tidying starts when everything has rested, once, and never beside anything; it survives errors and ends at once."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from remembering_kit import until

from kvchat.chat.background import jobs
from kvchat.chat.background.consolidation import CONSOLIDATION
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import MemorySettings, Settings, changed
from kvchat.memory.memories import Memories
from kvchat.store import Store
from toyserver import ToyServer, tokens

pytestmark = pytest.mark.slow  # what rests is waited for

IDLE = 0.4
"""Stands for the 60 seconds of the settings."""


@pytest.fixture
async def resting(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "TYPING_S", IDLE)
    async with ToyServer(slots=2) as server:
        store = Store.open(tmp_path / "data")
        settings = replace(
            changed(Settings(), "server.base_url", server.url), memory=MemorySettings(rest_seconds=0, idle_seconds=IDLE)
        )  # type: ignore[arg-type]
        service = ChatService(
            store,
            settings,
            lanes=tmp_path / "lanes",
            memories=lambda: Memories.open(
                store, tmp_path / "memory", tmp_path / "index.db", session=service.memory.session
            ),
        )
        service.runs, service.beside, service.trouble = [], [], []
        fresh = service.consolidation._fresh_pages

        def counted(memories):
            """Notes when tidying began, and what ran then."""
            service.runs.append(time.time())
            service.beside.append(bool(service.conversations.streaming()))
            if service.trouble:
                raise service.trouble.pop()
            return fresh(memories)

        monkeypatch.setattr(service.consolidation, "_fresh_pages", counted)
        service.jobs.enabled = service.servers.connects_ahead = True
        id = (await service.new_conversations.create()).id
        await service.servers.connect()
        service.store.jobs.put("extraction", id, time.time() + 600)  # not what is looked at here
        try:
            yield service, server, id
        finally:
            await service.aclose()


def put(service):
    service.store.jobs.put(CONSOLIDATION, "", 0.0)


def waits(service):
    return [job for job in service.jobs.all() if job.kind == CONSOLIDATION]


async def test_a_long_answer_starts_none_and_rest_starts_exactly_one(resting):
    service, server, id = resting
    put(service)
    server.on_chat(tokens("long", hang_after=1))
    service.begin_background()
    await service.turns.send(id, Question("Tell me at length."))
    await server.until(lambda: server.posts == 1)
    await asyncio.sleep(IDLE * 1.5)
    assert service.runs == [], "it ran beside an answer"
    server.on_chat(tokens('{"facts": []}'))  # what was said is gone through first
    stopped = time.time()
    await service.conversations.stop(id)
    ended = service.servers.link(id).lane.quiet_since
    assert ended >= stopped
    await until(service, lambda: not waits(service) and not service.jobs.at_work())
    assert len(service.runs) == 1 and service.beside == [False]
    assert service.runs[0] >= ended + IDLE * 0.9, "the time was counted from the beginning of the answer"
    await asyncio.sleep(IDLE * 1.5)
    assert len(service.runs) == 1


async def test_typing_and_another_answer_put_it_off(resting):
    service, server, id = resting
    server.on_chat(tokens("short"))
    put(service)
    service.begin_background()
    typed = time.time()
    for _ in range(4):
        await asyncio.sleep(IDLE * 0.5)
        if time.time() - typed > IDLE * 0.9:
            pytest.skip("the machine is too busy for somebody who types")
        await service.conversations.set_draft(id, "hm")
        typed = time.time()
    assert service.runs == []
    await until(service, lambda: not waits(service))
    assert service.runs[0] >= service.jobs.typed_at + IDLE * 0.9


async def test_an_error_is_tried_again_and_the_app_lives(resting, monkeypatch):
    service, server, id = resting
    monkeypatch.setattr(jobs, "BACK_OFF_S", 0.0)
    service.trouble[:] = [ValueError("a bug"), OSError("no disk")]
    put(service)
    service.begin_background()
    await until(service, lambda: len(service.runs) == 3 and not waits(service))
    server.on_chat(tokens("still", " here"))
    await service.turns.send(id, Question("Are you there?"))
    await service.conversations.wait(id)
    assert service.conversations.get(id).path()[-1].text == "still here"


async def test_it_ends_with_the_app_and_goes_on_with_the_next(resting, tmp_path):
    service, _, _ = resting
    put(service)
    began, go_on = asyncio.Event(), asyncio.Event()

    async def endless(job, lane):
        began.set()
        await go_on.wait()

    service.consolidation.work_on = endless
    service.begin_background()
    await asyncio.wait_for(began.wait(), 120)
    before = asyncio.all_tasks()
    async with asyncio.timeout(120):
        await service.aclose()
    left = {task for task in before & asyncio.all_tasks() if not task.done() and task is not asyncio.current_task()}
    assert not [task for task in left if "chat/jobs" in repr(task.get_coro())]
    store = Store.open(tmp_path / "data")
    assert [job.state.value for job in store.jobs.all() if job.kind == CONSOLIDATION] == ["waiting"]
    store.close()
