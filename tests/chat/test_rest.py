"""What is done when nobody waits: the log goes into the database, a backup is made, and neither holds up a message."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvchat.chat import store_writer
from kvchat.chat.question import Question
from kvchat.store import Store, StoreUnavailable
from kvchat.text.problems import StoreProblem
from toyserver import tokens


def log_of(folder: Path) -> int:
    return (folder / "kvchat.db-wal").stat().st_size


async def test_when_nothing_is_written_the_log_goes_into_the_database(service, server, monkeypatch):
    monkeypatch.setattr(store_writer, "REST_SECONDS", 0.05)
    server.on_chat(tokens("Yes."))
    folder = service.store.database.path.parent
    tidied, loop, checkpoint = asyncio.Event(), asyncio.get_running_loop(), Store.checkpoint

    def tidy(store: Store) -> None:
        checkpoint(store)
        loop.call_soon_threadsafe(tidied.set)

    monkeypatch.setattr(service.writer, "_at_rest", lambda: tidy(service.store))
    conversation = await service.new_conversations.create()
    await service.turns.send(conversation.id, Question("hello"))
    await service.conversations.wait(conversation.id)
    async with asyncio.timeout(60):
        while log_of(folder):
            tidied.clear()
            await tidied.wait()
    assert [node.text for node in service.store.tree(conversation.id)][1:] == ["hello", "Yes."]


async def test_a_store_that_cannot_be_tidied_is_no_trouble(make, server, monkeypatch):
    monkeypatch.setattr(store_writer, "REST_SECONDS", 0.0)
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def refuse(store: Store) -> None:
        loop.call_soon_threadsafe(asked.set)
        raise StoreUnavailable(StoreProblem.LOCKED, where="kvchat.db")

    monkeypatch.setattr(Store, "at_rest", refuse)
    service = make(server.url)
    conversation = await service.new_conversations.create()
    async with asyncio.timeout(60):
        await asked.wait()
    await service.conversations.rename(conversation.id, "still written")
    assert service.conversations.find(conversation.id).title == "still written"


async def test_a_write_that_is_under_way_at_the_end_leaves_nothing_to_do_behind(monkeypatch):
    monkeypatch.setattr(store_writer, "REST_SECONDS", 0.0)
    troubles, begun, go = [], threading.Event(), threading.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
    writer = store_writer.StoreWriter(lambda _: None)

    def slow() -> None:
        begun.set()
        go.wait(60)

    write = asyncio.create_task(writer.call(slow))
    await asyncio.to_thread(begun.wait, 60)
    ending = asyncio.create_task(writer.aclose())
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(write, ending)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not troubles


async def test_a_message_does_not_wait_for_the_backup(service, server, monkeypatch):
    server.on_chat(tokens("Yes."))
    begun, go = threading.Event(), threading.Event()

    def slow(store: Store) -> None:
        begun.set()
        go.wait(60)

    monkeypatch.setattr(Store, "backup_if_due", slow)
    conversation = await service.new_conversations.create()
    tidying = asyncio.create_task(service.housekeeping.run())
    await asyncio.to_thread(begun.wait, 60)
    async with asyncio.timeout(60):
        await service.turns.send(conversation.id, Question("hello"))
        await service.conversations.wait(conversation.id)
    assert not tidying.done()
    go.set()
    await tidying


@pytest.mark.parametrize("hours", [(0, 1, 30), (0, 49)])
async def test_a_kvchat_that_stays_open_makes_a_backup_each_day(service, monkeypatch, hours):
    now = [1_700_000_000.0]
    monkeypatch.setattr(service.store, "_clock", lambda: now[0])
    folder = service.store.database.path.parent / "backups"
    for hour in hours:
        now[0] = 1_700_000_000.0 + hour * 3600
        await service.housekeeping.run()
    assert len(list(folder.iterdir())) == 2


async def trashed(make, clock) -> str:
    """A conversation that lies in the trash."""
    service = make("http://127.0.0.1:9")
    id = (await service.new_conversations.create()).id
    await service.conversations.delete(id)
    return id


@pytest.mark.parametrize(
    ("days", "is_there"),
    [
        ((400,), True),  # one start with the clock a year ahead
        ((400, 1), True),  # and the next with the right one
        ((1, 400, 2, 401, 3), True),  # a clock that comes and goes
        ((31,), True),
        ((31, 31), True),  # twice on a day
        ((31, 32), False),
        ((29, 31, 32), False),
    ],
)
async def test_the_trash_is_emptied_of_what_two_starts_on_two_days_found_old(make, clock, days, is_there):
    id, begun = await trashed(make, clock), clock.now
    for day in days:
        clock.now = begun + timedelta(days=day)
        service = make("http://127.0.0.1:9")
        await service.housekeeping.run()
    assert (service.store.known(id) is not None) is is_there


async def test_a_kvchat_that_stays_open_does_not_empty_it_on_its_own_word(make, clock):
    id, begun = await trashed(make, clock), clock.now
    service = make("http://127.0.0.1:9")
    for day in (400, 401, 402):
        clock.now = begun + timedelta(days=day)
        await service.housekeeping.run()
    assert service.store.known(id) is not None


async def test_a_kvchat_that_stays_open_counts_the_days(make, clock, monkeypatch):
    id, begun = await trashed(make, clock), clock.now
    passed = SimpleNamespace(monotonic=lambda: (clock.now - begun).total_seconds())
    for day in (1, 2):
        clock.now = begun + timedelta(days=day)
        service = make("http://127.0.0.1:9")
        monkeypatch.setattr("kvchat.chat.housekeeping.time", passed)
        await service.housekeeping.run()
    for day, is_there in ((30, True), (32, False)):
        clock.now = begun + timedelta(days=day)
        await service.housekeeping.run()
        assert (service.store.known(id) is not None) is is_there


async def test_the_backup_comes_before_the_trash_is_emptied(make, clock):
    id, begun = await trashed(make, clock), clock.now
    for day in (31, 32):
        clock.now = begun + timedelta(days=day)
        service = make("http://127.0.0.1:9")
        await service.housekeeping.run()
    assert service.store.known(id) is None
    newest = service.store.backup_if_due() or max((service.store.database.path.parent / "backups").iterdir())
    with closing(sqlite3.connect(newest)) as backup:
        assert backup.execute("SELECT count(*) FROM conversation WHERE id = ?", (id,)).fetchone() == (1,)


async def test_nothing_is_removed_where_the_backup_fails(make, clock, monkeypatch):
    id, begun = await trashed(make, clock), clock.now
    monkeypatch.setattr(
        Store, "backup_if_due", lambda store: (_ for _ in ()).throw(StoreUnavailable(StoreProblem.DISK_FULL, where="x"))
    )
    for day in (31, 32):
        clock.now = begun + timedelta(days=day)
        service = make("http://127.0.0.1:9")
        await service.housekeeping.run()
    assert service.store.known(id) is not None
