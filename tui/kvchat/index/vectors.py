"""Vectors as the index keeps them: of one model at a time, of length 1, each number in one byte, with a scale; and how
near they are.

numpy is an accelerator that may be missing. It is imported when there are vectors to compare, never before. The vectors
carry a count of their changes, so that a reader with some in memory knows when to read again.
"""

from __future__ import annotations

import importlib
import math
import sqlite3
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import mul
from typing import Any

from msgspec import Struct

from kvchat.index.scoping import ALL, Within
from kvchat.prompt.wire import whole_characters

_BLOCK = 1024
"""Vectors that are turned into floats at a time: this many fit into a processor's cache."""

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


class Matrix(Struct, frozen=True):
    """All vectors of a scope, for numpy."""

    ids: Any
    scales: Any
    numbers: Any

    @classmethod
    def of(cls, rows: Sequence[Row], length: int) -> Matrix:
        np = numpy()
        rows = [row for row in rows if len(row[2]) == length]
        numbers = np.frombuffer(b"".join(row[2] for row in rows), np.int8).reshape(len(rows), length)
        return cls(
            np.fromiter((row[0] for row in rows), np.int64, len(rows)),
            np.fromiter((row[1] for row in rows), np.float32, len(rows)),
            numbers,
        )

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


_MODEL, _LENGTH, _REVISION = "model", "length", "revision"
"""What the state holds of the vectors: whose they are, how many numbers each has, and a count of their changes."""


def rows(connection: sqlite3.Connection, within: Within, limit: int = -1) -> list[Row]:
    """The vectors of documents, at most `limit` of them."""
    if within == ALL:
        return connection.execute("SELECT chunk, scale, data FROM vector LIMIT ?", (limit,)).fetchall()
    where, values = within.condition
    return connection.execute(
        "SELECT vector.chunk, scale, data FROM doc JOIN chunk ON chunk.doc = doc.id "
        f"JOIN vector ON vector.chunk = chunk.id WHERE {where} LIMIT ?",
        (*values, limit),
    ).fetchall()


def lacking(
    connection: sqlite3.Connection, model: str, limit: int, within: Within
) -> list[tuple[int, str, str, str, str]]:
    """Chunks that have no vector of `model`: id, document, key, head and text."""
    where, values = within.condition
    without = (
        ""
        if state(connection).model != model
        else (" AND NOT EXISTS (SELECT 1 FROM vector WHERE vector.chunk = chunk.id)")
    )
    return connection.execute(
        "SELECT chunk.id, doc.name, key, head, text FROM chunk JOIN doc ON doc.id = chunk.doc "
        f"JOIN body ON body.id = chunk.id WHERE {where}{without} ORDER BY chunk.id LIMIT ?",
        (*values, limit),
    ).fetchall()


def put(
    connection: sqlite3.Connection,
    model: str,
    given: Mapping[tuple[str, str], Sequence[float]],
    asked: Mapping[tuple[str, str], int],
) -> None:
    """Keep vectors. Those of another model, or of another length, are thrown away: they cannot be compared. One whose
    chunk is no longer the one in `asked` is left out."""
    length = len(next(iter(given.values())))
    known = state(connection)
    if (known.model, known.length) != (model, length):
        connection.execute("DELETE FROM vector")
        connection.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", [(_MODEL, model), (_LENGTH, length)])
    for name, vector in given.items():
        row = connection.execute(
            "SELECT chunk.id FROM doc JOIN chunk ON chunk.doc = doc.id WHERE name = ? AND key = ?",
            tuple(map(whole_characters, name)),
        ).fetchone()
        if row is not None and asked.get(name, row[0]) == row[0]:
            connection.execute("INSERT OR REPLACE INTO vector VALUES (?, ?, ?)", (*row, *packed(vector)))
    _changed(connection)


def remove(connection: sqlite3.Connection, ids: Iterable[tuple[int]]) -> None:
    if connection.executemany("DELETE FROM vector WHERE chunk = ?", ids).rowcount > 0:
        _changed(connection)


class VectorState(Struct, frozen=True):
    """What vectors there are; another one whenever one has come or gone."""

    model: str
    length: int
    """How many numbers each has; 0: there were none yet."""
    revision: int


def state(connection: sqlite3.Connection) -> VectorState:
    known = dict(connection.execute("SELECT name, value FROM state"))
    return VectorState(known.get(_MODEL, ""), known.get(_LENGTH, 0), known.get(_REVISION, 0))


def _changed(connection: sqlite3.Connection) -> None:
    connection.execute(
        "INSERT INTO state VALUES (?, 1) ON CONFLICT(name) DO UPDATE SET value = value + 1", (_REVISION,)
    )
