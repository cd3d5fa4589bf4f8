"""Exclusion: no two kvchats index one collection at the same time.

The rule: nobody waits. The lock belongs to the process, so that one that dies leaves none behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvchat.store.locks import try_lock, unlock


def lock_path(index_path: Path, collection: str) -> Path:
    """The lock file of a collection."""
    return index_path.with_name(f"{index_path.name}.{collection}.lock")


@contextmanager
def alone(index_path: Path | None, collection: str) -> Iterator[bool]:
    """Whether nobody else indexes this collection into this index; nobody begins to while it is held. An index in
    memory is nobody else's; where no lock file can be made there is no lock."""
    try:
        handle = None if index_path is None else os.open(
            lock_path(index_path, collection), os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError:
        handle = None
    if handle is None:
        yield True
        return
    try:
        mine = try_lock(handle)
        try:
            yield mine
        finally:
            if mine:
                unlock(handle)
    finally:
        os.close(handle)
