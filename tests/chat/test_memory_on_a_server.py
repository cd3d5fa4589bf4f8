"""Memory on a real server with a real model: it works when nobody asks, costs its instruction, and misses nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("xllamacpp")

from remembering_kit import pending, remembering, said, until

from engine_fixture import running_server
from kvchat.chat.events import MemoriesNoted
from kvchat.memory.entry import Status
from kvchat.memory.ledger import ExtractionLedger
from kvchat.prompt.message import Role
from recorder import Recorder, recording

pytestmark = pytest.mark.engine
SAID = (
    "My name is Tove and I live in Bergen.",
    "I keep the log of a lighthouse.",
    "The lamp turns every twelve seconds.",
    "I prefer short answers.",
    "My sister Ida repairs clocks.",
    "We decided to paint the tower white.",
    "I am learning Rust this winter.",
    "What is a good name for a boat?",
)


@pytest.fixture
async def recorder() -> AsyncIterator[Recorder]:
    with running_server(slots=1, context=8192, cache_ram=0) as server:
        async with recording(server.base_url) as recorder:
            yield recorder


async def test_thirty_turns_with_questions_at_random_moments_have_no_work_beside_them_and_all_is_gone_through(
    recorder, tmp_path
):
    chance = random.Random(7)
    async with remembering(recorder.base_url, tmp_path) as service:
        id = (await service.new_conversations.create("Be brief.")).id
        for turn in range(30):
            await said(service, id, f"{SAID[turn % len(SAID)]} ({turn})")
            if turn % 2:  # an extraction is due: the next question comes before, in, or after it
                await asyncio.sleep(chance.choice((0, 0, 0.05, 0.2, 0.6, 1.2)))
        await service.extraction.request(id)
        await until(service, lambda: not pending(service, id) and not service.jobs.at_work())
        runs = ExtractionLedger(service.store.database).runs(id)
    called_off = [request for request in recorder.background if not request.is_whole]
    assert len(recorder.chats) == 30 and runs
    assert called_off, "no question came while an extraction ran: the test shows nothing"
    assert [request for request in recorder.requests if request.beside] == []


async def test_two_kvchats_do_not_work_beside_each_others_answers(recorder, tmp_path):
    chance = random.Random(11)
    async with remembering(recorder.base_url, tmp_path) as one, remembering(recorder.base_url, tmp_path) as other:
        services = [one, other]
        ids = [(await service.new_conversations.create("Be brief.", reuse=False)).id for service in services]
        for turn in range(8):
            for service, id in zip(services, ids, strict=True):
                await said(service, id, SAID[turn % len(SAID)])
                await asyncio.sleep(chance.choice((0, 0.05, 0.3)))
        for service, id in zip(services, ids, strict=True):
            if pending(service, id):
                await service.extraction.request(id)
            await until(service, lambda service=service, id=id: not pending(service, id))
    beside = [
        request
        for request in recorder.requests
        if request.beside
        and (
            request.is_background
            or any(
                other.is_background
                for other in recorder.requests
                if other is not request and other.began < request.began and (other.ended or 0) > request.began
            )
        )
    ]
    assert recorder.background and not beside


async def test_an_extraction_costs_its_instruction_and_the_turn_after_it_costs_nothing_more(recorder, tmp_path):
    async with remembering(recorder.base_url, tmp_path) as service:
        id = (await service.new_conversations.create("You are the keeper's clerk. " * 40)).id
        after = []
        for turn in range(8):
            await said(service, id, f"{SAID[turn]}")
            if turn and recorder.requests[-2].is_background:
                after.append(service.conversations.get(id).path()[-1].figures)
            await until(service, lambda: not service.jobs.at_work() and pending(service, id) < 4)
    assert len(recorder.background) >= 3 and len(after) >= 2
    for request in recorder.background:
        instruction = request.body["messages"][-1]["content"]
        assert request.figures["prompt_n"] <= len(instruction) // 3 + 40, request.figures
        assert request.figures["cache_n"] > 300
    for figures in after:
        assert figures.evaluated_tokens <= figures.new_tokens + 8, figures


async def test_what_is_remembered_stands_in_the_question_once_and_never_in_the_system_message(recorder, tmp_path):
    told = []
    async with remembering(recorder.base_url, tmp_path) as service:
        service.events.subscribe(lambda event: told.append(event) if isinstance(event, MemoriesNoted) else None)
        await service.memory.with_memories(lambda m: m.add("I prefer metric units."))
        await service.memory.with_memories(lambda m: m.add("My lighthouse stands on Utsira.", page="profile.md"))
        id = (await service.new_conversations.create("Be brief.")).id
        await said(service, id, "How long is a mile in metric units?")
        question = next(node for node in service.conversations.get(id).path() if node.role is Role.USER)
        system = service.conversations.get(id).path()[0]
        assert "metric units" in question.wire.decode() and "Utsira" in question.wire.decode()
        assert "metric" not in system.text and "Utsira" not in system.text
        await said(service, id, "And a yard, in metric units?")
        again = [node for node in service.conversations.get(id).path() if node.role is Role.USER][1]
        assert "I prefer metric units." not in again.wire.decode(), "a memory came twice on one branch"
        await service.extraction.set_memory(id, False)
        other = (await service.new_conversations.create("Be brief.", reuse=False)).id
        await service.extraction.set_memory(other, False)
        await said(service, other, "How long is an inch in metric units?")
        assert "I prefer metric units." not in service.conversations.get(other).path()[1].wire.decode()
        assert service.conversations.get(other).path()[0].wire == system.wire


async def test_a_model_that_gives_junk_gets_none_of_it_into_the_profile_and_all_of_it_can_be_undone(recorder, tmp_path):
    async with remembering(recorder.base_url, tmp_path) as service:
        for round in range(3):
            id = (await service.new_conversations.create("Be brief.", reuse=False)).id
            for turn in range(4):
                await said(service, id, SAID[(round * 4 + turn) % len(SAID)])
            await service.extraction.request(id) if pending(service, id) else None
            await until(service, lambda id=id: not pending(service, id))
        profile = await service.memory.with_memories(lambda m: m.profile())
        assert profile == []
        live = await service.memory.with_memories(lambda m: m.entries())
        for entry in live:
            assert entry.confidence is not None and entry.nodes
        await service.memory.with_memories(lambda m: m.undo_all(session=service.memory.session))
        for status in (Status.LIVE, Status.PENDING):
            assert await service.memory.with_memories(lambda m, status=status: m.entries(status)) == []
        texts = [path.read_text() for path in (tmp_path / "memory").rglob("*.md") if "log" not in path.parts]
        assert not any(entry.text in text for entry in live for text in texts)
