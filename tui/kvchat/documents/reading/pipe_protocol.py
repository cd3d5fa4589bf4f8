"""The contents of the frames between a process and the one that reads documents and images for it."""

from __future__ import annotations

import json
from typing import Any

from kvchat.documents.errors import FileUnreadableError
from kvchat.documents.reading.content import Content, Section, Unit
from kvchat.documents.reading.pixels import LONGEST, RGB, Pixels

TOO_MUCH = "needs too much memory to read"
"""The reason after which a process ends: what is left of its memory may not be enough for the next file."""


def answer_of(content: Content) -> bytes:
    """A file's content as a frame."""
    sections = [
        [section.titles, section.text, section.first, section.last, section.code] for section in content.sections
    ]
    return json.dumps(
        {"title": content.title, "unit": content.unit, "exact": content.exact, "sections": sections}
    ).encode()


def answer_of_pixels(pixels: Pixels) -> bytes:
    """An image as a frame."""
    head = json.dumps({"type": pixels.type, "width": pixels.width, "height": pixels.height})
    return head.encode() + b"\n" + pixels.data


def refusal_of(reason: str) -> bytes:
    """The reason why a file cannot be read as a frame."""
    return json.dumps({"unreadable": reason}).encode()


def content_of(frame: bytes) -> Content:
    """The content in a frame. Raises UnreadableError where it holds a reason, ValueError where it holds neither."""
    try:
        fields = _fields(frame)
        sections = tuple(
            Section(tuple(map(str, titles)), str(text), int(first), int(last), bool(code))
            for titles, text, first, last, code in fields["sections"]
        )
        return Content(str(fields["title"]), Unit(fields["unit"]), sections, bool(fields["exact"]))
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("it is no content") from error


def pixels_in(frame: bytes) -> Pixels:
    """The image in a frame. Raises UnreadableError where it holds a reason, ValueError where it holds neither."""
    head, _, data = frame.partition(b"\n")
    fields = _fields(head)
    try:
        found = Pixels(str(fields["type"]), data, int(fields["width"]), int(fields["height"]))
    except (KeyError, TypeError) as error:
        raise ValueError("it is no image") from error
    fits = 0 < found.width <= LONGEST and 0 < found.height <= LONGEST
    raw = found.type == RGB and len(data) == 3 * found.width * found.height
    if not fits or not (raw or found.type in ("image/png", "image/jpeg")):
        raise ValueError("it is no such image")
    return found


def _fields(frame: bytes) -> dict[str, Any]:
    """The JSON object in a frame. Raises UnreadableError where it holds a reason, ValueError."""
    fields = json.loads(frame)
    if not isinstance(fields, dict):
        raise ValueError("it is no object")
    if "unreadable" in fields:
        raise FileUnreadableError(str(fields["unreadable"]))
    return fields
