"""The other end of a process that reads apart: started, asked, and ended, whatever it is at."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from enum import StrEnum, auto
from typing import BinaryIO

from kvchat.apart import frames

SECONDS = 30.0
MEMORY = 1 << 30
EXIT_S = 2.0
"""Seconds that an idle process has to end by itself."""
_living: weakref.WeakSet[Process] = weakref.WeakSet()


class End(StrEnum):
    """Why a process that reads is there no more."""

    LATE = auto()
    """It took too long, and was ended."""
    MEMORY = auto()
    """It needed more memory than it may have."""
    CRASHED = auto()


class EndedError(Exception):
    """The process has ended."""

    def __init__(self, end: End) -> None:
        super().__init__(end.value)
        self.end = end


class Process:
    """A process that reads."""

    def __init__(self, module: str, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        """`module` is run, with a `kvchat.apart.child.Parent`. `seconds` until the next frame comes, and `memory` in
        bytes, where the system can limit it. Raises OSError."""
        # The paths of this process, in its order: so kvchat and its extras are found where this process found them.
        # -P keeps the working directory out.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._seconds = seconds
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-m", module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to: BinaryIO = self._process.stdin  # type: ignore[assignment]
        self._from: BinaryIO = self._process.stdout  # type: ignore[assignment]
        self._deadline = math.inf
        """Until when what is asked is waited for; infinity: nothing is."""
        self._late, self._over = False, threading.Event()
        _living.add(self)
        threading.Thread(target=self._watch, daemon=True).start()
        self._greeting: bytes | None = json.dumps({"seconds": seconds, "memory": memory}).encode()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, *questions: bytes) -> bytes:
        """Send frames; the next one that comes back. Raises EndedError."""
        self._deadline = time.monotonic() + self._seconds
        try:
            if self._greeting:
                frames.put(self._to, self._greeting)
                self._greeting = None
            for question in questions:
                frames.put(self._to, question)
            answer = frames.take(self._from)
        except (OSError, ValueError):  # ValueError: closed meanwhile
            answer = None
        finally:
            self._deadline = math.inf
        if answer is None or self._late:
            raise EndedError(End.LATE if self._late else self._end())
        return answer

    def _watch(self) -> None:
        """Kill the process at the deadline. One thread for all that is asked: a timer for each costs more than most
        answers. It looks often enough for a deadline that was set while it slept."""
        while not self._over.wait(min(self._seconds, self._deadline - time.monotonic())):
            if time.monotonic() >= self._deadline:
                self._late = True
                self._process.kill()
                return

    def end(self) -> None:
        """Close its stdin, which ends it; kill it where that takes too long, or while it reads."""
        if self._deadline == math.inf:
            try:
                self._to.close()
                self._process.wait(EXIT_S)
            except (OSError, subprocess.TimeoutExpired):
                pass
        self.kill()

    def kill(self) -> None:
        self._over.set()
        self._process.kill()
        self._process.wait()
        for stream in (self._to, self._from):
            try:
                stream.close()
            except OSError:
                pass

    def stop(self) -> None:
        """End what it is at, from any thread: whoever asked hears that it has ended."""
        self._over.set()
        self._process.kill()

    def _end(self) -> End:
        try:
            code = self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            return End.CRASHED
        return End.MEMORY if code in (-signal.SIGKILL, -signal.SIGABRT) else End.CRASHED


def stop_all() -> None:
    """Stop all that read for this process, so that no thread waits for an answer when it ends."""
    for process in list(_living):
        process.stop()
