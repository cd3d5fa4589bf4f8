"""One server, several kvchats: chats share its seat, background work has it alone and leaves when it is called."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from kvchat.chat.server.lane import Lane
from kvchat.store.presence import server_presence as seats
from kvchat.store.presence.server_presence import ServerLock, ServerLocks

ADDRESS = "http://127.0.0.1:8080"

OTHER = """
import asyncio, sys
from pathlib import Path
from kvchat.store.presence.server_presence import ServerLocks

async def main(folder, what):
    seat = ServerLocks(Path(folder)).at("http://127.0.0.1:8080")
    called = asyncio.Event()
    got = seat.take(called.set) if what in ("take", "keep") else await seat.share()
    print("sits" if got else "stands", flush=True)
    if what == "take":
        await called.wait()
        print("called", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        seat.leave()
        print("left", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    seat.leave()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def other(tmp_path):
    """Starts another kvchat's part: what it says, line by line."""
    started = []

    def start(what):
        process = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(tmp_path), what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        process.says = lambda: process.stdout.readline().strip()
        process.tell = lambda: (process.stdin.write("\n"), process.stdin.flush())
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def seat(tmp_path):
    return ServerLocks(tmp_path).at(ADDRESS)


@pytest.mark.process
async def test_chats_of_two_kvchats_share_a_seat_and_background_work_waits_for_both(tmp_path, other):
    first, second = seat(tmp_path), seat(tmp_path)
    process = other("share")
    assert process.says() == "sits"
    assert await first.share()
    assert not second.take(lambda: None)
    free = asyncio.create_task(second.free())
    await asyncio.sleep(0)
    process.kill()
    process.wait()
    assert not second.take(lambda: None), "this kvchat's own chat still sits there"
    first.leave()
    await asyncio.wait_for(free, 120)
    assert second.take(lambda: None)
    second.leave()


@pytest.mark.process
async def test_a_chat_calls_off_the_background_work_of_another_kvchat_and_waits_until_it_has_left(tmp_path, other):
    process, mine = other("take"), seat(tmp_path)
    assert process.says() == "sits"
    sharing = asyncio.create_task(mine.share())
    assert await asyncio.to_thread(process.says) == "called"
    assert not sharing.done(), "the chat went on before the other had closed its request"
    process.tell()
    assert await asyncio.to_thread(process.says) == "left"
    assert await asyncio.wait_for(sharing, 120) is True
    mine.leave()


@pytest.mark.process
async def test_only_one_kvchat_works_in_the_background(tmp_path, other):
    process, mine = other("take"), seat(tmp_path)
    assert process.says() == "sits"
    called = []
    assert not mine.take(lambda: called.append(1))
    assert not called


@pytest.mark.process
async def test_a_killed_kvchat_leaves_its_seat(tmp_path, other):
    process, mine = other("keep"), seat(tmp_path)
    assert process.says() == "sits"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert mine.take(lambda: None)
    mine.leave()


@pytest.mark.process
async def test_a_chat_does_not_wait_for_ever_for_a_kvchat_that_hangs(tmp_path, other, monkeypatch):
    monkeypatch.setattr(seats, "PATIENCE_S", 0.2)
    process, mine = other("keep"), seat(tmp_path)
    assert process.says() == "sits"
    process.send_signal(signal.SIGSTOP)
    try:
        assert await asyncio.wait_for(mine.share(), 120) is False
    finally:
        process.send_signal(signal.SIGCONT)


async def test_a_kvchat_that_has_left_takes_no_seat_that_becomes_free_only_then(tmp_path, monkeypatch):
    monkeypatch.setattr(seats, "PATIENCE_S", 0.01)
    came, came_late = asyncio.Event(), ServerLock._came_late

    def late(self, fd):
        came_late(self, fd)
        came.set()

    monkeypatch.setattr(ServerLock, "_came_late", late)
    working, mine, next_one = seat(tmp_path), seat(tmp_path), seat(tmp_path)
    assert working.take(lambda: None)
    assert await mine.share() is False
    mine.leave()
    working.leave()
    await asyncio.wait_for(came.wait(), 120)
    assert next_one.take(lambda: None)
    next_one.leave()


@pytest.mark.process
async def test_what_was_taken_alone_is_shared_when_a_chat_sits_down(tmp_path, other):
    mine = seat(tmp_path)
    assert mine.take(lambda: None)
    assert await mine.share()
    process = other("share")
    assert await asyncio.to_thread(process.says) == "sits"
    mine.leave()


async def test_the_seat_says_when_a_chat_last_began_or_ended(tmp_path):
    mine, watching = seat(tmp_path), seat(tmp_path)
    assert watching.quiet_since == 0.0
    assert mine.take(lambda: None)
    os.utime(mine._path, (1000, 1000))
    mine.leave()
    assert watching.quiet_since == 1000, "background work counted as a chat"
    assert await mine.share(stamp=False)
    mine.leave()
    assert watching.quiet_since == 1000, "reading ahead counted as a chat"
    assert await mine.share()
    began = watching.quiet_since
    assert began > 1000
    os.utime(mine._path, (1000, 1000))
    mine.leave()
    assert watching.quiet_since >= began


async def test_a_folder_that_cannot_be_written_keeps_nobody_from_chatting(tmp_path):
    (tmp_path / "file").write_text("")
    mine = ServerLocks(tmp_path / "file" / "below").at(ADDRESS)
    assert await mine.share()
    mine.leave()
    assert mine.take(lambda: None)
    mine.leave()


def test_another_server_has_another_seat_and_without_a_folder_there_is_none(tmp_path):
    assert ServerLocks(tmp_path).at("http://127.0.0.1:1")._path != seat(tmp_path)._path
    assert ServerLocks(None).at(ADDRESS) is None
    assert ServerLocks(tmp_path).at("") is None


@pytest.mark.process
async def test_a_kvchat_that_is_stopped_while_it_works_holds_an_answer_up_once_at_most(tmp_path, monkeypatch):
    """Ctrl+Z in another terminal: its process holds the seat and never answers the bell."""
    path = tmp_path / "s.lane"
    stopped = ServerLock(path)
    assert stopped.take(lambda: None)  # and never leaves
    lane = Lane(ServerLock(path))
    waits, locked_later = [], ServerLock._locked_later

    def noted(self, fd, patience):
        waits.append(patience)
        return locked_later(self, fd, patience)

    monkeypatch.setattr(ServerLock, "_locked_later", noted)
    for _ in range(2):
        async with lane.chat("a"):
            await lane.sit()  # as `Talking._chat` does when the server is ready
    assert waits[0] == seats.PATIENCE_S and set(waits[1:]) == {seats.BRIEF_S}, "an answer waited for long again"
