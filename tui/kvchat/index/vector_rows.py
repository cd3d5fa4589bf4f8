"""The vectors of chunks as the index's file keeps them: of one model at a time.

The rule: a count of their changes goes along with them, so that whoever holds some in memory knows when to read again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kvchat.index.scoping import Within
from kvchat.index.vectors import Row, packed
from kvchat.prompt.wire import whole_characters

_MODEL, _LENGTH, _REVISION = "model", "length", "revision"
"""What the state holds of the vectors: whose they are, how many numbers each has, and a count of their changes."""


def rows(connection: sqlite3.Connection, within: Within, limit: int = -1) -> list[Row]:
    """The vectors of documents, at most `limit` of them."""
    if within.is_all:
        return connection.execute("SELECT chunk, scale, data FROM vector LIMIT ?", (limit,)).fetchall()
    where, values = within.condition
    return connection.execute(
        "SELECT vector.chunk, scale, data FROM doc JOIN chunk ON chunk.doc = doc.id "
        f"JOIN vector ON vector.chunk = chunk.id WHERE {where} LIMIT ?", (*values, limit)).fetchall()


def lacking(connection: sqlite3.Connection, model: str, limit: int,
            within: Within) -> list[tuple[int, str, str, str, str]]:
    """Chunks that have no vector of `model`: id, document, key, head and text."""
    where, values = within.condition
    without = "" if state(connection).model != model else (
        " AND NOT EXISTS (SELECT 1 FROM vector WHERE vector.chunk = chunk.id)")
    return connection.execute(
        "SELECT chunk.id, doc.name, key, head, text FROM chunk JOIN doc ON doc.id = chunk.doc "
        f"JOIN body ON body.id = chunk.id WHERE {where}{without} ORDER BY chunk.id LIMIT ?",
        (*values, limit)).fetchall()


def put(connection: sqlite3.Connection, model: str, given: Mapping[tuple[str, str], Sequence[float]],
        asked: Mapping[tuple[str, str], int]) -> None:
    """Keep vectors. Those of another model, or of another length, are thrown away: they cannot be compared. One whose
    chunk is no longer the one in `asked` is left out."""
    length = len(next(iter(given.values())))
    known = state(connection)
    if (known.model, known.length) != (model, length):
        connection.execute("DELETE FROM vector")
        connection.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", [(_MODEL, model), (_LENGTH, length)])
    for name, vector in given.items():
        row = connection.execute("SELECT chunk.id FROM doc JOIN chunk ON chunk.doc = doc.id WHERE name = ? AND key = ?",
                                 tuple(map(whole_characters, name))).fetchone()
        if row is not None and asked.get(name, row[0]) == row[0]:
            connection.execute("INSERT OR REPLACE INTO vector VALUES (?, ?, ?)", (*row, *packed(vector)))
    _changed(connection)


def remove(connection: sqlite3.Connection, ids: Iterable[tuple[int]]) -> None:
    if connection.executemany("DELETE FROM vector WHERE chunk = ?", ids).rowcount > 0:
        _changed(connection)


@dataclass(frozen=True, slots=True)
class State:
    """What vectors there are; another one whenever one has come or gone."""

    model: str
    length: int
    """How many numbers each has; 0: there were none yet."""
    revision: int


def state(connection: sqlite3.Connection) -> State:
    known = dict(connection.execute("SELECT name, value FROM state"))
    return State(known.get(_MODEL, ""), known.get(_LENGTH, 0), known.get(_REVISION, 0))


def _changed(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO state VALUES (?, 1) ON CONFLICT(name) DO UPDATE SET value = value + 1",
                       (_REVISION,))
