"""What was chosen to do before a request, and what the other ways would have cost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Way(StrEnum):
    """A way to send a request."""

    AS_IS = "send as is"
    PIN = "pin to a slot"
    DETOUR = "detour"
    """A tiny unrelated request first, which makes the server look up a parked state."""
    RESTORE = "restore a snapshot"


@dataclass(frozen=True, slots=True)
class Option:
    way: Way
    tokens: int
    """Tokens the server reads in all: for the request, and for getting there."""
    slot: int | None = None
    """The slot to pin or to restore into."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The chosen way and the options it was chosen from, cheapest first."""

    chosen: Option
    options: tuple[Option, ...]

    @property
    def slot(self) -> int | None:
        """The slot to pin the request to."""
        return self.chosen.slot if self.chosen.way is Way.PIN else None

    @property
    def sentence(self) -> str:
        """The choice and its reason, as the inspector says it."""
        others = "; ".join(f"{option.way} {option.tokens:,}" for option in self.options if option != self.chosen)
        return f"{self.chosen.way} ({self.chosen.tokens:,} tokens" + (f"; {others})" if others else ")")
