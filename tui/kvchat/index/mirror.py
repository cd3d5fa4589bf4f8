"""Small scopes held in memory as full-text tables of their own.

The rule: what is common in a scope is told by that scope alone. FTS5 scores by the whole of its table, so that in one
that thousands of other chunks share, a word that is rare in the scope would count for nothing. Ids of chunks are never
used again and what they stand for never changes, so that comparing ids brings a table up to date.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from kvchat.index import content
from kvchat.index.scoping import Within, places
from kvchat.index.words import TOKENIZE, prepared
from kvchat.store.file.database import connect

MOST_CHUNKS = 4000
"""Of a scope that is held: putting them in takes some tenths of a second, once."""
_SCOPES = 4
"""That are held at a time."""


class Mirrors:
    """The scopes that were searched last. For one thread at a time."""

    def __init__(self) -> None:
        self._held: dict[Within, tuple[sqlite3.Connection, set[int]]] = {}

    def of(self, connection: sqlite3.Connection, within: Within) -> sqlite3.Connection | None:
        """A connection with the table `words` of this scope alone; None where the scope is too large for it."""
        if content.counted(connection, within, MOST_CHUNKS + 1) > MOST_CHUNKS:
            return None
        table, there = self._held.pop(within) if within in self._held else (_empty(), set())
        wanted = set(content.ids(connection, within))
        table.executemany("DELETE FROM words WHERE rowid = ?", [(id,) for id in there - wanted])
        _fill(table, connection, sorted(wanted - there))
        self._held[within] = table, wanted
        if len(self._held) > _SCOPES:
            self._held.pop(next(iter(self._held)))[0].close()
        return table

    def close(self) -> None:
        """Let go of all."""
        for table, _ in self._held.values():
            table.close()
        self._held.clear()


def mirrored(connection: sqlite3.Connection, ids: Sequence[int]) -> sqlite3.Connection:
    """A connection with the table `words` of these chunks alone. To be closed."""
    table = _empty()
    _fill(table, connection, ids)
    return table


def _empty() -> sqlite3.Connection:
    table = connect(":memory:")
    table.execute(f"CREATE VIRTUAL TABLE words USING fts5(place, head, text, {TOKENIZE})")
    return table


def _fill(table: sqlite3.Connection, connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    table.execute("BEGIN")
    table.executemany("INSERT INTO words(rowid, place, head, text) VALUES (?, ?, ?, ?)", (
        (id, places(doc), prepared(head), prepared(text))
        for id, doc, head, text in content.of(
            connection, "SELECT body.id, doc.name, head, text FROM body JOIN chunk USING (id) "
                        "JOIN doc ON doc.id = chunk.doc WHERE body.id", ids)))
    table.execute("COMMIT")
