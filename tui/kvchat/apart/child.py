"""The child side of a separate process: its pipes to the process that started it, and the limits of one that reads.

A `Parent` reads stdin and the files named there, writes stdout, and does nothing else: no network, no other program. It
ends with its stdin, and by itself where something takes much too long.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
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


def private_stdout() -> BinaryIO:
    """Stdout for the answers alone: what anything prints from here on goes where stderr goes."""
    own = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(own, "wb")


def first_line() -> bytes:
    """The job of a `kvchat.apart.lines.LineProcess`; empty: there is none any more."""
    data = b""
    while b"\n" not in data:
        if not (some := _read_some()):
            return b""
        data += some
    return data.partition(b"\n")[0]


def until_stdin_ends() -> None:
    """Wait until no process can write to stdin any more: whoever started this one is gone."""
    while _read_some():
        pass


def when_stdin_ends(act: Callable[[], object]) -> None:
    """Call `act` in a thread then."""

    def wait() -> None:
        until_stdin_ends()
        act()

    threading.Thread(target=wait, daemon=True).start()


def _read_some() -> bytes:
    """Not through `sys.stdin`: a thread that waits in there keeps the process from ending."""
    try:
        return os.read(0, 65536)
    except OSError:
        return b""


class Parent:
    """Whoever started this process. Its first frame says how: `{"seconds": 30, "memory": 1073741824}`."""

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the parent, which then closes stdin
        self._questions, self._answers = sys.stdin.buffer, private_stdout()
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
