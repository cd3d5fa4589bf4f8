"""The body of an answer as a stream of JSON values: server-sent events (WHATWG rules), JSON lines, or one document.

The first byte of a body decides, not its label alone; servers and proxies label errors wrongly. The parser
works on bytes, in whatever pieces they arrive, and only CR, LF and CRLF end a line: models write U+2028, U+0085 and the
like into their answers, and servers send them raw.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from msgspec import Struct

from kvchat.backends.errors import error_in
from kvchat.backends.http.payload import PayloadError, is_object, parsed
from kvchat.text.faults import Unread

# -- server-sent events -----------------------------------------------------------------------------------------------


MIB = 1024 * 1024
LINE_LIMIT = 8 * MIB
EVENT_LIMIT = 16 * MIB
ANSWER_LIMIT = 64 * MIB

_BOM = b"\xef\xbb\xbf"


class StreamTooLargeError(PayloadError):
    """A line, an event or the whole answer is larger than kvchat reads. What was parsed before it is good."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(Unread.TOO_LARGE, what=what, mib=limit // MIB)


class Event(Struct, frozen=True):
    """A dispatched event."""

    data: str
    type: str = "message"


class StreamComment(Struct, frozen=True):
    """A comment line: a server's sign of life."""

    text: str


class Stray(Struct, frozen=True):
    """A line of bare JSON between events: no field of this protocol, but some servers report errors so."""

    text: str


Piece = Event | StreamComment | Stray


class SseParser:
    """Feed it bytes in any split; the same bytes always give the same pieces."""

    def __init__(
        self, *, line_limit: int = LINE_LIMIT, event_limit: int = EVENT_LIMIT, answer_limit: int = ANSWER_LIMIT
    ) -> None:
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
            raise StreamTooLargeError("the answer", self._answer_limit)
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
            raise StreamTooLargeError("a line", self._line_limit)

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
            raise StreamTooLargeError("a line", self._line_limit)
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._size += len(value) + 1
            if self._size > self._event_limit:
                raise StreamTooLargeError("an event", self._event_limit)
            self._data.append(value)
        elif name == b"event":
            self._type = value
        elif not name:
            yield StreamComment(_text(value))
        elif name.startswith(b"{"):
            yield Stray(_text(line))


def _text(data: bytes) -> str:
    """`data` as UTF-8, each invalid sequence as U+FFFD. It never splits a character: data is whole lines."""
    return data.decode("utf-8", "replace")


# -- the stream -------------------------------------------------------------------------------------------------------


EVENT_STREAM = "text/event-stream"
DONE = "[DONE]"


class Payload(Struct, frozen=True):
    """One JSON value of an answer; text as it came where it is none."""

    value: object
    is_error: bool = False
    """Whether the server marked it as an error (`event: error`)."""


class StreamDone(Struct, frozen=True):
    """`[DONE]`: nothing more will come. It does not say that the answer is complete."""


Decoded = Payload | StreamDone


class NotAnAnswerError(PayloadError):
    """The body is neither events nor JSON: a web page, most likely."""


class Decoder:
    """Feed it a body in any split. Raises PayloadError after what was good before it."""

    def __init__(self, content_type: str) -> None:
        self._body: _Events | _Json | None = None
        self._are_events = self._is_sure = content_type == EVENT_STREAM
        self.on_comment: Callable[[str], None] = _ignored
        """Called with the text of each comment between events; most are mere signs of life."""

    def feed(self, chunk: bytes) -> Iterator[Decoded]:
        if self._body is None:
            first = chunk.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
            if not first:
                return
            if first == b"<" and not self._are_events:
                raise NotAnAnswerError(Unread.WEB_PAGE)
            self._body = _Json(self._comment) if first in b"{[" else _Events(self._comment)
        for item in self._body.feed(chunk):
            self._is_sure = True
            yield item

    def end(self) -> Iterator[Decoded]:
        """What the end of the body completes."""
        if self._body is not None:
            for item in self._body.end():
                self._is_sure = True
                yield item
            if not self._is_sure:
                raise NotAnAnswerError(Unread.OTHER)

    def _comment(self, text: str) -> None:
        self.on_comment(text)


def _ignored(_: str) -> None:
    """The default for comments."""


class _Events:
    def __init__(self, comment: Callable[[str], None]) -> None:
        self._parser = SseParser()
        self._comment = comment

    def feed(self, chunk: bytes) -> Iterator[Decoded]:
        for piece in self._parser.feed(chunk):
            if isinstance(piece, Event):
                yield from _of_event(piece)
            elif isinstance(piece, Stray):
                yield from _of_stray(piece)
            elif isinstance(piece, StreamComment):
                self._comment(piece.text)

    def end(self) -> Iterator[Decoded]:
        """The body ends whole, and with it the last event, though the standard drops one without an empty line."""
        return self.feed(b"\n\n")


def _of_event(event: Event) -> Iterator[Decoded]:
    data = event.data.strip()
    value = _value(data)
    if event.type == "error":
        yield Payload(value, is_error=True)
        return
    values = [value] if data else []
    if value is data and "\n" in data:  # events that only one line end parts come as one
        lines = [line for line in data.split("\n") if line.strip()]
        read = [_value(line) for line in lines]
        if all(one is not line or line.strip() == DONE for one, line in zip(read, lines, strict=True)):
            values = read
    for one in values:
        if isinstance(one, str) and one.strip() == DONE:
            yield StreamDone()
        elif event.type == "message" or (is_object(one) and ("choices" in one or error_in(one))):
            yield Payload(one)


def _value(text: str) -> object:
    """The JSON value in `text`; `text` itself where there is none: a sign of life, or a damaged part."""
    try:
        return parsed(text)
    except PayloadError:
        return text


def _of_stray(stray: Stray) -> Iterator[Decoded]:
    """A line of JSON without a field name counts only if it is an answer, or a damaged one, or reports an error."""
    value = _value(stray.text)
    if '"choices"' in stray.text and (not is_object(value) or "choices" in value):
        yield Payload(value)
    elif error_in(value):
        yield Payload(value, is_error=True)


_EVENT_LINE = re.compile(rb"[\r\n]data:")
"""No document has such a line: a text in one has no line ends."""


class _Json:
    """JSON lines while each line is a value of its own; as soon as the first is not, one document, or events behind
    what was neither."""

    def __init__(self, comment: Callable[[str], None]) -> None:
        self._comment = comment
        self._events: _Events | None = None
        self._pending = bytearray()
        self._total = 0
        self._lines = 0
        self._is_document = False

    def feed(self, chunk: bytes) -> Iterator[Decoded]:
        if self._events:
            yield from self._events.feed(chunk)
            return
        self._total += len(chunk)
        if self._total > ANSWER_LIMIT:
            raise StreamTooLargeError("the answer", ANSWER_LIMIT)
        if self._is_document:
            yield from self._document(chunk, len(self._pending) - 5)
            return
        head, newline, rest = chunk.partition(b"\n")
        if not newline and not self._lines:
            yield from self._document(head, len(self._pending) - 5)
            return
        self._pending += head
        while newline and not self._is_document:
            yield from self._line(bytes(self._pending))
            if self._is_document:
                yield from self._document(newline + rest, 0)
                return
            head, newline, rest = rest.partition(b"\n")
            self._pending = bytearray(head)
        if self._lines and len(self._pending) > LINE_LIMIT:
            raise StreamTooLargeError("a line", LINE_LIMIT)

    def _document(self, chunk: bytes, seen: int) -> Iterator[Decoded]:
        """Keep this for the end, unless an event begins in what is kept, behind as much as was seen of it."""
        self._pending += chunk
        if found := _EVENT_LINE.search(self._pending, max(0, seen)):
            before, events = bytes(self._pending[: found.start()]), bytes(self._pending[found.start() :])
            self._pending = bytearray()
            self._events = _Events(self._comment)
            if not isinstance(value := _value(_decoded(before)), str):
                yield Payload(value)
            yield from self._events.feed(events)

    def _line(self, line: bytes) -> Iterator[Decoded]:
        text = _decoded(line)
        if not text:
            return
        value = _value(text.removeprefix("data:").strip())
        if isinstance(value, str) and not self._lines:
            self._is_document = True
            return
        self._lines += 1
        yield StreamDone() if value == DONE else Payload(value)

    def end(self) -> Iterator[Decoded]:
        if self._events:
            yield from self._events.end()
        text = _decoded(bytes(self._pending)).removeprefix("data:")
        if not text:
            return
        value = _value(text)
        lines = [_value(line.strip()) for line in text.split("\n") if line.strip()] if isinstance(value, str) else []
        if any(map(is_object, lines)):  # the first of many lines was damaged, so they were taken for one document
            yield from map(Payload, lines)
        else:
            yield Payload(value)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace").removeprefix("\ufeff").strip()
