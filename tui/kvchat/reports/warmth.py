"""How warm a conversation is: what the server still holds of it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Heat(StrEnum):
    WARM = "warm"
    """In a slot: the next turn reads only what is new."""
    PARKED = "parked"
    """In the server's memory or partly in a slot: part of it has to be prefilled, or a look-up is needed."""
    COLD = "cold"
    UNKNOWN = "unknown"


class Warmth(Struct, frozen=True):
    """What the server holds of a conversation or a branch. None: not known."""

    heat: Heat = Heat.UNKNOWN
    held: int | None = None
    """Tokens of it that the server holds."""
    to_prefill: int | None = None
    """Tokens that the next turn would prefill a second time."""
    since: float | None = None
    """When the server last used it, seconds since the epoch."""
    exact: bool = True
    """Whether `to_prefill` is counted; else it is estimated from the last request, until the tokens are known."""


UNKNOWN = Warmth()
