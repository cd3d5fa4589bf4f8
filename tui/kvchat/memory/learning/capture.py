"""When a conversation is due to be gone through for memories. Pure.

The rule: nothing becomes due by having waited; every time is counted from the end of the last answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvchat.config import MemorySettings
from kvchat.prompt.message import Node
from kvchat.store.jobs import JobReason

BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Due:
    """When to go through a conversation, and why then."""

    at: float
    """Seconds since the epoch."""
    why: JobReason


def due(pending: Sequence[Node], settings: MemorySettings, ended: float, *, left: bool = False) -> Due | None:
    """When these messages are due, if the last answer ended at `ended`; None: there is nothing to go through. `left`:
    the person went to another conversation."""
    if not pending:
        return None
    if len(pending) >= settings.most_messages:
        return Due(ended, JobReason.MOST)
    if left:
        return Due(ended, JobReason.LEFT)
    if len(pending) >= settings.every_messages or tokens_of(pending) >= settings.every_tokens:
        return Due(ended + settings.rest_seconds, JobReason.ENOUGH)
    return Due(ended + settings.idle_seconds, JobReason.RESTS)


def tokens_of(nodes: Sequence[Node]) -> int:
    """About how many tokens messages have."""
    return sum(len(node.wire) for node in nodes) // BYTES_PER_TOKEN
