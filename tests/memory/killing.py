"""A process that is killed before the n-th call that changes files."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


def forked(work: Callable[[], object]) -> int:
    """Do `work` in a process of its own; its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def kill_at(step: int, work: Callable[[], object]) -> None:
    """Do `work`, and be killed before the call number `step` of those that change files."""
    left = step

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def calling(*parts: object, **named: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*parts, **named)

        return calling

    for name in (
        "open",
        "write",
        "fsync",
        "close",
        "replace",
        "rename",
        "mkdir",
        "chmod",
        "unlink",
        "link",
        "fdopen",
        "scandir",
        "lstat",
        "stat",
    ):
        setattr(os, name, counted(getattr(os, name)))
    work()
