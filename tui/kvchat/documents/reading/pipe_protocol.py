"""Framing: how a file and its content travel between a process and the one that reads for it.

The rule: a frame is a length and that many bytes, and what is in it is data alone: it says what, never what to do.
"""

from __future__ import annotations

import json
import struct
from typing import BinaryIO

from kvchat.documents.errors import UnreadableError
from kvchat.documents.reading.content import Content, Section, Unit

LARGEST = 256 << 20
"""Bytes of a frame."""

TOO_MUCH = "needs too much memory to read"
"""The reason after which a process ends: what is left of its memory may not be enough for the next file."""

_LENGTH = struct.Struct(">Q")


def put(stream: BinaryIO, frame: bytes) -> None:
    """Write a frame. Raises OSError."""
    stream.write(_LENGTH.pack(len(frame)))
    stream.write(frame)
    stream.flush()


def take(stream: BinaryIO) -> bytes | None:
    """The next frame; None where the stream ends, or does not hold one. Raises OSError."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > LARGEST:
        return None
    frame = stream.read(length)
    return frame if len(frame) == length else None


def answer_of(content: Content) -> bytes:
    """A file's content as a frame."""
    sections = [[section.titles, section.text, section.first, section.last, section.code]
                for section in content.sections]
    return json.dumps({"title": content.title, "unit": content.unit, "exact": content.exact,
                       "sections": sections}).encode()


def refusal_of(reason: str) -> bytes:
    """The reason why a file cannot be read as a frame."""
    return json.dumps({"unreadable": reason}).encode()


def content_of(frame: bytes) -> Content:
    """The content in a frame. Raises UnreadableError where it holds a reason, ValueError where it holds neither."""
    try:
        said = json.loads(frame)
        if "unreadable" in said:
            raise UnreadableError(str(said["unreadable"]))
        sections = tuple(Section(tuple(map(str, titles)), str(text), int(first), int(last), bool(code))
                         for titles, text, first, last, code in said["sections"])
        return Content(str(said["title"]), Unit(said["unit"]), sections, bool(said["exact"]))
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("it is no content") from error
