"""The lock of a collection's index: no two kvchats index one collection at the same time.

The lock never waits. It belongs to the process, so that one that dies leaves none behind. Forgetting a collection
removes its lock file, which shows a process that still indexes it that it may not write any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from kvchat.store.presence.locks import try_lock, unlock


def lock_path(index_path: Path, collection: str) -> Path:
    """The lock file of a collection."""
    return index_path.with_name(f"{index_path.name}.{collection}.lock")


_FLAGS = os.O_RDWR | os.O_CLOEXEC


class Hold(Struct, frozen=True):
    """The right to index a collection; true where no other process has it."""

    mine: bool
    path: Path | None = None
    handle: int = -1

    def __bool__(self) -> bool:
        return self.mine

    @property
    def lasts(self) -> bool:
        """Whether the collection has not been forgotten meanwhile. Of two that have one name, each has its own file."""
        return self.mine and (self.path is None or _is_at(self.handle, self.path))


@contextmanager
def alone(index_path: Path | None, collection: str) -> Iterator[Hold]:
    """Hold the right to index this collection into this index; no other process gets it meanwhile. An index in memory
    is never shared; where no lock file can be made there is no lock."""
    path = None if index_path is None else lock_path(index_path, collection)
    while True:
        try:
            handle = None if path is None else os.open(path, _FLAGS | os.O_CREAT, 0o600)
        except OSError:
            handle = None
        if handle is None:
            yield Hold(True)
            return
        try:
            mine = try_lock(handle)
            if mine and path is not None and not _is_at(handle, path):
                continue  # it was taken away between opening and locking it
            try:
                yield Hold(mine, path, handle)
            finally:
                if mine:
                    unlock(handle)
            return
        finally:
            os.close(handle)


def revoke(index_path: Path, collection: str) -> None:
    """Stop the processes that index this collection now from writing."""
    with suppress(OSError):
        lock_path(index_path, collection).unlink(missing_ok=True)


def is_held(index_path: Path | None, collection: str) -> bool:
    """Whether somebody indexes this collection now."""
    try:
        handle = None if index_path is None else os.open(lock_path(index_path, collection), _FLAGS)
    except OSError:
        handle = None
    if handle is None:
        return False
    try:
        if not try_lock(handle):
            return True
        unlock(handle)
        return False
    finally:
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False
