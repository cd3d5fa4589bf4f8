"""The comment at the end of an entry's line: which entry it is, from when, from which messages, by whom.

    <!-- m1a2b3c4d on:2026-11-21 src:7f3a#1c,1d by:qwen3-8b kind:preference c:0.9 h:9f2c1a -->

No value can end the comment, and a damaged comment gives what is left of it. `h` is a hash of the text that kvchat
wrote; where it is missing or differs, the words are the user's.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote, unquote

from msgspec import Struct

from kvchat.memory.entry import BY_HAND, Entry, Kind

_ID = re.compile(r"[a-z][0-9a-z]{1,31}")
_KEY = "(?:on|src|by|kind|c|h):"
_START = re.compile(
    rf"(?<!\\)<!--\s*(?:([mh](?=[a-z]*[0-9])[0-9a-z]{{8}})(?![0-9A-Za-z])"
    rf"|({_ID.pattern})(?=\s+{_KEY}))"
)
"""An id as kvchat makes them, or another before a known key: a note of the user's own is neither."""
_REST = (
    re.compile(r"((?:(?!<!--)[^\n])*?)-->"),
    re.compile(r"((?:\s+[a-z]+:[^\s>]*)*)\s*-->"),
    re.compile(rf"((?:[ \t]+{_KEY}[^\s<]*)*)(?:[ \t]*-{{1,2}}[ \t]*$)?", re.MULTILINE),
)
"""What follows the id: on one line; wrapped by an editor; cut off."""
_PAIR = re.compile(r"(?<!\S)([a-z]+):(\S*)")
_SAFE = "/:@+=,._-~()"


class Comment(Struct, frozen=True):
    """A comment of kvchat's, as it was found."""

    id: str
    values: Mapping[str, str]
    start: int
    end: int
    """Its end in the text it was found in."""


def comments(raw: str) -> list[Comment]:
    """The comments of kvchat in Markdown text, in order."""
    found: list[Comment] = []
    at = 0
    while start := _START.search(raw, at):
        for rest in _REST:
            if match := rest.match(raw, start.end()):
                at = max(match.end(), start.end())
                values = dict(reversed(_PAIR.findall(match[1])))
                found.append(Comment(start[1] or start[2], values, start.start(), at))
                break
    return found


def rendered(entry: Entry) -> str:
    """The comment of an entry. Raises ValueError for an id that is none."""
    if not _ID.fullmatch(entry.id):
        raise ValueError(f"{entry.id!r} cannot be the id of a memory")
    parts = [entry.id]
    if on := _written(entry.created):
        parts.append(f"on:{on}")
    if entry.conversation or entry.nodes:
        nodes = ",".join(_quoted(node, "-_.~") for node in entry.nodes)
        parts.append(f"src:{_quoted(entry.conversation, '-_.~')}" + (f"#{nodes}" if nodes else ""))
    parts += [f"by:{_quoted(entry.by, _SAFE)}", f"kind:{entry.kind}"]
    if entry.confidence is not None:
        parts.append(f"c:{round(entry.confidence, 2):g}")
    if not entry.edited:
        parts.append(f"h:{mark(entry.text)}")
    return f"<!-- {' '.join(parts)} -->"


def entry_of(comment: Comment, text: str, page: str, when: float) -> Entry:
    """The entry of a line with this comment and text; `when`: its time where the comment does not say."""
    values = comment.values
    conversation, _, nodes = values.get("src", "").partition("#")
    return Entry(
        comment.id,
        kind(values.get("kind", "")) or Kind.FACT,
        text,
        page,
        _read(values.get("on", ""), when),
        confidence=_confidence(values.get("c", "")),
        conversation=unquote(conversation),
        nodes=tuple(unquote(node) for node in nodes.split(",") if node),
        by=unquote(values.get("by", BY_HAND)),
        edited=values.get("h") != mark(text),
    )


def mark(text: str) -> str:
    """A short hash of an entry's text: it differs when the user has edited the line."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]


def derived_id(page: str, text: str, number: int = 0) -> str:
    """The id of a line without a comment: the same as long as its page and its text are."""
    parts = (page, text) if not number else (page, text, str(number))
    return "h" + hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:8]


def kind(word: str) -> Kind | None:
    """The kind of that name."""
    return Kind(word.lower()) if word.lower() in set(Kind) else None


def _quoted(text: str, safe: str) -> str:
    return quote(text, safe=safe, errors="replace")


def _written(created: float) -> str:
    try:
        moment = datetime.fromtimestamp(math.floor(created), UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    if moment.timestamp() == 0:
        return ""
    day, _, clock = moment.replace(tzinfo=None).isoformat().partition("T")
    return day if clock == "00:00:00" else f"{day}T{clock}Z"


def _read(on: str, otherwise: float) -> float:
    try:
        moment = datetime.fromisoformat(on)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return otherwise


def _confidence(written: str) -> float | None:
    try:
        value = float(written)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None
