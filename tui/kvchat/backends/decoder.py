"""The body of an answer as a stream of JSON values: server-sent events, JSON lines, or one JSON document.

The rule: the first byte of a body decides, not its label alone; servers and proxies label errors wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvchat.backends.errors import error_in
from kvchat.backends.payload import PayloadError, parsed
from kvchat.backends.sse import ANSWER_LIMIT, LINE_LIMIT, Comment, Event, SseParser, Stray, TooLargeError

EVENT_STREAM = "text/event-stream"
DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class Payload:
    """One JSON value of an answer."""

    value: object
    is_error: bool = False
    """Whether the server marked it as an error (`event: error`)."""


@dataclass(frozen=True, slots=True)
class StreamDone:
    """`[DONE]`: nothing more will come. It does not say that the answer is complete."""


Decoded = Payload | StreamDone


class NotAnAnswerError(PayloadError):
    """The body is neither events nor JSON: a web page, most likely."""


class Decoder:
    """Feed it a body in any split. Raises PayloadError or TooLargeError after what was good before it."""

    def __init__(self, content_type: str) -> None:
        self._body: _Events | _Json | None = _Events(self._comment) if content_type == EVENT_STREAM else None
        self._is_sure = self._body is not None
        self.on_comment: Callable[[str], None] = _ignored
        """Called with the text of each comment between events; most are mere signs of life."""

    def feed(self, chunk: bytes) -> Iterator[Decoded]:
        if self._body is None:
            first = chunk.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
            if not first:
                return
            if first == b"<":
                raise NotAnAnswerError("a web page")
            self._body = _Json() if first in b"{[" else _Events(self._comment)
        for item in self._body.feed(chunk):
            self._is_sure = True
            yield item

    def end(self) -> Iterator[Decoded]:
        """What the end of the body completes."""
        if isinstance(self._body, _Json):
            yield from self._body.end()
        elif self._body is not None and not self._is_sure:
            raise NotAnAnswerError("something else")

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
            elif isinstance(piece, Comment):
                self._comment(piece.text)


def _of_event(event: Event) -> Iterator[Decoded]:
    data = event.data.strip()
    if data == DONE:
        yield StreamDone()
    elif event.type == "error":
        try:
            yield Payload(parsed(data), is_error=True)
        except PayloadError:
            yield Payload(data, is_error=True)
    elif data:
        yield Payload(parsed(data))


def _of_stray(stray: Stray) -> Iterator[Decoded]:
    """A line of JSON without a field name counts only if it reports an error."""
    try:
        value = parsed(stray.text)
    except PayloadError:
        return
    if error_in(value):
        yield Payload(value, is_error=True)


class _Json:
    """JSON lines while each line is a value of its own; as soon as the first is not, one document."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._total = 0
        self._lines = 0
        self._is_document = False

    def feed(self, chunk: bytes) -> Iterator[Decoded]:
        self._total += len(chunk)
        if self._total > ANSWER_LIMIT:
            raise TooLargeError("the answer", ANSWER_LIMIT)
        if self._is_document:
            self._pending += chunk
            return
        head, newline, rest = chunk.partition(b"\n")
        self._pending += head
        while newline and not self._is_document:
            yield from self._line(bytes(self._pending))
            if self._is_document:
                self._pending += newline + rest
                return
            head, newline, rest = rest.partition(b"\n")
            self._pending = bytearray(head)
        if self._lines and len(self._pending) > LINE_LIMIT:
            raise TooLargeError("a line", LINE_LIMIT)

    def _line(self, line: bytes) -> Iterator[Decoded]:
        text = _decoded(line)
        if not text:
            return
        try:
            value = parsed(text)
        except PayloadError:
            if self._lines:
                raise
            self._is_document = True
            return
        self._lines += 1
        yield Payload(value)

    def end(self) -> Iterator[Decoded]:
        text = _decoded(bytes(self._pending))
        if text:
            yield Payload(parsed(text))


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace").removeprefix("\ufeff").strip()
