"""Who uses a server now, among all kvchats on this store: a lock file for each server (its seat), and a named pipe (its
bell).

Any number of chats share a seat; background work has it alone and gives it up when the bell rings. The system frees
what a dead process held, and no chat waits long for one that hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kvchat import paths

PATIENCE_S = 3.0
"""A chat goes on without its seat when background work of another kvchat has not left it for so long."""
BRIEF_S = 0.3
GIVEN_UP_S = 60.0
"""For so long after one has not left in time, it is waited for BRIEF_S only."""


def _lock(fd: int, *, shared: bool, wait: bool) -> bool:
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return True  # no locks on this file system
    return True


class ServerLock:
    """The seat at one server, for one process. Used from one event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._bell: int | None = None
        self._alone = self._stamped = False
        self._wants = False
        """Whether the seat is still wanted that did not become free in time."""
        self._given_up = 0.0
        """Until when, in monotonic seconds, it is not waited for others."""

    @property
    def quiet_since(self) -> float:
        """When a chat last began or ended here, in any kvchat; seconds since the epoch, 0.0: never."""
        try:
            return self._path.stat().st_mtime
        except OSError:
            return 0.0

    async def share(self, *, stamp: bool = True) -> bool:
        """Share the seat; background work of another kvchat is called off. False: that has not ended within PATIENCE_S
        (BRIEF_S for GIVEN_UP_S after it did not). `stamp`: it is for a chat."""
        if self._fd is not None and self._alone:
            self._let_others()
        if self._fd is not None:
            self._stamp(stamp)
            return True
        fd = self._opened()
        if fd is None:
            return True
        if not _lock(fd, shared=True, wait=False):
            self._ring()
            hangs = time.monotonic() < self._given_up
            if not await self._locked_later(fd, min(BRIEF_S, PATIENCE_S) if hangs else PATIENCE_S):
                self._given_up, self._wants = time.monotonic() + GIVEN_UP_S, True
                self._stamp(stamp)
                return False
        if self._fd is not None:  # two have asked at the same time
            os.close(fd)
        else:
            self._fd = fd
        self._stamp(stamp)
        return True

    def take(self, called: Callable[[], None]) -> bool:
        """Take the seat alone, for background work. False: this or another process has it. `called` is called when the
        work is to end."""
        if self._fd is not None:
            return False
        fd = self._opened()
        if fd is None:
            return True
        self._listen(called)  # before the lock: whoever finds it locked finds the bell too
        if not _lock(fd, shared=False, wait=False):
            self._unlisten()
            os.close(fd)
            return False
        self._fd, self._alone = fd, True
        return True

    def leave(self) -> None:
        """Leave the seat; nothing happens where it is not held."""
        self._unlisten()
        fd, self._fd, self._alone, self._wants = self._fd, None, False, False
        if self._stamped:
            self._touch()
            self._stamped = False
        if fd is not None:
            os.close(fd)

    def _let_others(self) -> None:
        """What was taken alone is shared from now on."""
        self._unlisten()
        if self._fd is not None:
            _lock(self._fd, shared=True, wait=False)
        self._alone = False

    def _stamp(self, for_chat: bool) -> None:
        if for_chat:
            self._stamped = True
            self._touch()

    async def free(self) -> None:
        """Wait until no process has the seat."""
        fd = self._opened()
        if fd is not None:
            done = asyncio.get_running_loop().create_future()
            _in_thread(fd, False, done)
            await done

    def _opened(self) -> int | None:
        try:
            paths.folder(self._path.parent)
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except (OSError, paths.PathError):
            return None  # a disk that cannot be written: kvchat goes on alone

    def _touch(self) -> None:
        with contextlib.suppress(OSError):
            os.utime(self._path)

    async def _locked_later(self, fd: int, patience: float) -> bool:
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        _in_thread(fd, True, done, self._came_late)
        try:
            async with asyncio.timeout(patience):
                return await done
        except TimeoutError:
            return False

    def _came_late(self, fd: int) -> None:
        """Handle a seat that became free after `share` had given up: keep it if it is still wanted."""
        self._given_up = 0.0
        if self._wants and self._fd is None:
            self._fd, self._wants = fd, False
        else:
            os.close(fd)

    # -- the bell: a named pipe that whoever has the seat alone listens to

    @property
    def _bell_path(self) -> Path:
        return self._path.with_suffix(".bell")

    def _ring(self) -> None:
        with contextlib.suppress(OSError):
            fd = os.open(self._bell_path, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(fd, b"!")
            finally:
                os.close(fd)

    def _listen(self, called: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):  # it is there, or this file system has none
            os.mkfifo(self._bell_path, 0o600)
        with contextlib.suppress(OSError):
            self._bell = os.open(self._bell_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

            def rung(fd: int = self._bell) -> None:
                with contextlib.suppress(OSError):
                    os.read(fd, 64)
                called()

            asyncio.get_running_loop().add_reader(self._bell, rung)

    def _unlisten(self) -> None:
        if self._bell is not None:
            asyncio.get_running_loop().remove_reader(self._bell)
            os.close(self._bell)
            self._bell = None


def _in_thread(fd: int, keep: bool, done: asyncio.Future[bool], late: Callable[[int], None] = os.close) -> None:
    """Wait for the lock in a thread that never holds up the end of the program. `keep`: take it shared and hold it;
    `late` gets it if `done` has ended meanwhile. Else wait until it can be had alone, and leave it at once."""
    loop = asyncio.get_running_loop()

    def settle(locked: bool) -> None:
        if done.done():
            late(fd) if locked else os.close(fd)
            return
        if not keep or not locked:
            os.close(fd)
        done.set_result(locked)

    def wait() -> None:
        locked = _lock(fd, shared=keep, wait=True)
        try:
            loop.call_soon_threadsafe(settle, locked)
        except RuntimeError:  # the loop has ended
            os.close(fd)

    threading.Thread(target=wait, daemon=True, name="kvchat-seat").start()


class ServerLocks:
    """The seats of all servers. `folder` None: there are no other kvchats to think of."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def at(self, address: str) -> ServerLock | None:
        """The seat at the server of this address, in its normal form."""
        if self._folder is None or not address:
            return None
        return ServerLock(self._folder / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}.lane")
