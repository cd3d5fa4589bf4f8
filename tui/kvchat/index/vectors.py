"""Vectors as the index keeps them: of length 1, each number in one byte, with a scale; and how near they are.

The rule: numpy is an accelerator that may be missing. It is imported when there are vectors to compare, never before.
"""

from __future__ import annotations

import importlib
import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import mul
from typing import Any

_BLOCK = 1024
"""Vectors that are turned into floats at a time: so many fit into a processor's cache."""

Row = tuple[int, float, bytes]
"""A chunk's id, the scale, and the bytes of its vector."""


def unit(vector: Sequence[float]) -> list[float] | None:
    """`vector` with the length 1; None for one without a direction. Raises ValueError for what is no vector."""
    if not vector or not all(map(math.isfinite, vector)):
        raise ValueError("a vector is one or more finite numbers")
    largest = max(map(abs, vector))
    if largest == 0:
        return None
    length = largest * math.hypot(*(number / largest for number in vector))
    return [number / length for number in vector]


def packed(vector: Sequence[float]) -> tuple[float, bytes]:
    """The scale and the bytes of a vector; a scale of 0 for one without a direction. Raises ValueError."""
    one = unit(vector)
    if one is None:
        return 0.0, bytes(len(vector))
    scale = max(map(abs, one)) / 127
    return scale, array("b", [round(number / scale) for number in one]).tobytes()


def cosine(scale: float, data: bytes, one: Sequence[float]) -> float:
    """How near a stored vector is to one of length 1: from -1 to 1."""
    total: float = sum(map(mul, array("b", data), one))
    return scale * total


def compared(rows: Iterable[Row], one: Sequence[float]) -> dict[int, float]:
    """The cosine of each row. Rows of another length are left out."""
    return {id: cosine(scale, data, one) for id, scale, data in rows if len(data) == len(one)}


@cache
def numpy() -> Any:
    """numpy, or None where it is not installed or does not work."""
    try:
        return importlib.import_module("numpy")
    except Exception:  # a broken installation fails in ways of its own
        return None


@dataclass(frozen=True, slots=True)
class Matrix:
    """All vectors of a scope, for numpy."""

    ids: Any
    scales: Any
    numbers: Any

    @classmethod
    def of(cls, rows: Sequence[Row], length: int) -> Matrix:
        np = numpy()
        rows = [row for row in rows if len(row[2]) == length]
        numbers = np.frombuffer(b"".join(row[2] for row in rows), np.int8).reshape(len(rows), length)
        return cls(np.fromiter((row[0] for row in rows), np.int64, len(rows)),
                   np.fromiter((row[1] for row in rows), np.float32, len(rows)), numbers)

    def nearest(self, one: Sequence[float], count: int, among: Sequence[int] | None = None) -> dict[int, float]:
        """The cosines of about the `count` nearest to a vector of length 1; of equal ones all or none. `among`: only of
        these ids."""
        np = numpy()
        if among is not None:
            chosen = np.isin(self.ids, np.asarray(among, np.int64))
            return Matrix(self.ids[chosen], self.scales[chosen], self.numbers[chosen]).nearest(one, count)
        total = len(self.ids)
        vector = np.asarray(one, np.float32)
        cosines = np.empty(total, np.float32)
        for start in range(0, total, _BLOCK):
            part = slice(start, start + _BLOCK)
            cosines[part] = self.numbers[part].astype(np.float32) @ vector
        cosines *= self.scales
        least = -np.inf if total <= count else np.partition(cosines, total - count - 1)[total - count - 1]
        best = np.flatnonzero(cosines > least)
        if not len(best):
            best = np.flatnonzero(cosines == least)
        return dict(zip(self.ids[best].tolist(), cosines[best].tolist(), strict=True))
