"""Readers: read short texts in this process, and what can do harm in one of its own.

Whatever a file does, the caller gets its content or the reason within the time limit; closing the readers, or the end
of this process, leaves nothing of them behind.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from kvchat.apart.process import MEMORY, SECONDS, End, EndedError, Process
from kvchat.documents.errors import FileUnreadableError
from kvchat.documents.reading import formats, pipe_protocol
from kvchat.documents.reading.content import Content
from kvchat.documents.reading.pixels import Pixels

MODULE = "kvchat.documents.reading.reader_child"
CRASHED = "is broken in a way that ended its reader"
_REASONS = {
    End.LATE: "took longer than {seconds:g} s to read",
    End.MEMORY: pipe_protocol.TOO_MUCH,
    End.CRASHED: CRASHED,
}

T = TypeVar("T")


class Readers:
    """Reads files, one at a time. A context manager."""

    def __init__(self, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        """`seconds` for each file, and `memory` in bytes for the process, where the system can limit it."""
        self._seconds = seconds
        self._memory = memory
        self._child: Process | None = None

    def __enter__(self) -> Readers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Of the reading process; None: there is none now."""
        return self._child.pid if self._child and self._child.is_alive else None

    def read(self, name: str, data: bytes) -> Content:
        """What a file says. Raises UnreadableError."""
        if formats.is_hostile(data):
            return self._apart(lambda child: self._answer(child, name, data, pipe_protocol.content_of))
        try:
            return formats.read(name, data)
        except MemoryError:
            raise FileUnreadableError(pipe_protocol.TOO_MUCH) from None
        except RecursionError:
            raise FileUnreadableError("is nested too deeply") from None

    def pixels(self, data: bytes) -> Pixels:
        """The image in a file, as it is sent. Raises UnreadableError."""
        return self._apart(lambda child: self._answer(child, None, data, pipe_protocol.pixels_in))

    def thumbnail(self, data: bytes, width: int, height: int) -> Pixels:
        """The pixels of a PNG or JPEG, made to fit. Raises UnreadableError."""
        return self._apart(lambda child: self._answer(child, (width, height), data, pipe_protocol.pixels_in))

    def close(self) -> None:
        """End the process. May be called at any time, from any thread, and again."""
        child, self._child = self._child, None
        if child:
            child.end()

    def _apart(self, ask: Callable[[Process], T]) -> T:
        used = self._child is not None
        try:
            return self._asked(ask)
        except FileUnreadableError as error:
            if not used or str(error) not in (pipe_protocol.TOO_MUCH, CRASHED):
                raise
        return self._asked(ask)  # the memory may have gone to the files before; without any, it dies

    def _asked(self, ask: Callable[[Process], T]) -> T:
        child = self._child = self._living()
        try:
            return ask(child)
        except BaseException as error:  # interrupted too: an answer to this file must not become one to the next
            if type(error) is not FileUnreadableError or str(error) == pipe_protocol.TOO_MUCH:
                self._drop(child)
            raise

    def _living(self) -> Process:
        """The process that reads, started where there is none."""
        if self._child and self._child.is_alive:
            return self._child
        self.close()
        try:
            return Process(MODULE, self._seconds, self._memory)
        except OSError as error:
            raise FileUnreadableError(f"cannot be read: its reader cannot be started ({error.strerror})") from None

    def _drop(self, child: Process) -> None:
        child.kill()
        if self._child is child:
            self._child = None

    def _answer(self, child: Process, name: str | tuple[int, int] | None, data: bytes, read: Callable[[bytes], T]) -> T:
        """What the process says of a file. Raises UnreadableError; where it is dead, _EndedError."""
        try:
            return read(child.ask(json.dumps(name).encode(), data))
        except EndedError as error:
            raise _EndedError(_REASONS[error.end].format(seconds=self._seconds)) from None
        except ValueError:
            raise _EndedError(CRASHED) from None


class _EndedError(FileUnreadableError):
    """The process has ended, or is good for nothing any more."""
