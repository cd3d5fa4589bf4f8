"""Turns at writing a memory folder, taken by all kvchats that have it, whichever store each of them is on.

The rule: the lock is on the folder itself, so that nothing is left in it; only where folders know no locks is it on a
hidden file in it. A file system without locks holds nobody up.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvchat.store.errors import StoreUnavailable
from kvchat.store.presence.locks import WAIT_SECONDS, FolderInUse, WriteLock

HIDDEN = ".kvchat.lock"
PAUSE_SECONDS = 0.005


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Write in `folder` alone. Raises StoreUnavailable when somebody else does for WAIT_SECONDS, OSError."""
    if sys.platform == "win32":
        lock = WriteLock(folder / HIDDEN)
        try:
            with lock.held():
                yield
        finally:
            lock.close()
        return
    held = FolderInUse(folder)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not held.alone():
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"Another kvchat has been writing in {folder} for {WAIT_SECONDS:.0f} seconds. "
                                       "Close it, or wait until it is done.")
            time.sleep(PAUSE_SECONDS)
        yield
    finally:
        with suppress(OSError):
            held.close()
