"""Standard input of `kvchat ask`: all that is piped into it, as text.

The rule: it is read before anything else begins, so that Ctrl+C ends it at once; a terminal, a device and an input that
was closed give nothing, and one that stays silent is waited for, but not without a word.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from contextlib import suppress
from threading import Event, Thread

from kvchat.documents.errors import UnreadableError
from kvchat.documents.reading.decoding import decoded

MOST = 16 << 20
"""Bytes that are read at most."""
SILENT_S = 2.0
"""Seconds without a byte after which the person is told what is waited for."""

_AT_ONCE = 1 << 18


class InputError(Exception):
    """What came cannot be used; the sentence says why and what to do."""


def is_piped() -> bool:
    """Whether standard input is a pipe, a socket or a file: what somebody put there to be read."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


def piped_text(waiting: str) -> str:
    """All of standard input, to its end, in lines that end with a newline character. `waiting`: what is said on
    standard error while nothing comes; a terminal, where the person types, is not told. Raises InputError."""
    data = _data(waiting)
    try:
        return decoded(data)
    except UnreadableError as error:
        raise InputError(f"Standard input {error}. Pipe in text, or skip it with --no-stdin.") from None


def _data(waiting: str) -> bytes:
    descriptor = sys.stdin.fileno()
    parts: list[bytes] = []
    size = 0
    with _Watch(waiting if is_piped() else "") as watch:
        while size <= MOST:
            try:
                part = os.read(descriptor, _AT_ONCE)
            except BlockingIOError:  # whoever has the other end set it so
                select.select([descriptor], [], [])
                continue
            watch.heard.set()
            if not part:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
    raise InputError(f"More than {MOST >> 20} MiB came from standard input. Pipe in less, for instance with "
                     f"head -c {MOST >> 20}M, or index the files with kvchat documents add.")


class _Watch:
    """Says once, on standard error, what is waited for when nothing is heard for a while."""

    def __init__(self, waiting: str) -> None:
        """`waiting` empty: nothing is said."""
        self.heard = Event()
        self._waiting = waiting
        self._is_over = False

    def __enter__(self) -> _Watch:
        if self._waiting:
            Thread(target=self._watch, name="kvchat-stdin", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self.heard.set()

    def _watch(self) -> None:
        while self.heard.wait(SILENT_S):
            if self._is_over:
                return
            self.heard.clear()
        with suppress(OSError):
            print(f"kvchat: {self._waiting}", file=sys.stderr, flush=True)
