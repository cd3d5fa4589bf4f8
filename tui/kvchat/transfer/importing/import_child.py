"""The process that goes through the files of one import, for `import_process.FilesApart`."""

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
from kvchat.transfer.importing.passing import FrameKind, frame, frames_of

PROGRESS_INTERVAL_S = 0.1
"""Seconds between two frames of progress."""


def main() -> None:
    """Send what is found in the files that the first frame names, and how far it has come."""
    parent = Parent()
    job = parent.take()
    if job is None:
        return
    threading.Thread(target=_with_stdin, daemon=True).start()
    given = json.loads(job)
    gc.set_threshold(1_000_000)  # millions of values are no rubbish: to look through them again and again takes long
    last, number = 0.0, -1

    def report(*, now: bool = False) -> None:
        """Send how far it has come: each file before anything of it, which may be the end of this process."""
        nonlocal last, number
        if now or files.progress.number != number or time.monotonic() - last >= PROGRESS_INTERVAL_S:
            last, number = time.monotonic(), files.progress.number
            at = files.progress
            parent.put(frame(FrameKind.PROGRESS, [at.path, at.number, at.done, at.total, files.passed_over]))

    files = Files([Path(os.fsdecode(bytes.fromhex(path))) for path in given["paths"]], given["passed"], report)
    try:
        for item in files:
            report()
            for one in frames_of(item):
                parent.put(one)
    except MemoryError:
        parent.put(frame(FrameKind.NO_MEMORY))
        return
    report(now=True)
    parent.put(frame(FrameKind.OVER))


def _with_stdin() -> None:
    """End with whoever started this."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
