"""Readers: text is read in this process, formats that can do harm in one of their own.

The rule: whatever a file does, the caller gets its content or the reason, within the time; and when the readers are
closed, or this process dies, nothing of them is left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import BinaryIO, TypeVar

from kvchat.documents.errors import UnreadableError
from kvchat.documents.reading import formats, pipe_protocol
from kvchat.documents.reading.content import Content
from kvchat.documents.reading.pixels import Pixels

MODULE = "kvchat.documents.reading.reader_child"
SECONDS = 30.0
MEMORY = 1 << 30
PATIENCE = 2.0
"""Seconds that an idle process has to end by itself."""
CRASHED = "is broken in a way that ended its reader"

T = TypeVar("T")


class Readers:
    """Reads files, one at a time. A context manager."""

    def __init__(self, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        """`seconds` for each file, and `memory` in bytes for the process, where the system can limit it."""
        self._seconds = seconds
        self._memory = memory
        self._child: _Child | None = None

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
            return self._apart(lambda child: child.content(name, data))
        try:
            return formats.read(name, data)
        except MemoryError:
            raise UnreadableError(pipe_protocol.TOO_MUCH) from None
        except RecursionError:
            raise UnreadableError("is nested too deeply") from None

    def pixels(self, data: bytes) -> Pixels:
        """The image in a file, as it is sent. Raises UnreadableError."""
        return self._apart(lambda child: child.pixels(None, data))

    def thumbnail(self, data: bytes, width: int, height: int) -> Pixels:
        """The pixels of a PNG or JPEG, made to fit. Raises UnreadableError."""
        return self._apart(lambda child: child.pixels((width, height), data))

    def close(self) -> None:
        """End the process. May be called at any time, from any thread, and again."""
        child, self._child = self._child, None
        if child:
            child.end()

    def _apart(self, ask: Callable[[_Child], T]) -> T:
        used = self._child is not None
        try:
            return self._asked(ask)
        except UnreadableError as error:
            if not (used and str(error) == pipe_protocol.TOO_MUCH):
                raise
        return self._asked(ask)  # the memory may have gone to the files before

    def _asked(self, ask: Callable[[_Child], T]) -> T:
        child = self._child = self._living()
        try:
            return ask(child)
        except BaseException as error:  # interrupted too: an answer to this file must not become one to the next
            if type(error) is not UnreadableError or str(error) == pipe_protocol.TOO_MUCH:
                self._drop(child)
            raise

    def _living(self) -> _Child:
        """The process that reads, started where there is none."""
        if self._child and self._child.is_alive:
            return self._child
        self.close()
        try:
            return _Child(self._seconds, self._memory)
        except OSError as error:
            raise UnreadableError(f"cannot be read: its reader cannot be started ({error.strerror})") from None

    def _drop(self, child: _Child) -> None:
        child.kill()
        if self._child is child:
            self._child = None


class _EndedError(UnreadableError):
    """The process has ended, or is good for nothing any more."""


class _Child:
    """A process that reads."""

    def __init__(self, seconds: float, memory: int) -> None:
        # The paths of this process, in its order: so kvchat and its extras are found where this process found them.
        # -P keeps the working directory out.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._seconds = seconds
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-m", MODULE),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to: BinaryIO = self._process.stdin  # type: ignore[assignment]
        self._from: BinaryIO = self._process.stdout  # type: ignore[assignment]
        self._asking = False
        self._greeting: bytes | None = json.dumps({"seconds": seconds, "memory": memory}).encode()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def content(self, name: str, data: bytes) -> Content:
        """What a file says. Raises UnreadableError, and where the process is dead then or as good as, _EndedError."""
        return self._ask(name, data, pipe_protocol.content_of)

    def pixels(self, size: tuple[int, int] | None, data: bytes) -> Pixels:
        """The image in a file, as it is sent; with a size one made small to fit. Raises as `content`."""
        return self._ask(size, data, pipe_protocol.pixels_in)

    def _ask(self, name: str | tuple[int, int] | None, data: bytes, read: Callable[[bytes], T]) -> T:
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        clock = threading.Timer(self._seconds, stop)
        clock.daemon = True
        clock.start()
        self._asking = True
        try:
            if self._greeting:
                pipe_protocol.put(self._to, self._greeting)
                self._greeting = None
            pipe_protocol.put(self._to, json.dumps(name).encode())
            pipe_protocol.put(self._to, data)
            answer = pipe_protocol.take(self._from)
        except (OSError, ValueError):  # ValueError: closed meanwhile
            answer = None
        finally:
            clock.cancel()
            self._asking = False
        if late.is_set():
            raise _EndedError(f"took longer than {self._seconds:g} s to read")
        if answer is None:
            raise _EndedError(self._end_in_words())
        try:
            return read(answer)
        except ValueError:
            raise _EndedError(CRASHED) from None

    def end(self) -> None:
        """Close its stdin, which ends it; kill it where that takes too long, or while it reads."""
        if not self._asking:
            try:
                self._to.close()
                self._process.wait(PATIENCE)
            except (OSError, subprocess.TimeoutExpired):
                pass
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._to, self._from):
            try:
                stream.close()
            except OSError:
                pass

    def _end_in_words(self) -> str:
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return CRASHED
        out_of_memory = sys.platform != "win32" and code in (-signal.SIGKILL, -signal.SIGABRT)
        return pipe_protocol.TOO_MUCH if out_of_memory else CRASHED
