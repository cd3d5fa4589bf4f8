"""Locks of the operating system between kvchat processes: one around writes, one that says "in use".

A lock never waits for ever, and where the file system knows no locks kvchat goes on without them.

The write lock is needed because SQLite before 3.51.3 can, very rarely, damage a WAL database that two processes
write: its checkpoint and a commit that resets the log must not overlap.
"""

from __future__ import annotations

import fcntl
import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvchat.store.errors import StoreUnavailable
from kvchat.text.problems import StoreProblem

WAIT_SECONDS = 30.0
"""How long to wait for another kvchat to finish a write."""


def try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # no locks on this file system
    return True


def unlock(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        pass


def locked_within(fd: int, seconds: float) -> bool:
    """Take the lock; False where another process keeps it for so long."""
    deadline = time.monotonic() + seconds
    pause = 0.0005
    while not try_lock(fd):
        if time.monotonic() > deadline:
            return False
        time.sleep(pause * (0.5 + random.random()))
        pause = min(pause * 1.5, 0.02)
    return True


def has_wal_reset_fix(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    """Whether this SQLite may write one WAL database from two processes without a lock of ours."""
    return version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)


class WriteLock:
    """The database's lock file. One process holds it at a time; the caller keeps its threads apart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._depth = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock. Raises StoreUnavailable when another process keeps it for WAIT_SECONDS."""
        if self._depth == 0 and not locked_within(self._fd, WAIT_SECONDS):
            raise StoreUnavailable(StoreProblem.HELD, seconds=WAIT_SECONDS, path=self._path)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                unlock(self._fd)

    def another(self) -> WriteLock:
        """The same lock for another connection of this process: whoever holds the one keeps the other out."""
        return WriteLock(self._path)

    def close(self) -> None:
        os.close(self._fd)


class FolderInUse:
    """Says to other kvchats that this folder's database is open, by a shared lock on the folder itself."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)

    def alone(self) -> bool:
        """Whether no other process has the database open. Stays so while the write lock is held."""
        return try_lock(self._fd)

    def share(self) -> None:
        """Join those who have it open."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            pass

    def close(self) -> None:
        os.close(self._fd)
