"""What the disk refuses is not lost: it waits in order, and goes to a file elsewhere when kvchat has to end."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvchat.chat.background.memory_service import MemoryService
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.chat.store_writer import StoreWriter
from kvchat.prompt.drafts import Draft, Unsent
from kvchat.prompt.message import State
from kvchat.store import Store, StoreError, StoreUnavailable
from kvchat.text.problems import StoreProblem
from kvchat.transfer.formats import Source, TransferError
from lossless_reading import read_lossless
from toyserver import ToyServer, tokens

Refuse = Callable[[], None]
NOW = datetime(2026, 11, 21, 9, 16, tzinfo=UTC)


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """From now on the disk refuses every write."""

    def full(*_: object, **__: object) -> None:
        raise StoreUnavailable(StoreProblem.DISK_FULL, where="kvchat.db")

    def refuse() -> None:
        for name in ("add", "append", "settle", "change", "set_draft", "record_request", "set_setting", "create"):
            monkeypatch.setattr(Store, name, full)

    return refuse


async def say(service: ChatService, id: str, text: str) -> None:
    await service.turns.send(id, Question(text))
    await service.conversations.wait(id)


def texts(source: Source) -> list[str]:
    return [node.text for node in source.tree.path(source.conversation.head)][1:]


async def test_a_window_stops_writing_where_a_newer_kvchat_changed_the_format(
    service: ChatService, server: ToyServer, tmp_path: Path
) -> None:
    server.on_chat(tokens("Fine."))
    id = (await service.new_conversations.create("Be brief.")).id
    await say(service, id, "before")
    path = tmp_path / "data" / "kvchat.db"
    with sqlite3.connect(path) as newer:
        version = newer.execute("PRAGMA user_version").fetchone()[0]
        newer.execute(f"PRAGMA user_version = {version + 1}")
        before = newer.execute("SELECT count(*), (SELECT count(*) FROM draft) FROM node").fetchone()
    await say(service, id, "after")
    service.drafts.put(id, Unsent(Draft("half a thought")))
    assert (
        "A newer kvchat" in service.conversations.unsaved.reason
        and "start the newer one" in service.conversations.unsaved.reason
    )
    rescued = await service.aclose([tmp_path])
    assert rescued is not None and rescued.path is not None
    (source,) = read_lossless(rescued.path.read_text())
    assert texts(source)[:3] == ["before", "Fine.", "after"] and source.draft == "half a thought"
    newer = sqlite3.connect(path)
    assert newer.execute("SELECT count(*), (SELECT count(*) FROM draft) FROM node").fetchone() == before
    newer.close()


# -- the writer


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 4))
def test_writes_land_once_each_and_in_order_whoever_tries_them_again(refused: list[bool], tries: int) -> None:
    """A write fails as often as `refused` says, and is tried again from several places at once."""
    landed: list[int] = []
    troubles = iter(refused)

    def write(number: int) -> None:
        if next(troubles, False):
            raise StoreUnavailable(StoreProblem.DISK_FULL, where="kvchat.db")
        if number not in landed:
            landed.append(number)

    async def play() -> None:
        writer = StoreWriter(lambda _: None)

        async def again() -> None:
            try:
                await writer.flush()
            except StoreError:
                pass

        for number in range(6):
            await asyncio.gather(writer.write(lambda number=number: write(number)), *(again() for _ in range(tries)))
        while writer.unsaved:
            await asyncio.gather(*(again() for _ in range(tries)))
        await writer.aclose()

    asyncio.run(play())
    assert landed == list(range(6))


async def test_a_write_does_not_overtake_one_that_fails() -> None:
    landed: list[str] = []
    failed = False

    def first() -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise StoreUnavailable(StoreProblem.DISK_FULL, where="kvchat.db")
        landed.append("first")

    writer = StoreWriter(lambda _: None)
    await asyncio.gather(writer.write(first), writer.write(lambda: landed.append("second")))
    await writer.flush()
    await writer.aclose()
    assert landed == ["first", "second"]


# -- the file


async def test_the_file_holds_question_answer_title_and_draft(
    service: ChatService, server: ToyServer, refuse: Refuse, tmp_path: Path
) -> None:
    saved = await service.new_conversations.create(reuse=False)
    await say(service, saved.id, "is on the disk")
    conversation = await service.new_conversations.create(reuse=False)
    await say(service, conversation.id, "one")
    refuse()
    server.on_chat(tokens("only in memory"))
    await say(service, conversation.id, "two")
    await service.conversations.rename(conversation.id, "Lighthouse")
    await service.conversations.set_draft(conversation.id, "and three")
    assert [one.conversation.title for one in await service.conversations.unsaved.retry()] == ["Lighthouse"]
    path = await service.conversations.unsaved.write(tmp_path / "elsewhere.json")
    assert path.stat().st_mode & 0o777 == 0o600
    (source,) = read_lossless(path.read_text())
    assert texts(source) == ["one", "Hello", "two", "only in memory"]
    assert source == Source(conversation.record, source.tree, "and three")
    assert {(n.id, n.parent, n.wire, n.state) for n in source.tree} == {
        (n.id, n.parent, n.wire, n.state) for n in conversation.tree
    }


async def test_nothing_is_unsaved_when_the_disk_takes_it_again(
    service: ChatService, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await service.new_conversations.create()
    refuse()
    await say(service, conversation.id, "one")
    assert len(await service.conversations.unsaved.retry()) == 1
    assert service.conversations.unsaved.reason == StoreProblem.DISK_FULL.format(where="kvchat.db")
    monkeypatch.undo()
    assert await service.conversations.unsaved.retry() == []
    assert service.conversations.unsaved.reason == ""


async def test_what_was_deleted_or_is_empty_is_not_missed(service: ChatService, refuse: Refuse) -> None:
    deleted = await service.new_conversations.create(reuse=False)
    empty = await service.new_conversations.create(reuse=False)
    refuse()
    await say(service, deleted.id, "one")
    await service.conversations.delete(deleted.id)
    await service.conversations.rename(empty.id, "still empty")
    assert await service.conversations.unsaved.retry() == []


@pytest.mark.parametrize("gone", [False, True])
async def test_the_end_writes_them_to_the_first_folder_that_takes_them(
    service: ChatService, server: ToyServer, refuse: Refuse, tmp_path: Path, gone: bool
) -> None:
    """The data folder; where its database is gone, the first of the others."""
    conversation = await service.new_conversations.create()
    server.on_chat(tokens("half", hang_after=1))
    refuse()
    arrived = asyncio.Event()
    service.events.subscribe(lambda _: arrived.set() if conversation.live and conversation.live.text else None)
    await service.turns.send(conversation.id, Question("one"))
    async with asyncio.timeout(20):
        await arrived.wait()
    if gone:
        (tmp_path / "data").rename(tmp_path / "away")
        (tmp_path / "data").mkdir()
    rescued = await service.aclose([tmp_path / "nowhere", tmp_path / "home", tmp_path])
    assert rescued is not None and rescued.path is not None
    assert rescued.path.parent == tmp_path / ("home" if gone else "data")
    assert rescued.path.stat().st_mode & 0o777 == 0o600
    (source,) = read_lossless(rescued.path.read_text())
    assert texts(source) == ["one", "half"]
    assert source.tree[source.conversation.head or ""].state is not State.STREAMING
    assert not list(tmp_path.glob("kvchat-unsaved*"))


@pytest.mark.parametrize("goes_on", [False, True])
async def test_an_import_brings_back_the_rest_of_an_answer_whose_beginning_is_stored(
    make: Callable[..., ChatService],
    service: ChatService,
    server: ToyServer,
    refuse: Refuse,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    goes_on: bool,
) -> None:
    """Also where the user has gone on meanwhile: then it is a version beside that."""
    conversation = await service.new_conversations.create()
    server.on_chat(tokens(*["half"] * 3, hang_after=3), tokens("Yes.", prompt=60))
    arrived = asyncio.Event()
    service.events.subscribe(lambda _: arrived.set() if conversation.live and conversation.live.text else None)
    service.events.subscribe(lambda _: refuse() if conversation.live is not None else None)
    await service.turns.send(conversation.id, Question("one"))
    async with asyncio.timeout(20):
        await arrived.wait()
    rescued = await service.aclose([tmp_path])
    assert rescued is not None and rescued.path is not None
    monkeypatch.undo()
    other = make(server.url)
    kept = await other.conversations.open(conversation.id)
    assert "half" not in kept.path()[-1].text
    if goes_on:
        await say(other, conversation.id, "two")
    report = await other.imports.run([rescued.path])
    assert not report.skipped and report.messages == 1
    kept = await other.conversations.open(conversation.id)
    assert [node.text for node in kept.tree if "half" in node.text] == ["halfhalfhalf"]
    last = "Yes." if goes_on else "halfhalfhalf"
    assert kept.path()[-1].text == last
    assert (await other.imports.run([rescued.path])).unchanged == 1


async def test_a_conversation_is_begun_while_the_disk_refuses(
    service: ChatService, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its system message may be stored already, under another id."""
    before = await service.new_conversations.create()
    await say(service, before.id, "zero")
    refuse()
    conversation = await service.new_conversations.create()
    await say(service, conversation.id, "one")
    fork = await service.branches.fork(conversation.id, conversation.path()[-1].id)
    other = await service.new_conversations.create()
    assert {one.id for one in service.conversations.all()} == {before.id, conversation.id, fork.id, other.id}
    assert service.conversations.load(conversation.id) is conversation
    missing = await service.conversations.unsaved.retry()
    assert {one.conversation.id for one in missing} == {conversation.id, fork.id}
    monkeypatch.undo()
    assert await service.conversations.unsaved.retry() == []
    for stored in (conversation, fork):
        assert [node.text for node in service.store.tree(stored.id).path(stored.record.head)][1:] == ["one", "Hello"]


async def test_when_no_folder_takes_them_that_is_told(service: ChatService, refuse: Refuse, tmp_path: Path) -> None:
    conversation = await service.new_conversations.create()
    refuse()
    await say(service, conversation.id, "one")
    (tmp_path / "data").rename(tmp_path / "away")
    rescued = await service.aclose([tmp_path / "gone"])
    assert rescued is not None and rescued.path is None
    assert "no such folder" in rescued.reason


async def test_a_part_that_does_not_end_does_not_cost_what_was_said(
    service: ChatService, refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await service.new_conversations.create()
    refuse()
    await say(service, conversation.id, "one")

    async def broken(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(MemoryService, "aclose", broken)
    rescued = await service.aclose([tmp_path])
    assert rescued is not None and rescued.path is not None


async def test_an_incognito_run_writes_nothing_at_its_end(
    server: ToyServer, make: Callable[..., ChatService], refuse: Refuse, tmp_path: Path
) -> None:
    service = make(server.url, incognito=True)
    conversation = await service.new_conversations.create()
    refuse()
    await say(service, conversation.id, "one")
    assert await service.conversations.unsaved.retry() == []
    assert await service.aclose([tmp_path]) is None
    assert not list(tmp_path.rglob("kvchat-unsaved-*"))


async def test_a_name_that_is_taken_is_not_written_over(service: ChatService, refuse: Refuse, tmp_path: Path) -> None:
    conversation = await service.new_conversations.create()
    refuse()
    await say(service, conversation.id, "one")
    (tmp_path / "taken.json").write_text("mine")
    with pytest.raises(TransferError, match="exists already"):
        await service.conversations.unsaved.write(tmp_path / "taken.json")
    assert (tmp_path / "taken.json").read_text() == "mine"
