"""A function in a forked child process, which talks back in lines through a pipe."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO


@dataclass(slots=True)
class Child:
    pid: int
    said: IO[bytes]

    def lines(self) -> list[str]:
        """What the child said until it ended, whole lines only."""
        return [line.decode() for line in self.said.read().split(b"\n")[:-1]]

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def fork(work: Callable[[Callable[[str], None]], None]) -> Child:
    """Start `work(say)` in a child; each `say(line)` has left the child when it returns."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return Child(pid, os.fdopen(reader, "rb"))
    code = 1
    try:
        os.close(reader)
        work(lambda line: (os.write(writer, line.encode() + b"\n"), None)[1])
        code = 0
    except BaseException:
        os.write(writer, ("FAILED " + traceback.format_exc().replace("\n", " | ") + "\n").encode())
    finally:
        os._exit(code)
