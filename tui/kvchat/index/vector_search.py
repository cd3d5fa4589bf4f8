"""Find the chunks near a vector: with numpy among all in the scope, without it among the best by words.

Memory holds the vectors of a few scopes, and reads them again when vectors have changed; where that takes long, not at
every search while vectors are being put in. Ids of chunks are never used again, so that what is held may be old, never
wrong.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from sqlite3 import Connection

from msgspec import Struct

from kvchat.index import content, vectors
from kvchat.index.ranking import Ranked
from kvchat.index.scoping import Within

COMPARED_WITHOUT_NUMPY = 500
"""Vectors of a scope that are all compared without numpy too."""
_SCOPES = 3
"""Scopes whose vectors are held."""
_QUICK_S = 0.02
"""Reading that takes no longer than this is done whenever vectors have changed."""
_REST = 20
"""How many times as long as reading takes what was read is used, though vectors have changed."""


class ScopedVectors(Struct, frozen=True):
    """The vectors of a scope, in memory."""

    matrix: vectors.Matrix
    state: vectors.VectorState
    """Of the vectors, when they were read."""
    good_until: float
    """By the monotonic clock: what changes before that waits."""

    def fits(self, state: vectors.VectorState) -> bool:
        same_model = (self.state.model, self.state.length) == (state.model, state.length)
        return self.state == state or (same_model and time.monotonic() < self.good_until)


def near(
    held: dict[Within, ScopedVectors],
    connection: Connection,
    vector: Sequence[float],
    model: str,
    within: Within,
    found: Sequence[Ranked],
    count: int,
) -> dict[int, float]:
    """The cosines of the chunks whose vectors are compared, of about `count` at most: by id. `held`: what is in memory,
    read and kept by this function; `found`: the best by words."""
    one = vectors.unit(vector)
    state = vectors.state(connection)
    if one is None or state.length != len(one) or model not in ("", state.model):
        return {}
    if vectors.numpy() is not None:
        dated = content.ids(connection, within) if within.is_dated else None
        return _matrix(held, connection, within.undated, state).nearest(one, count, dated)
    rows = vectors.rows(connection, within, COMPARED_WITHOUT_NUMPY + 1)
    if len(rows) > COMPARED_WITHOUT_NUMPY:
        rows = list(
            content.of(connection, "SELECT chunk, scale, data FROM vector WHERE chunk", [ranked.id for ranked in found])
        )
    return vectors.compared(rows, one)


def _matrix(
    held: dict[Within, ScopedVectors], connection: Connection, within: Within, state: vectors.VectorState
) -> vectors.Matrix:
    known = held.pop(within, None)
    if known is None or not known.fits(state):
        began = time.monotonic()
        matrix = vectors.Matrix.of(vectors.rows(connection, within), state.length)
        now = time.monotonic()
        known = ScopedVectors(matrix, state, now + _REST * (now - began) if now - began > _QUICK_S else now)
    held[within] = known
    if len(held) > _SCOPES:
        del held[next(iter(held))]
    return known.matrix
