"""Which states the user keeps; what is saved of them is in `reports.cache_report`."""

from __future__ import annotations

from msgspec import Struct


class Keep(Struct, frozen=True):
    """That the state of a conversation, or a trunk, stays."""

    id: str
    node: str = ""
    """The message up to which it stays; empty: the last one, whichever that is."""
    since: float = 0.0
    """Seconds since the epoch."""
    name: str = ""
    """Of a trunk; empty: it is a conversation."""
