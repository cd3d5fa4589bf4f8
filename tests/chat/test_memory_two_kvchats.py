"""Two kvchats on one store, while one of them works in the jobs."""

from __future__ import annotations

import asyncio

from remembering_kit import is_extraction, passed_over, remembering, said, until
from test_memory_while_it_runs import Held, noted

from kvchat.chat.background import jobs
from kvchat.chat.server.lane import Lane
from kvchat.memory.ledger import ExtractionLedger
from kvchat.store.presence import server_presence as seats
from kvchat.store.presence.server_presence import ServerLock
from toyserver import ToyServer
from two_windows_kit import Slow, streaming


async def begun(one, server):
    id = (await one.new_conversations.create("Be brief.")).id
    await one.conversations.open(id)
    await said(one, id, "I keep bees in Bergen.")
    await one.extraction.request(id)
    await until(one, lambda: any(map(is_extraction, server.visits)))
    return id


async def test_memory_is_switched_off_in_the_other_one(tmp_path):
    held = Held()
    async with (
        ToyServer(slots=2) as server,
        remembering(server.url, tmp_path) as one,
        remembering(server.url, tmp_path, begin=False) as other,
    ):
        server.on_chat(held)
        id = await begun(one, server)
        other.refresh()
        await other.extraction.set_memory(id, False)
        held.go.set()
        await until(one, lambda: not one.jobs.at_work())
        assert await noted(one) == [], "noted though memory is off for it in the store"


async def test_the_conversation_is_deleted_in_the_other_one(tmp_path):
    held = Held()
    async with (
        ToyServer(slots=2) as server,
        remembering(server.url, tmp_path) as one,
        remembering(server.url, tmp_path, begin=False) as other,
    ):
        server.on_chat(held)
        id = await begun(one, server)
        other.refresh()
        await other.conversations.delete(id)
        held.go.set()
        await until(one, lambda: not one.jobs.at_work())
        assert await noted(one) == [], "noted though the conversation lies in the trash"


async def test_a_chat_that_did_not_get_its_seat_in_time_has_it_as_soon_as_it_is_free(tmp_path, monkeypatch):
    """The other kvchat was stopped (Ctrl+Z) and goes on (fg) while an answer streams here."""
    monkeypatch.setattr(seats, "PATIENCE_S", 0.2)
    path = tmp_path / "s.lane"
    stopped, mine = ServerLock(path), Lane(ServerLock(path))
    assert stopped.take(lambda: None)
    async with mine.chat("a"):
        stopped.leave()  # it goes on, hears the bell and ends what it did ...
        async with asyncio.timeout(120):
            while stopped.take(lambda: None):  # ... and looks for the next job, until the answer here has its seat
                stopped.leave()
                await asyncio.sleep(0.01)


async def test_after_one_that_hung_the_next_ones_are_waited_for(tmp_path, monkeypatch):
    """One chat has waited in vain; the one after it goes out when the other's request is closed, and not before."""
    monkeypatch.setattr(seats, "PATIENCE_S", 0.2)
    path = tmp_path / "s.lane"
    stopped, mine = ServerLock(path), Lane(ServerLock(path))
    assert stopped.take(lambda: None)
    async with mine.chat("a"):
        pass
    stopped.leave()
    monkeypatch.setattr(seats, "PATIENCE_S", 5.0)
    monkeypatch.setattr(seats, "BRIEF_S", 5.0)
    theirs, began, closed = Lane(ServerLock(path)), asyncio.Event(), False

    async def work():
        nonlocal closed
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            closed = True

    async with asyncio.timeout(120):
        while not began.is_set():  # what came too late for the first chat is let go of first
            running = asyncio.create_task(theirs.in_background(work()))
            await asyncio.wait({running, asyncio.create_task(began.wait())}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0.01)
    async with mine.chat("b"):
        assert closed, "the chat goes out while the other kvchat's request is in flight"
    await asyncio.wait({running})


async def test_a_job_that_another_kvchat_gave_back_is_done_when_the_person_asks_for_it(tmp_path, monkeypatch):
    """It is left alone for a while after a claim in vain, whatever becomes of it."""
    monkeypatch.setattr(jobs, "ELSEWHERE_S", 3600.0)
    held = Held('{"facts":[]}')
    async with ToyServer(slots=2) as server:
        server.on_chat(held)
        async with remembering(server.url, tmp_path) as other:
            async with remembering(server.url, tmp_path) as one:
                id = await begun(one, server)
                other.refresh()
                await other.conversations.open(id)
                await passed_over(other)
            held.go.set()  # the first kvchat has ended, its job is back in the queue
            await other.extraction.request(id)
            await until(other, lambda: not other.jobs.all() and not other.jobs.at_work())


async def test_what_two_windows_say_on_branches_of_their_own_is_all_gone_through(tmp_path):
    async with ToyServer(slots=2) as server:
        server.on_chat(Held('{"facts":[]}'))
        server._chat[0].go.set()
        async with (
            remembering(server.url, tmp_path, begin=False) as one,
            remembering(server.url, tmp_path, begin=False) as other,
        ):
            id = (await one.new_conversations.create("Be brief.")).id
            await said(one, id, "I keep bees in Bergen.")
            await other.conversations.open(id)
            first = other.conversations.get(id).path()[1].id
            await other.turns.edit(id, first, "I keep wasps in Oslo.")
            await other.conversations.wait(id)
            await said(one, id, "My bees like my heather.")
            await said(other, id, "My wasps like my jam.")
        async with remembering(server.url, tmp_path) as later:
            await until(later, lambda: id in {job.subject for job in later.jobs.all()})
            for _ in range(2):  # one branch after the other
                before = gone_through(later)
                await later.extraction.request(id)
                await until(later, lambda before=before: gone_through(later) > before and not later.jobs.at_work())
            assert ExtractionLedger(later.store.database).behind() == []
            found = gone_through(later)
    assert found == {
        "I keep bees in Bergen.",
        "I keep wasps in Oslo.",
        "My bees like my heather.",
        "My wasps like my jam.",
    }


async def test_what_was_said_in_another_window_while_memory_was_off_is_passed_over(tmp_path):
    async with ToyServer(slots=2) as server:
        server.on_chat(Held('{"facts":[]}'))
        async with (
            remembering(server.url, tmp_path, begin=False) as one,
            remembering(server.url, tmp_path, begin=False) as other,
        ):
            id = (await one.new_conversations.create("Be brief.")).id
            await said(one, id, "I keep bees in Bergen.")
            await other.conversations.open(id)
            await other.extraction.set_memory(id, False)
            await said(other, id, "I have a secret.")
            await one.extraction.set_memory(id, True)
            waiting = ExtractionLedger(one.store.database).pending(one.conversations.get(id).path())
            assert [node.text for node in waiting] == ["I keep bees in Bergen.", "Yes."]
            assert ExtractionLedger(one.store.database).behind() == [(id, 2)]


async def test_an_unfinished_reply_of_another_kvchat_goes_with_no_extraction(tmp_path):
    slow = Slow()
    async with (
        ToyServer(slots=2) as server,
        remembering(server.url, tmp_path) as one,
        remembering(server.url, tmp_path, begin=False) as other,
    ):
        server.on_chat(Held('{"facts":[]}'))
        server._chat[0].go.set()
        id = (await one.new_conversations.create("Be brief.")).id
        await said(one, id, "I keep bees in Bergen.")
        await other.conversations.open(id)
        await streaming(other, server, id, "And wasps?", slow)
        one.refresh()
        assert one.conversations.answered_elsewhere(id)
        server.on_chat(Held('{"facts":[]}'))
        server._chat[0].go.set()
        await one.extraction.request(id)
        slow.go.set()
        await other.conversations.wait(id)
        one.refresh()
        await until(one, lambda: gone_through(one) >= {"I keep bees in Bergen.", "And wasps?"})
        sent = [message["content"] for visit in server.chats for message in visit.json["messages"]]
        assert "" not in sent and "half " not in sent


def gone_through(service):
    return {
        row[0]
        for row in service.store.database.rows(
            "SELECT text FROM covered JOIN node ON node.id = covered.node WHERE role = 'user'"
        )
    }
