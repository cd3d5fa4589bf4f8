"""The child side of a separate reading process: its limits, and its pipes to the process that started it.

It reads stdin and the files named there, writes stdout, and does nothing else: no network, no other program. It ends
with its stdin, and by itself where something takes much too long.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from typing import BinaryIO, NoReturn

from kvchat.apart import frames

GRACE = 5.0
"""Seconds after which it ends by itself, beyond those that its parent waits."""
_FORBIDDEN = (
    "socket.",
    "subprocess.",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "os.fork",
    "urllib.",
    "webbrowser.",
)


class Parent:
    """Whoever started this process. Its first frame says how: `{"seconds": 30, "memory": 1073741824}`."""

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the parent, which then closes stdin
        self._questions, self._answers = sys.stdin.buffer, _own_stdout()
        limits = json.loads(frames.take(self._questions) or b'{"seconds": 0, "memory": -1}')
        self._seconds = float(limits["seconds"])
        _limit_memory(int(limits["memory"]))
        sys.addaudithook(refuse)

    def take(self) -> bytes | None:
        """The next frame, however long it takes; None: there is none any more. From then on the time counts."""
        faulthandler.cancel_dump_traceback_later()
        frame = frames.take(self._questions)
        faulthandler.dump_traceback_later(self._seconds + GRACE, exit=True)
        return frame

    def put(self, frame: bytes) -> None:
        """Send a frame, however long that takes, then restart the time limit."""
        faulthandler.cancel_dump_traceback_later()
        frames.put(self._answers, frame)
        faulthandler.dump_traceback_later(self._seconds + GRACE, exit=True)


def _own_stdout() -> BinaryIO:
    """Stdout for the answers alone: what anything prints goes where stderr goes."""
    own = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(own, "wb")


def _limit_memory(most: int) -> None:
    """Let this process have no more than `most` bytes, where the system can do that."""
    try:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        pass


def refuse(event: str, arguments: object) -> None:
    """An audit hook that lets nothing out."""
    if event.startswith(_FORBIDDEN):
        _stop(event)


def _stop(event: str) -> NoReturn:
    raise PermissionError(f"{event}: reading a file needs nothing of that")
