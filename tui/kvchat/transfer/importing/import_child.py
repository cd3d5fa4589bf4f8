"""The process that goes through the files of one import, for `apart.FilesApart`."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from pathlib import Path

from kvchat.apart.child import Parent
from kvchat.transfer.importing.files import Files
from kvchat.transfer.importing.passing import Kind, frame, frames_of

EVERY = 0.1
"""Seconds between two frames of progress."""


def main() -> None:
    """Send what is found in the files that the first frame names, and how far it has come."""
    parent = Parent()
    job = parent.take()
    if job is None:
        return
    threading.Thread(target=_with_stdin, daemon=True).start()
    given, last = json.loads(job), 0.0
    gc.set_threshold(1_000_000)  # millions of values are no rubbish: to look through them again and again takes long

    def told() -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            _tell(parent, files)

    files = Files([Path(os.fsdecode(bytes.fromhex(path))) for path in given["paths"]], given["passed"], told)
    try:
        for item in files:
            _tell(parent, files)
            for one in frames_of(item):
                parent.put(one)
    except MemoryError:
        parent.put(frame(Kind.NO_MEMORY))
        return
    _tell(parent, files)
    parent.put(frame(Kind.OVER))


def _tell(parent: Parent, files: Files) -> None:
    now = files.progress
    parent.put(frame(Kind.PROGRESS, [now.path, now.number, now.done, now.total, files.passed_over]))


def _with_stdin() -> None:
    """End with whoever started this."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
