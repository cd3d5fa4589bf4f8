"""Several orders of the same things made one, by reciprocal rank: no scores are compared that mean different things."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

FLATNESS = 60
"""How slowly a place counts for less: the usual constant of reciprocal rank fusion."""


def fused(orders: Iterable[Sequence[T]]) -> dict[T, float]:
    """The score of each thing: the sum over the orders it stands in of 1 / (FLATNESS + its place from 1)."""
    scores: dict[T, float] = {}
    for order in orders:
        for place, thing in enumerate(order, 1):
            scores[thing] = scores.get(thing, 0.0) + 1 / (FLATNESS + place)
    return scores
