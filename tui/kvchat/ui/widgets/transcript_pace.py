"""How often streaming text is drawn.

The rule: drawing takes a bounded share of a core, however fast the text comes and however dear it is to draw.
"""

from __future__ import annotations

FRAME = 1 / 15
"""Seconds between two flushes at least."""
REST = 3
"""After a flush, this many times the CPU it took is left to others."""


class Pace:
    """Tells when the next flush is due. Times are monotonic seconds, costs CPU seconds."""

    def __init__(self) -> None:
        self._due = 0.0

    def flushed(self, now: float, cost: float) -> None:
        """A flush that took `cost` is on the screen."""
        self._due = now + max(FRAME, REST * cost)

    def delay(self, now: float) -> float:
        """Seconds until text may be drawn again; 0: at once."""
        return max(0.0, self._due - now)
