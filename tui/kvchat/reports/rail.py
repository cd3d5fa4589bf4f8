"""The rail: where the tokens of every message are now, seen from the next request of their conversation."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from kvchat.figures.accounting import NOISE


class Where(StrEnum):
    """Where tokens are."""

    SLOT = "slot"
    """Cached in a slot."""
    STORED = "stored"
    """In the server's host cache, or in a snapshot on the disk."""
    NOWHERE = "nowhere"
    """The next request would prefill them."""
    UNKNOWN = "unknown"
    """The server does not tell."""


class Stretch(Struct, frozen=True):
    """Where the tokens of one message are."""

    where: Where
    share: float = 1.0
    """How much of it is there, from its beginning on, 0 to 1; the rest is nowhere."""


NO_WORD = Stretch(Where.UNKNOWN)


class Cached(Struct, frozen=True):
    """What the next request of a conversation would take from the cache."""

    tokens: int | None = None
    """How many of its prompt's first tokens; None: not known."""
    where: Where = Where.UNKNOWN

    def stretches(self, ends: Sequence[int]) -> list[Stretch]:
        """Of messages that end at these tokens of the prompt, each behind the one before. A token or two that the
        server evaluates once more at the edge of a reply are no gap."""
        if self.tokens is None:
            return [NO_WORD] * len(ends)
        found, start = [], 0
        for end in ends:
            there = self.tokens - start
            if end - self.tokens <= NOISE and there > 0:
                found.append(Stretch(self.where))
            elif there > 0:
                found.append(Stretch(self.where, there / (end - start)))
            else:
                found.append(Stretch(Where.NOWHERE))
            start = end
        return found
