"""Find text in the conversation.

Every message is searched in its source, and only messages that come into view are drawn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct

from kvchat.ui.render.message import TranscriptItem
from kvchat.ui.render.rows import Row


class Match(Struct, frozen=True):
    """The `ordinal`-th occurrence in a message."""

    node: str
    ordinal: int


def _folded(text: str) -> str:
    """Small letters, character for character."""
    small = text.lower()
    return small if len(small) == len(text) else text


def matches(items: Sequence[TranscriptItem], query: str) -> list[Match]:
    """Every occurrence of `query` in the texts, without regard to case."""
    wanted = _folded(query)
    if not wanted.strip():
        return []
    return [Match(item.node_id, number) for item in items for number in range(_folded(item.text).count(wanted))]


def marks(rows: Sequence[Row], first: int, query: str) -> list[tuple[int, int, int]]:
    """(row, start, stop) of every drawn occurrence from row `first` on; one that a wrap cut has two parts, of which
    only the first is given."""
    wanted = _folded(query)
    starts: list[int] = []
    parts: list[str] = []
    length = 0
    for row in rows[first:]:
        starts.append(length)
        separator = "\n" if "\n" in row.end else row.end
        parts.append(row.text + separator)
        length += len(parts[-1])
    text = _folded("".join(parts))
    found: list[tuple[int, int, int]] = []
    position = text.find(wanted) if wanted.strip() else -1
    while position >= 0:
        at = bisect_right(starts, position) - 1
        begin = position - starts[at]
        found.append((first + at, begin, begin + len(wanted)))
        position = text.find(wanted, position + len(wanted))
    return found
