"""The Markdown mirror: as the conversations are, and in nobody's way."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvchat.chat import mirror
from kvchat.chat.events import Noticed
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.chat.turns.alternatives import AlternativesRequest
from kvchat.config import Settings, changed
from kvchat.store import Store
from toyserver import tokens
from tries import tries


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(mirror, "SETTLE_S", 0.0)
    monkeypatch.setattr(mirror, "TYPING_S", 0.0)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "chats"


@pytest.fixture
def mirrored(make, server, folder):
    """Makes services that mirror into `folder`."""

    def mirrored(begun=True, **options):
        server.on_chat(tokens("Fifty", "-nine."))
        service = make(server.url, **options)
        service.take_settings(changed(service.settings, "export.mirror_folder", str(folder)))
        service.notices = []
        service.events.subscribe(lambda event: service.notices.append(event.text) if isinstance(event, Noticed) else 0)
        if begun:
            service.mirror.begin()
        return service

    return mirrored


async def until(condition):
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - files tell of no change
            await asyncio.sleep(0.005)


async def said(service, text="How many nights?"):
    id = (await service.new_conversations.create("Be brief.", reuse=False)).id
    await service.turns.send(id, Question(text))
    await service.conversations.wait(id)
    return id


def texts(folder):
    return {path.name: path.read_text() for path in folder.glob("*.md")} if folder.exists() else {}


def holds(folder, *words):
    """Whether there is just one file, with all these words."""
    found = list(texts(folder).values())
    return len(found) == 1 and all(word in found[0] for word in words)


async def test_it_follows_every_act(mirrored, folder):
    service = mirrored()
    id = await said(service)
    await until(lambda: holds(folder, "How many nights?", "Fifty-nine.", id))
    (name,) = texts(folder)
    await service.conversations.rename(id, "The lamp")
    await until(lambda: holds(folder, "# The lamp"))
    await service.turns.send(id, Question("And days?"))
    await service.conversations.wait(id)
    await until(lambda: holds(folder, "And days?"))
    await service.branches.delete_turn(id, service.conversations.load(id).path()[3].id)
    await until(lambda: holds(folder, "How many nights?") and not holds(folder, "And days?"))
    assert list(texts(folder)) == [name]
    await service.conversations.delete(id)
    await until(lambda: not texts(folder))
    await service.conversations.restore(id)
    await until(lambda: holds(folder, "How many nights?"))
    assert service.notices == []


async def test_an_answer_on_its_way_is_not_in_it(mirrored, server, folder):
    service = mirrored()
    id = await said(service)
    await until(lambda: holds(folder, "Fifty-nine."))
    server.on_chat(tokens("half of", " it", hang_after=1))
    await service.turns.send(id, Question("And days?"))
    await until(lambda: service.conversations.load(id).live and service.conversations.load(id).live.text)
    await service.conversations.rename(id, "Meanwhile")
    assert holds(folder, "Fifty-nine.") and not holds(folder, "half of")
    await service.conversations.stop(id)
    await until(lambda: holds(folder, "half of", "Stopped.", "# Meanwhile"))


async def test_answers_to_choose_from_hold_up_nothing(mirrored, server, folder):
    service = mirrored()
    id = (await service.new_conversations.create("Be brief.", reuse=False)).id
    await service.servers.reach(id)
    server.on_chat(tokens("One."), tokens("Two."))
    await service.turns.ask_for(id, AlternativesRequest(2), Question("How many nights?"))
    await service.conversations.wait(id)
    assert service.turns.is_undecided(id)
    await until(lambda: holds(folder, "How many nights?", "One."))
    await service.conversations.rename(id, "Not chosen yet")
    await until(lambda: holds(folder, "# Not chosen yet", "One."))
    await service.turns.choose(id, service.turns.choices(id)[1].id)
    await until(lambda: holds(folder, "Two."))


async def test_what_happened_elsewhere_is_taken_over(mirrored, folder):
    watching, writing = mirrored(), mirrored(begun=False)
    id = await said(writing)
    watching.refresh()
    await until(lambda: holds(folder, "Fifty-nine."))
    await writing.conversations.delete(id)
    watching.refresh()
    await until(lambda: not texts(folder))


async def test_what_was_missed_is_written_at_the_next_start(mirrored, make, server, folder):
    server.on_chat(tokens("Yes."))
    before = make(server.url)
    ids = [await said(before, f"question {number}") for number in range(5)]
    await before.conversations.delete(ids[0])
    assert not folder.exists()
    mirrored()
    await until(lambda: len(texts(folder)) == 4)
    assert "question 0" not in "".join(texts(folder).values())


async def test_a_start_writes_nothing_where_nothing_has_changed(mirrored, make, server, folder, monkeypatch):
    service = mirrored()
    id = await said(service)
    await until(lambda: holds(folder, "Fifty-nine."))
    await service.aclose()
    mine = folder / "notes.md"
    mine.write_text("mine")
    (path,) = [path for path in folder.iterdir() if path != mine]
    before = path.stat().st_mtime_ns
    again = mirrored()
    done = await again.mirror._worker.do(lambda: None)
    other = await said(again, "Another?")
    await until(lambda: len(texts(folder)) == 3)
    assert path.stat().st_mtime_ns == before and mine.read_text() == "mine" and done is None and other != id


async def test_a_command_leaves_the_files_as_the_conversations_are(mirrored, folder):
    service = mirrored(begun=False)
    id = await said(service)
    await service.aclose()
    assert holds(folder, "Fifty-nine.")
    later = mirrored(begun=False)
    await later.conversations.delete(id)
    await later.aclose()
    assert not texts(folder)


async def test_a_folder_that_cannot_be_written_is_told_once_and_all_else_goes_on(mirrored, folder, tmp_path):
    folder.write_text("a file of this name")
    service = mirrored()
    await said(service)
    await until(lambda: service.notices)
    id = await said(service, "And days?")
    await service.conversations.rename(id, "Days")
    await service.mirror._worker.do(lambda: None)
    assert service.notices == [
        f"Conversations are not mirrored: {folder} could not be written: a part of this path is a file, not a folder. "
        "Choose another one."
    ]
    folder.unlink()
    await service.conversations.rename(id, "Days again")
    await until(lambda: len(texts(folder)) == 2)
    assert len(service.notices) == 1


async def test_the_trash_is_emptied_with_its_files(mirrored, folder, clock):
    service = mirrored(begun=False)
    id = await said(service)
    await service.aclose()
    store = Store.open(folder.parent / "data")
    store.change(store.conversation(id), lambda row: replace(row, trashed=1.0))
    store.close()
    assert holds(folder, id)
    for _ in range(2):
        later = mirrored(begun=False)
        await later.housekeeping.run()
        clock.now += timedelta(days=1)
    assert not texts(folder) and later.store.known(id) is None


async def test_another_folder_is_filled_and_none_is_left_alone(mirrored, folder, tmp_path):
    service = mirrored()
    id = await said(service)
    await until(lambda: holds(folder, "Fifty-nine."))
    service.take_settings(changed(service.settings, "export.mirror_folder", str(tmp_path / "other")))
    await until(lambda: holds(tmp_path / "other", "Fifty-nine."))
    service.take_settings(changed(service.settings, "export.mirror_folder", ""))
    await service.conversations.rename(id, "Unseen")
    await service.aclose()
    assert not holds(folder, "Unseen") and not holds(tmp_path / "other", "Unseen")


async def test_an_incognito_run_has_none(server, folder):
    server.on_chat(tokens("Yes."))
    settings = changed(changed(Settings(), "server.base_url", server.url), "export.mirror_folder", str(folder))
    service = ChatService(Store.open(None), settings, incognito=True)
    service.begin_background()
    await said(service)
    await service.housekeeping.run()
    await service.aclose()
    assert not folder.exists()


async def test_nothing_is_written_beside_an_answer_and_one_conversation_is_loaded_at_a_time(
    mirrored, make, server, folder, monkeypatch
):
    server.on_chat(tokens("Yes."))
    before = make(server.url)
    ids = [await said(before, f"question {number}") for number in range(12)]
    await before.aclose()
    monkeypatch.setattr(mirror, "SLICE_S", 0.0)
    service = mirrored(begun=False)
    loaded, streaming, threads = [], [], set()
    tree = service.store.tree

    def seen(id):
        if threading.current_thread().name == "kvchat-mirror":
            loaded.append(id)
            streaming.append(bool(service.conversations.streaming()))
            threads.add(threading.current_thread().name)
        return tree(id)

    service.store.tree = seen
    server.on_chat(tokens("long", hang_after=1))
    id = (await service.new_conversations.create("Be brief.", reuse=False)).id
    await service.turns.send(id, Question("At length."))
    await until(lambda: service.conversations.load(id).live and service.conversations.load(id).live.text)
    service.mirror.begin()
    await service.conversations.rename(ids[3], "Renamed beside it")
    await asyncio.sleep(0)
    assert not texts(folder)
    await service.conversations.stop(id)
    await until(lambda: len(texts(folder)) == 13)
    assert not any(streaming) and set(loaded) == {*ids, id} and threads == {"kvchat-mirror"}


TURNS = tries("mirror_turns", 40)
IN_ONE = max(TURNS // 50, 10)


@pytest.mark.slow
async def test_a_long_run_of_turns_loses_nothing_and_stays_level(mirrored, server, folder):
    """As many turns as a year has; memory, files and threads are as after the first of its conversations."""
    service = mirrored()
    levels = []
    for conversation in range(TURNS // IN_ONE):
        id = (await service.new_conversations.create("Be brief.", reuse=False)).id
        for turn in range(IN_ONE):
            await service.turns.send(id, Question(f"question {conversation}.{turn} of night"))
            await service.conversations.wait(id)
        server.visits.clear()  # the server is in this process, and keeps every prompt
        gc.collect()
        rows = Path("/proc/self/status").read_text().splitlines() if sys.platform == "linux" else ["VmRSS: 0 kB"]
        resident = next(int(row.split()[1]) for row in rows if row.startswith("VmRSS"))
        open_files = len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0
        levels.append((resident, open_files, threading.active_count()))
    asked = {f"question {one}.{turn} of night" for one in range(TURNS // IN_ONE) for turn in range(IN_ONE)}
    stored = [node.text for row in service.store.conversations() for node in service.store.tree(row.id)]
    assert asked <= set(stored) and stored.count("Fifty-nine.") == TURNS
    await until(lambda: len(texts(folder)) == TURNS // IN_ONE)
    await until(lambda: sum(text.count("of night\n") for text in texts(folder).values()) >= TURNS)
    settled, last = levels[len(levels) // 4], levels[-1]
    print(f"\n{TURNS} turns: resident {settled[0] >> 10} MB, then {last[0] >> 10} MB; files {settled[1]}, {last[1]}")
    assert last[1] <= settled[1] + 5 and last[2] <= settled[2] + 5
    assert last[0] <= settled[0] + 16_000
    assert service.notices == []
