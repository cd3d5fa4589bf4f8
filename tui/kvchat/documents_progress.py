"""Indexing at the command line: the line that shows how far it is, and Ctrl+C that brings it to an end.

The rule: only a terminal sees the progress. The first Ctrl+C lets what is begun be finished, the second one ends all.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

from kvchat.display import one_line
from kvchat.documents.collection import Progress
from kvchat.numbers import UNKNOWN, count, counted, duration, size
from kvchat.terminal import cells, fitted, width_of

EVERY = 0.1
"""Seconds between two states of the line."""


def progress_words(progress: Progress) -> str:
    """`handbook: 1,204 of 3,000 files, 12 MB of 48 MB, 9,120 chunks, 12 s left, guide/setup.md`."""
    if progress.counting:
        return f"{progress.collection}: looking for files, {count(progress.all_files)} so far"
    left = progress.seconds_left
    words = [f"{count(progress.files)} of {counted(progress.all_files, 'file')}",
             f"{size(progress.bytes)} of {size(progress.all_bytes)}", counted(progress.chunks, "chunk"),
             f"{UNKNOWN if left is None else duration(round(left))} left"]
    return ", ".join([f"{progress.collection}: {words[0]}", *words[1:], *filter(None, [progress.path])])


class ProgressLine:
    """One line on a terminal that is written over again and again; nothing at all on anything else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = width_of(stream)
        self._shown = 0
        self._next = 0.0

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if self._width is not None and now >= self._next:
            self._next = now + EVERY
            self._write(fitted(one_line(progress_words(progress)), self._width - 1))

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
