"""What a command that takes long shows while it is at work, and how it is stopped."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

from kvchat.cli.plain_output import cells, fitted, width_of
from kvchat.sanitize import one_line

INTERRUPTED = 130
"""The exit status of a command that the user stopped."""
EVERY = 0.1
"""Seconds between two states of the line."""


class ProgressLine:
    """One line on a terminal that is written over again and again; nothing at all on anything else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = width_of(stream)
        self._shown = 0
        self._next = 0.0

    def show(self, words: str) -> None:
        now = time.monotonic()
        if self._width is not None and now >= self._next:
            self._next = now + EVERY
            self._write(fitted(one_line(words), self._width - 1))

    def end(self) -> None:
        """Take the line away, and the `^C` that a terminal wrote behind it."""
        if self._shown and self._width is not None:
            self._put(f"\r{' ' * (self._width - 1)}\r")

    def _write(self, line: str) -> None:
        shown = cells(line)
        self._put(f"\r{line}{' ' * (self._shown - shown)}")
        self._shown = shown

    def _put(self, text: str) -> None:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        with suppress(OSError, ValueError):  # it has gone
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that the first Ctrl+C sets, so that what is begun is brought to an end; the second one ends all."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def interrupted(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
