"""The lock beside the index's file: who writes, or replaces the file, holds it.

The rule: that it is held by somebody else is no damage. It is an error of its own, after a wait that the caller chose.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvchat.store.errors import StoreUnavailable, result_code, told
from kvchat.store.presence.locks import try_lock, unlock

BUSY = "The search index is in use by another kvchat; try again."
_CODES = (5, 6)
"""SQLite's BUSY and LOCKED."""


class IndexBusyError(StoreUnavailable):
    """Another program holds the file for longer than the caller waits."""

    def __init__(self) -> None:
        super().__init__(BUSY)


@contextmanager
def said(path: Path | None) -> Iterator[None]:
    """Turn errors of SQLite and the file system into the store's own, and those of a file in use into
    IndexBusyError."""
    try:
        with told(path):
            yield
    except StoreUnavailable as error:
        cause = error.__cause__
        if isinstance(cause, sqlite3.Error) and result_code(cause) in _CODES:
            raise IndexBusyError from cause
        raise


class FileLock:
    """The lock file. Held by one process at a time; threads are kept apart by the caller."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)

    @contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """Hold the lock. Raises IndexBusyError where another process keeps it for so long."""
        deadline = time.monotonic() + seconds
        pause = 0.0005
        while not try_lock(self._fd):
            if time.monotonic() > deadline:
                raise IndexBusyError
            time.sleep(pause * (0.5 + random.random()))
            pause = min(pause * 1.5, 0.02)
        try:
            yield
        finally:
            unlock(self._fd)

    def close(self) -> None:
        os.close(self._fd)
