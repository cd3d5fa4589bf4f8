"""A parser for server-sent events (WHATWG rules) that works on bytes, in whatever pieces they arrive.

The rule: only CR, LF and CRLF end a line. Models write U+2028, U+0085 and the like into their answers, and
servers send them raw; a parser that splits text on them breaks those answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MIB = 1024 * 1024
LINE_LIMIT = 8 * MIB
EVENT_LIMIT = 16 * MIB
ANSWER_LIMIT = 64 * MIB

_BOM = b"\xef\xbb\xbf"


class TooLargeError(Exception):
    """A line, an event or the whole answer is larger than kvchat reads. What was parsed before it is good."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{what} is larger than {limit // MIB} MiB")
        self.what = what
        self.limit = limit


@dataclass(frozen=True, slots=True)
class Event:
    """A dispatched event."""

    data: str
    type: str = "message"


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment line: a server's sign of life."""

    text: str


@dataclass(frozen=True, slots=True)
class Stray:
    """A line of bare JSON between events: no field of this protocol, but some servers report errors so."""

    text: str


Piece = Event | Comment | Stray


class SseParser:
    """Feed it bytes in any split; the same bytes always give the same pieces."""

    def __init__(self, *, line_limit: int = LINE_LIMIT, event_limit: int = EVENT_LIMIT,
                 answer_limit: int = ANSWER_LIMIT) -> None:
        self._line_limit = line_limit
        self._event_limit = event_limit
        self._answer_limit = answer_limit
        self._total = 0
        self._start: bytes | None = b""
        """The first bytes while they may still be a byte order mark; then None."""
        self._after_cr = False
        self._pending = bytearray()
        """The unfinished line."""
        self._data: list[bytes] = []
        self._size = 0
        self._type = b""

    def feed(self, chunk: bytes) -> Iterator[Piece]:
        """The pieces that `chunk` completes. Raises TooLargeError after the pieces before the excess."""
        self._total += len(chunk)
        if self._total > self._answer_limit:
            raise TooLargeError("the answer", self._answer_limit)
        chunk = self._normalised(self._without_bom(chunk))
        head, newline, rest = chunk.partition(b"\n")
        self._pending += head
        if newline:
            first = bytes(self._pending)
            lines = rest.split(b"\n")
            self._pending = bytearray(lines.pop())
            yield from self._line(first)
            for line in lines:
                yield from self._line(line)
        if len(self._pending) > self._line_limit:
            raise TooLargeError("a line", self._line_limit)

    def _without_bom(self, chunk: bytes) -> bytes:
        if self._start is None:
            return chunk
        start = self._start + chunk
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(_BOM)

    def _normalised(self, chunk: bytes) -> bytes:
        """`chunk` with LF as its only line end. A CR ends its line at once; an LF after it is then dropped."""
        if not chunk:
            return chunk
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk

    def _line(self, line: bytes) -> Iterator[Piece]:
        if not line:
            if self._data:
                data = b"\n".join(self._data) if len(self._data) > 1 else self._data[0]
                yield Event(_text(data), _text(self._type) or "message")
            self._data, self._size, self._type = [], 0, b""
            return
        if len(line) > self._line_limit:
            raise TooLargeError("a line", self._line_limit)
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._size += len(value) + 1
            if self._size > self._event_limit:
                raise TooLargeError("an event", self._event_limit)
            self._data.append(value)
        elif name == b"event":
            self._type = value
        elif not name:
            yield Comment(_text(value))
        elif name.startswith(b"{"):
            yield Stray(_text(line))


def _text(data: bytes) -> str:
    """`data` as UTF-8, each invalid sequence as U+FFFD. It never splits a character: data is whole lines."""
    return data.decode("utf-8", "replace")
