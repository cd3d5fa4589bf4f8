"""What a saved state answers: the likeliest next tokens, by which it is known again when it comes back.

A restored state is compared with itself as it was saved, never with the same text prefilled again: batches of
another size give other last bits, and hide a flipped one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct


class StateProbe(Struct, frozen=True):
    """The likeliest tokens after a state, with the logarithms of their probabilities, the likeliest first."""

    TOPS: ClassVar[int] = 20
    """How many of the likeliest tokens are compared."""

    tops: tuple[tuple[int, float], ...]
    """NaN where the server could not compute one: such a state equals none, not even itself."""
    cached: int
    """Tokens of the state that the server reused for it."""
    extended: bool = False
    """Whether the state was asked with one token more than it holds: so it is done where a cache cannot give up its
    last token, and the state is restored again afterwards."""

    @property
    def is_sound(self) -> bool:
        return bool(self.tops) and not any(math.isnan(value) for _, value in self.tops)

    def difference(self, other: StateProbe) -> float:
        """The largest difference between two probes, 0.0 only where they are equal bit for bit. A token that only one
        of them names counts with the other's least value; probes that cannot be compared are infinitely far apart."""
        if not (self.is_sound and other.is_sound) or ((self.cached, self.extended) != (other.cached, other.extended)):
            return math.inf
        if self.tops == other.tops:
            return 0.0
        own, others = dict(self.tops), dict(other.tops)
        least, others_least = min(own.values()), min(others.values())
        found = max(abs(own.get(id, least) - others.get(id, others_least)) for id in own.keys() | others.keys())
        return found or math.ulp(0.0)  # equal values of other tokens, or in another order

    def proves(self, other: StateProbe, spread: float) -> bool:
        """Whether `other` is of the same state, on a server whose probes of one state differ by up to `spread` (0.0:
        they are equal bit for bit)."""
        return self.difference(other) <= 2 * spread

    @staticmethod
    def spread(probes: Sequence[StateProbe]) -> float:
        """How far probes of one state are apart at most; infinite where one of them is not sound."""
        return max((one.difference(other) for at, one in enumerate(probes) for other in probes[:at]), default=0.0)
