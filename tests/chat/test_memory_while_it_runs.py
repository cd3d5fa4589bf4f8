"""What the person does while an extraction runs."""

from __future__ import annotations

import asyncio
import json
import time

from msgspec.structs import replace
from remembering_kit import is_extraction, passed_over, pending, remembering, said, until

from kvchat.chat.background.jobs import TYPING_S
from kvchat.chat.background.side_requests import SideRequests
from kvchat.chat.cache.warm_up import REST_S
from kvchat.memory.entry import Status
from kvchat.store.jobs import JobReason
from toyserver import SSE_HEAD, ToyServer, chunked, event, tokens

FACT = json.dumps(
    {"facts": [{"turns": [1], "text": "I keep bees in Bergen.", "kind": "fact", "topic": "", "confidence": 0.9}]}
)


class Held:
    """Answers of extractions wait for `go`."""

    def __init__(self, text: str = FACT) -> None:
        self.go, self.text, self.closed = asyncio.Event(), text, 0

    async def __call__(self, visit):
        if not is_extraction(visit):
            await tokens("Yes.")(visit)
            return
        gone, go = asyncio.create_task(visit.gone.wait()), asyncio.create_task(self.go.wait())
        await asyncio.wait({gone, go}, return_when=asyncio.FIRST_COMPLETED)
        self.closed += visit.gone.is_set()
        gone.cancel()
        go.cancel()
        if not visit.gone.is_set():
            await tokens(self.text)(visit)


async def noted(service):
    return [
        entry.text
        for status in (Status.LIVE, Status.PENDING)
        for entry in await service.memory.with_memories(lambda m, status=status: m.entries(status))
    ]


async def asked(service, server, held):
    id = (await service.new_conversations.create("Be brief.")).id
    await service.conversations.open(id)
    await said(service, id, "I keep bees in Bergen.")
    await service.extraction.request(id)
    await until(service, lambda: any(map(is_extraction, server.visits)))
    return id


async def ended(service, held):
    held.go.set()
    await until(service, lambda: not service.jobs.at_work())


async def test_it_works_when_nothing_comes_between(tmp_path):
    held = Held()
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path) as service:
        server.on_chat(held)
        await asked(service, server, held)
        await ended(service, held)
        assert await noted(service) == ["I keep bees in Bergen."]


async def test_memory_switched_off_while_it_runs(tmp_path):
    held = Held()
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path) as service:
        server.on_chat(held)
        id = await asked(service, server, held)
        await service.extraction.set_memory(id, False)
        await ended(service, held)
        assert await noted(service) == [], "it was noted after the person had switched memory off"
        assert held.closed, "the conversation went on being sent"


async def test_the_conversation_is_deleted_while_it_runs(tmp_path):
    held = Held()
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path) as service:
        server.on_chat(held)
        id = await asked(service, server, held)
        await service.conversations.delete(id)
        await ended(service, held)
        assert await noted(service) == [], "it was noted after the conversation was deleted"


async def test_what_is_asked_for_while_kvchat_looks_what_is_left_is_not_put_off(tmp_path):
    held = Held()
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, begin=False) as service:
        server.on_chat(held)
        id = (await service.new_conversations.create("Be brief.")).id
        await service.conversations.open(id)
        await said(service, id, "I keep bees in Bergen.")
        service.begin_background()
        service.jobs.typed_at = 0.0
        await service.extraction.request(id)
        await until(service, lambda: any(map(is_extraction, server.visits)), seconds=60)
        await ended(service, held)


async def test_a_conversation_that_was_left_waits_until_the_opened_one_was_read_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(SideRequests, "extends", lambda *_, **__: True)  # the server still holds it
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, typing_s=60) as service:
        server.on_chat(tokens("Yes."))
        first, second = [(await service.new_conversations.create("Be brief.", reuse=False)).id for _ in "ab"]
        await service.conversations.open(first)
        await said(service, first, "I keep bees in Bergen.")
        await service.conversations.open(second)
        await until(service, lambda: [job.why for job in service.jobs.all()] == [JobReason.LEFT])
        assert await service.jobs.begins_at(service.jobs.all()[0]) == service.jobs.typed_at + 60
        assert REST_S < TYPING_S


async def test_a_conversation_that_is_restored_is_gone_through(tmp_path):
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, idle_seconds=0.3) as service:
        server.on_chat(tokens(FACT))
        id = (await service.new_conversations.create("Be brief.")).id
        await service.conversations.open(id)
        await service.extraction.set_memory(id, False)
        await said(service, id, "I keep bees in Bergen.")
        await service.conversations.delete(id)
        await service.conversations.restore(id)
        await service.extraction.set_memory(id, True)
        await until(service, lambda: pending(service, id) == 0 or service.jobs.all())  # nothing waits in vain


async def test_an_extraction_asked_for_during_a_compaction_is_done_after_it(tmp_path):
    summary = asyncio.Event()
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path) as service:

        async def answer(visit):
            if is_extraction(visit):
                return await tokens('{"facts":[]}')(visit)
            if b"ummar" in visit.body.rpartition(b'"role":"user"')[2]:
                await summary.wait()
                return await tokens("They spoke of bees.")(visit)
            return await tokens("Yes. " * 60)(visit)

        server.on_chat(answer)
        id = (await service.new_conversations.create("Be brief.")).id
        await service.conversations.open(id)
        for turn in range(3):
            await said(service, id, f"I keep bees in Bergen. ({turn}) " + "So it is. " * 40)
        for job in service.jobs.all():
            service.store.jobs.done(job.kind, job.subject)
        before = len(server.visits)
        compacting = asyncio.create_task(service.compactor.compact(id))
        await server.until(lambda: len(server.visits) > before)
        await service.extraction.request(id)
        await passed_over(service)
        summary.set()
        await asyncio.wait({compacting})
        assert compacting.exception() is None, compacting.exception()
        await until(service, lambda: any(map(is_extraction, server.visits)))


async def test_an_extraction_that_is_ended_early_has_its_row_in_the_ledger(tmp_path):
    held = Held()
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path) as service:
        server.on_chat(held)
        id = await asked(service, server, held)
        await said(service, id, "And wasps?")
        await until(service, lambda: held.closed == 1 and service.store.side_requests.all(kind="extraction"))
        assert [row.outcome for row in service.store.side_requests.all(kind="extraction")][:1] == ["cancelled"]


async def test_an_answer_without_an_end_is_given_up(tmp_path):
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path) as service:
        sent = 0

        async def answer(visit):
            nonlocal sent
            if not is_extraction(visit):
                await tokens("Yes.")(visit)
                return
            await visit.send(SSE_HEAD)
            while not visit.gone.is_set():
                await visit.send(
                    chunked(
                        event({"choices": [{"index": 0, "delta": {"content": "word " * 200}, "finish_reason": None}]})
                    )
                )
                sent += 200
                await asyncio.sleep(0.005)

        server.on_chat(answer)
        await asked(service, server, None)
        await until(service, lambda: not service.jobs.at_work() or sent >= 50_000)
        assert sent < 50_000, f"{sent} words of an answer that was to have 480 tokens at most, and it goes on"


async def test_with_no_rest_it_begins_when_nobody_types_all_the_same(tmp_path):
    async with (
        ToyServer(slots=2) as server,
        remembering(server.url, tmp_path, rest_seconds=0, every_messages=2, typing_s=3600.0) as service,
    ):
        server.on_chat(tokens('{"facts":[]}'))
        id = (await service.new_conversations.create("Be brief.")).id
        await service.conversations.open(id)
        service.jobs.typed()
        await said(service, id, "I keep bees in Bergen.")
        await until(service, service.jobs.all)
        for _ in range(30):
            service.jobs.typed()
            service.jobs.wake()
            await asyncio.sleep(0.01)
        assert not any(map(is_extraction, server.visits)), "it began while the person was typing"
        service.jobs.typed_at = 0.0  # the typing was long ago
        service.jobs.wake()
        await until(service, lambda: not service.jobs.all())
        assert any(map(is_extraction, server.visits))


async def test_without_a_rest_what_only_rests_waits_out_the_idle_time_after_the_last_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(SideRequests, "extends", lambda *_, **__: True)  # the server still holds it
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, idle_seconds=60) as service:
        server.on_chat(tokens("Yes."))
        id = (await service.new_conversations.create("Be brief.")).id
        await service.conversations.open(id)
        await said(service, id, "I keep bees in Bergen.")
        await until(service, service.jobs.all)
        (job,) = service.jobs.all()
        assert job.why == JobReason.RESTS
        late = replace(job, due=time.time() - 1)  # it was due while the next answer ran
        for why in (JobReason.RESTS, ""):  # "": put into the queue while it was worked on
            begins = await service.jobs.begins_at(replace(late, why=why))
            assert begins is not None and begins >= service.servers.link(id).lane.quiet_since + 60
