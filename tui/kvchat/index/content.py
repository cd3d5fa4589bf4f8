"""Write and read the contents of the index: documents and their chunks.

The full-text table keeps no copy of the text, so a removal passes exactly the text that was put in.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from kvchat.index import vectors
from kvchat.index.scoping import ALL, Within, places
from kvchat.index.tokenizer import PREPARED, prepared, prepared_before
from kvchat.prompt.wire import whole_characters

Name = tuple[str, str]
"""A chunk's document and its key there."""


class Chunk(Struct, frozen=True):
    """A piece of a document that is found as a whole."""

    key: str
    """Unique in its document: an entry's id, or lines such as `12-40`."""
    head: str
    """Its place in the document, searched too: the headings above it. May be empty."""
    text: str


# Written.


class Changes(Struct, frozen=True):
    """What makes given chunks of what there is of a document."""

    removed: list[tuple[int, str, str]]
    """Id, head and text."""
    moved: list[tuple[str, int, int]]
    """Key and place from now on, and id."""
    added: list[tuple[int, str, str, str]]
    """Place, key, head and text."""

    def slices(self, most: int) -> Iterator[Changes]:
        """The same in parts of at most `most` chunks."""
        for start in range(0, len(self.removed), most):
            yield Changes(self.removed[start : start + most], [], [])
        for start in range(0, len(self.moved), most):
            yield Changes([], self.moved[start : start + most], [])
        for start in range(0, len(self.added), most):
            yield Changes([], [], self.added[start : start + most])


def replace(
    connection: sqlite3.Connection, fts: bool, doc: str, chunks: Iterable[Chunk], stamp: str, date: float | None
) -> None:
    """Make `chunks` what there is of `doc`. Those that say the same stay, with their vectors, also under a new key."""
    apply(connection, fts, doc, changes(connection, doc, chunks), stamp, date)


def changes(connection: sqlite3.Connection, doc: str, chunks: Iterable[Chunk]) -> Changes:
    """What is to be done to make `chunks` what there is of `doc`."""
    wanted = {
        whole_characters(chunk.key): (whole_characters(chunk.head), whole_characters(chunk.text)) for chunk in chunks
    }
    there = connection.execute(
        "SELECT chunk.id, key, at, head, text FROM doc JOIN chunk ON chunk.doc = doc.id "
        "JOIN body ON body.id = chunk.id WHERE name = ? ORDER BY chunk.id",
        (whole_characters(doc),),
    ).fetchall()
    kept = _kept(wanted, there)
    staying = set(kept.values())
    before = {row[0]: row[1:3] for row in there}
    return Changes(
        [(row[0], *row[3:]) for row in there if row[0] not in staying],
        [(key, at, kept[key]) for at, key in enumerate(wanted) if key in kept and before[kept[key]] != (key, at)],
        [(at, key, *said) for at, (key, said) in enumerate(wanted.items()) if key not in kept],
    )


def apply(connection: sqlite3.Connection, fts: bool, doc: str, done: Changes, stamp: str, date: float | None) -> None:
    """Apply the changes, and give the document its stamp. Chunks that another writer removed meanwhile are skipped."""
    doc = whole_characters(doc)
    id = _noted(connection, doc, whole_characters(stamp), date)
    there = {row[0] for row in of(connection, "SELECT id FROM chunk WHERE id", [row[0] for row in done.removed])}
    _take_out(connection, fts, doc, [row for row in done.removed if row[0] in there])
    connection.executemany("UPDATE chunk SET key = ?, at = ? WHERE id = ?", done.moved)
    tokens = places(doc) if fts else ""
    for at, key, head, text in done.added:
        chunk = connection.execute("INSERT INTO chunk(doc, at, key) VALUES (?, ?, ?)", (id, at, key)).lastrowid
        connection.execute("INSERT INTO body(id, head, text) VALUES (?, ?, ?)", (chunk, head, text))
        if fts:
            connection.execute(
                "INSERT INTO words(rowid, place, head, text) VALUES (?, ?, ?, ?)",
                (chunk, tokens, prepared(head), prepared(text)),
            )


def _noted(connection: sqlite3.Connection, doc: str, stamp: str, date: float | None) -> int:
    """The id of a document that is there now, with this stamp and date."""
    connection.execute(
        "INSERT INTO doc(name, stamp, date) VALUES (?1, ?2, ?3) ON CONFLICT(name) DO UPDATE SET stamp = ?2, date = ?3 "
        "WHERE stamp IS NOT ?2 OR date IS NOT ?3",
        (doc, stamp, date),
    )
    id: int = connection.execute("SELECT id FROM doc WHERE name = ?", (doc,)).fetchone()[0]
    return id


def _kept(wanted: Mapping[str, tuple[str, str]], there: Sequence[tuple[int, str, int, str, str]]) -> dict[str, int]:
    """The rows that stay, by the key they have from now on: those under their own key first."""
    kept = {key: id for id, key, _, *said in there if wanted.get(key) == tuple(said)}
    free: dict[tuple[str, str], list[int]] = {}
    for id, key, _, head, text in there:
        if kept.get(key) != id:
            free.setdefault((head, text), []).append(id)
    for key, said in wanted.items():
        if key not in kept and (ids := free.get(said)):
            kept[key] = ids.pop(0)
    return kept


def remove(connection: sqlite3.Connection, fts: bool, doc: str) -> None:
    """Take a document out. One that is not there is no error."""
    doc = whole_characters(doc)
    row = connection.execute("SELECT id FROM doc WHERE name = ?", (doc,)).fetchone()
    if row is not None:
        chunks = connection.execute(
            "SELECT id, head, text FROM chunk JOIN body USING (id) WHERE doc = ? ORDER BY id", row
        ).fetchall()
        _take_out(connection, fts, doc, chunks)
        connection.execute("DELETE FROM doc WHERE id = ?", row)


def _take_out(connection: sqlite3.Connection, fts: bool, doc: str, chunks: Sequence[tuple[int, str, str]]) -> None:
    if fts and chunks:
        tokens = places(doc)
        connection.executemany(
            "INSERT INTO words(words, rowid, place, head, text) VALUES ('delete', ?, ?, ?, ?)",
            ((chunk, tokens, prepared(head), prepared(text)) for chunk, head, text in chunks),
        )
    ids = [(chunk,) for chunk, _, _ in chunks]
    connection.executemany("DELETE FROM chunk WHERE id = ?", ids)
    connection.executemany("DELETE FROM body WHERE id = ?", ids)
    vectors.remove(connection, ids)


_STATE = "SELECT value FROM state WHERE name = ?"
_PUT_STATE = "INSERT INTO state VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET value = excluded.value"


def is_prepared(connection: sqlite3.Connection) -> bool:
    """Whether all chunks are in the full-text table as `prepared` gives them now."""
    row = connection.execute(_STATE, ("prepared",)).fetchone()
    return row is not None and row[0] == PREPARED


def renew(connection: sqlite3.Connection, fts: bool, most: int) -> bool:
    """Bring the next `most` chunks that an earlier kvchat put in up to date; whether there are more."""
    if is_prepared(connection):
        return False
    row = connection.execute(_STATE, ("renewed",)).fetchone()
    chunks = connection.execute(
        "SELECT chunk.id, name, head, text FROM chunk JOIN body USING (id) JOIN doc ON doc.id = chunk.doc "
        "WHERE chunk.id > ? ORDER BY chunk.id LIMIT ?",
        (row[0] if row else 0, most),
    ).fetchall()
    for id, doc, *said in chunks if fts else ():
        was, new = tuple(map(prepared_before, said)), tuple(map(prepared, said))
        if was != new:
            connection.execute(
                "INSERT INTO words(words, rowid, place, head, text) VALUES ('delete', ?, ?, ?, ?)",
                (id, places(doc), *was),
            )
            connection.execute(
                "INSERT INTO words(rowid, place, head, text) VALUES (?, ?, ?, ?)", (id, places(doc), *new)
            )
    if len(chunks) < most:
        connection.execute(_PUT_STATE, ("prepared", PREPARED))
        return False
    connection.execute(_PUT_STATE, ("renewed", chunks[-1][0]))
    return True


# Read: documents.


def docs(connection: sqlite3.Connection, within: Within) -> dict[str, str]:
    """The documents by name, each with its stamp."""
    where, values = within.condition
    return dict(connection.execute(f"SELECT name, stamp FROM doc WHERE {where} ORDER BY name", values))


def count(connection: sqlite3.Connection, within: Within) -> int:
    """How many chunks there are."""
    where, values = within.condition
    found: int = connection.execute(
        f"SELECT count(*) FROM doc JOIN chunk ON chunk.doc = doc.id WHERE {where}", values
    ).fetchone()[0]
    return found


_HAS_TEXT = "EXISTS (SELECT 1 FROM chunk WHERE chunk.doc = doc.id)"


def completions(connection: sqlite3.Connection, scope: str, beginning: str, most: int) -> list[str]:
    """Names of documents with chunks for completing `beginning` behind the scope: one for each folder and file that it
    can become at its place, in their order; then those in which a folder's or the file's own name begins so, the
    shortest first."""
    found = _level(connection, whole_characters(scope + beginning), most)
    if beginning and len(found) < most:
        where, values = Within.of(scope).named
        found += [
            name
            for (name,) in connection.execute(
                f"SELECT name FROM doc WHERE {where} AND {_HAS_TEXT} AND substr(name, ?) LIKE ? ESCAPE '\\' "
                "ORDER BY length(name), name LIMIT ?",
                (*values, len(scope), f"%/{_literally(beginning)}%", most),
            )
        ]
    return list(dict.fromkeys(found))[:most]


def _level(connection: sqlite3.Connection, beginning: str, most: int) -> list[str]:
    """Of the names that begin so, the first one in each folder, and those in none: each by one look into the table."""
    above = len(beginning.rpartition("/")[0]) + 1
    where, values = Within.of(beginning).named
    start = beginning
    found: list[str] = []
    while len(found) < most and (
        row := connection.execute(
            f"SELECT name FROM doc WHERE {where} AND {_HAS_TEXT} AND name >= ? ORDER BY name LIMIT 1", (*values, start)
        ).fetchone()
    ):
        found += row
        end = row[0].find("/", above)
        start = row[0] + "\0" if end < 0 else row[0][:end] + chr(ord("/") + 1)
    return found


def _literally(text: str) -> str:
    return "".join(f"\\{char}" if char in "\\%_" else char for char in text)


# Read: chunks.


def get(connection: sqlite3.Connection, doc: str, keys: Sequence[str] | None) -> list[Chunk]:
    """The chunks of a document in their order; only those with these keys, if they are named."""
    rows = connection.execute(
        "SELECT key, head, text FROM doc JOIN chunk ON chunk.doc = doc.id "
        "JOIN body ON body.id = chunk.id WHERE name = ? ORDER BY at",
        (whole_characters(doc),),
    )
    sought = None if keys is None else set(map(whole_characters, keys))
    return [Chunk(*row) for row in rows if sought is None or row[0] in sought]


def texts(connection: sqlite3.Connection, within: Within) -> Iterator[tuple[int, str, str]]:
    """The id, the head and the text of every chunk."""
    where, values = within.condition
    yield from connection.execute(
        f"SELECT body.id, head, text FROM doc JOIN chunk ON chunk.doc = doc.id JOIN body ON body.id = chunk.id "
        f"WHERE {where}",
        values,
    )


def ids(connection: sqlite3.Connection, within: Within) -> list[int]:
    """Of all chunks."""
    where, values = within.condition
    return [
        id
        for (id,) in connection.execute(
            f"SELECT chunk.id FROM doc JOIN chunk ON chunk.doc = doc.id WHERE {where}", values
        )
    ]


def names(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, Name]:
    """The names of chunks."""
    return {
        id: (doc, key)
        for id, doc, key in of(
            connection, "SELECT chunk.id, doc.name, key FROM chunk JOIN doc ON doc.id = doc WHERE chunk.id", ids
        )
    }


def chunks(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, Chunk]:
    return {
        id: Chunk(*rest)
        for id, *rest in of(
            connection, "SELECT chunk.id, key, head, text FROM chunk JOIN body USING (id) WHERE chunk.id", ids
        )
    }


def digest(connection: sqlite3.Connection, fts: bool, within: Within) -> str:
    """A hash of all that a search can find, whatever the order in which it came in. Of all documents also of the words
    in the full-text table, so that one out of step with the chunks shows."""
    sums = hashlib.sha256()
    where, values = within.condition
    for row in connection.execute(
        "SELECT name, key, head, text FROM doc JOIN chunk ON chunk.doc = doc.id JOIN body ON body.id = chunk.id "
        f"WHERE {where} ORDER BY name, key",
        values,
    ):
        sums.update(repr(row).encode())
    if fts and within == ALL:
        for row in connection.execute("SELECT term, doc, cnt FROM terms"):
            sums.update(repr(row).encode())
    return sums.hexdigest()


_AT_ONCE = 500


def of(connection: sqlite3.Connection, sql: str, ids: Sequence[int]) -> Iterator[Any]:
    """The rows of a statement that ends where `IN (...)` belongs."""
    for start in range(0, len(ids), _AT_ONCE):
        part = ids[start : start + _AT_ONCE]
        yield from connection.execute(f"{sql} IN ({', '.join('?' * len(part))})", part)
