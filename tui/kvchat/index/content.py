"""What is in the index, read and written: documents, their chunks, and the vectors of those.

The rule: the full-text table keeps no copy of the text, so a removal hands in once more exactly what was put in.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvchat.index.vectors import packed
from kvchat.index.words import prepared
from kvchat.prompt.wire import whole_characters

Name = tuple[str, str]
"""A chunk's document and its key there."""
_MODEL, _LENGTH, REVISION = "model", "length", "revision"
"""What the state holds of the vectors: whose they are, how many numbers each has, and a count of their changes."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document that is found as a whole."""

    key: str
    """Unique in its document: an entry's id, or lines such as `12-40`."""
    head: str
    """Where it stands, in words that are searched too: the headings above it. May be empty."""
    text: str


def place(folder: str) -> str:
    """A folder of document names as a token of the index. Digits: no word ending is taken from them."""
    return str(int.from_bytes(hashlib.blake2b(whole_characters(folder).encode(), digest_size=8).digest()))


def _places(doc: str) -> str:
    """The tokens of all folders that `doc` is in."""
    return " ".join(place(doc[:at + 1]) for at, char in enumerate(doc) if char == "/")


def within(scope: str) -> tuple[str, tuple[str, ...]]:
    """The condition that a document's name begins with `scope`, and its values."""
    scope = whole_characters(scope)
    return ("doc.name >= ? AND doc.name < ?", (scope, scope + "\U0010ffff")) if scope else ("1", ())


def is_all(connection: sqlite3.Connection, scope: str) -> bool:
    """Whether there is no document outside of the scope."""
    where, values = within(scope)
    return not connection.execute(f"SELECT EXISTS (SELECT 1 FROM doc WHERE NOT ({where}))", values).fetchone()[0]


def replace(connection: sqlite3.Connection, fts: bool, doc: str, chunks: Iterable[Chunk], stamp: str) -> None:
    """Make `chunks` what there is of `doc`. Those that are equal stay as they are, with their vectors."""
    doc, stamp = whole_characters(doc), whole_characters(stamp)
    wanted = {key: (whole_characters(chunk.head), whole_characters(chunk.text))
              for chunk in chunks for key in (whole_characters(chunk.key),)}
    row = connection.execute("SELECT id, stamp FROM doc WHERE name = ?", (doc,)).fetchone()
    if row is None:
        id = connection.execute("INSERT INTO doc(name, stamp) VALUES (?, ?)", (doc, stamp)).lastrowid
    else:
        id = row[0]
        if row[1] != stamp:
            connection.execute("UPDATE doc SET stamp = ? WHERE id = ?", (stamp, id))
        gone = []
        for chunk, key, head, text in connection.execute(
                "SELECT id, key, head, text FROM chunk WHERE doc = ? ORDER BY id", (id,)):
            if wanted.get(key) == (head, text):
                del wanted[key]
            else:
                gone.append((chunk, head, text))
        _take_out(connection, fts, doc, gone)
    places = _places(doc)
    for key, (head, text) in wanted.items():
        chunk = connection.execute("INSERT INTO chunk(doc, key, head, text) VALUES (?, ?, ?, ?)",
                                   (id, key, head, text)).lastrowid
        if fts:
            connection.execute("INSERT INTO words(rowid, place, head, text) VALUES (?, ?, ?, ?)",
                               (chunk, places, prepared(head), prepared(text)))


def remove(connection: sqlite3.Connection, fts: bool, doc: str) -> None:
    """Take a document out. One that is not there is no error."""
    doc = whole_characters(doc)
    row = connection.execute("SELECT id FROM doc WHERE name = ?", (doc,)).fetchone()
    if row is not None:
        chunks = connection.execute("SELECT id, head, text FROM chunk WHERE doc = ? ORDER BY id", row).fetchall()
        _take_out(connection, fts, doc, chunks)
        connection.execute("DELETE FROM doc WHERE id = ?", row)


def _take_out(connection: sqlite3.Connection, fts: bool, doc: str, chunks: Sequence[tuple[int, str, str]]) -> None:
    places = _places(doc)
    if fts:
        connection.executemany(
            "INSERT INTO words(words, rowid, place, head, text) VALUES ('delete', ?, ?, ?, ?)",
            ((chunk, places, prepared(head), prepared(text)) for chunk, head, text in chunks))
    ids = [(chunk,) for chunk, _, _ in chunks]
    connection.executemany("DELETE FROM chunk WHERE id = ?", ids)
    if connection.executemany("DELETE FROM vector WHERE chunk = ?", ids).rowcount > 0:
        _vectors_changed(connection)


def docs(connection: sqlite3.Connection, scope: str) -> dict[str, str]:
    """The documents of a scope by name, each with its stamp."""
    where, values = within(scope)
    return dict(connection.execute(f"SELECT name, stamp FROM doc WHERE {where} ORDER BY name", values))


def texts(connection: sqlite3.Connection, scope: str) -> Iterator[tuple[int, str, str]]:
    """The id, the head and the text of every chunk of a scope."""
    where, values = within(scope)
    yield from connection.execute(
        f"SELECT chunk.id, head, text FROM doc JOIN chunk ON chunk.doc = doc.id WHERE {where}", values)


def names(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, Name]:
    """The names of chunks."""
    return {id: (doc, key) for id, doc, key in _of(
        connection, "SELECT chunk.id, doc.name, key FROM chunk JOIN doc ON doc.id = doc WHERE chunk.id", ids)}


def chunks(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, Chunk]:
    return {id: Chunk(*rest) for id, *rest in _of(connection, "SELECT id, key, head, text FROM chunk WHERE id", ids)}


def vectors(connection: sqlite3.Connection, scope: str, limit: int = -1) -> list[tuple[int, float, bytes]]:
    """The vectors of a scope, at most `limit` of them."""
    where, values = within(scope)
    return connection.execute(
        "SELECT vector.chunk, scale, data FROM vector JOIN chunk ON chunk.id = vector.chunk "
        f"JOIN doc ON doc.id = chunk.doc WHERE {where} LIMIT ?", (*values, limit)).fetchall()


def vectors_of(connection: sqlite3.Connection, ids: Sequence[int]) -> list[tuple[int, float, bytes]]:
    return list(_of(connection, "SELECT chunk, scale, data FROM vector WHERE chunk", ids))


def without_vector(connection: sqlite3.Connection, model: str, limit: int, scope: str) -> list[tuple[int, str, Chunk]]:
    """Chunks that have no vector of `model`: id, document and chunk."""
    where, values = within(scope)
    lacking = "" if of_vectors(connection, _MODEL) != model else (
        " AND NOT EXISTS (SELECT 1 FROM vector WHERE vector.chunk = chunk.id)")
    return [(id, doc, Chunk(*rest)) for id, doc, *rest in connection.execute(
        f"SELECT chunk.id, doc.name, key, head, text FROM chunk JOIN doc ON doc.id = chunk.doc WHERE {where}{lacking} "
        "ORDER BY chunk.id LIMIT ?", (*values, limit))]


def put_vectors(connection: sqlite3.Connection, model: str, given: Mapping[Name, Sequence[float]],
                asked: Mapping[Name, int]) -> None:
    """Keep vectors. Those of another model, or of another length, are thrown away: they cannot be compared. One whose
    chunk is no longer the one in `asked` is left out."""
    length = len(next(iter(given.values())))
    if (of_vectors(connection, _MODEL), of_vectors(connection, _LENGTH)) != (model, length):
        connection.execute("DELETE FROM vector")
        _remember(connection, _MODEL, model)
        _remember(connection, _LENGTH, length)
    for name, vector in given.items():
        row = connection.execute("SELECT chunk.id FROM doc JOIN chunk ON chunk.doc = doc.id WHERE name = ? AND key = ?",
                                 tuple(map(whole_characters, name))).fetchone()
        if row is not None and asked.get(name, row[0]) == row[0]:
            connection.execute("INSERT OR REPLACE INTO vector VALUES (?, ?, ?)", (*row, *packed(vector)))
    _vectors_changed(connection)


def of_vectors(connection: sqlite3.Connection, name: str) -> object:
    """A value of the state of the vectors; None before there were any."""
    row = connection.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    return row[0] if row else None


def comparable(connection: sqlite3.Connection, model: str, length: int) -> bool:
    """Whether there are vectors with which one of this model and length can be compared. `model` empty: of any."""
    return of_vectors(connection, _LENGTH) == length and model in ("", of_vectors(connection, _MODEL))


def _vectors_changed(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO state VALUES (?, 1) ON CONFLICT(name) DO UPDATE SET value = value + 1", (REVISION,))


def _remember(connection: sqlite3.Connection, name: str, value: object) -> None:
    connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))


def digest(connection: sqlite3.Connection, fts: bool, scope: str) -> str:
    """A hash of all that a search can find, whatever the order in which it came in. Without a scope also of the words
    in the full-text table, so that one out of step with the chunks shows."""
    sums = hashlib.sha256()
    where, values = within(scope)
    for row in connection.execute("SELECT name, key, head, text FROM doc JOIN chunk ON chunk.doc = doc.id "
                                  f"WHERE {where} ORDER BY name, key", values):
        sums.update(repr(row).encode())
    if fts and not scope:
        for row in connection.execute("SELECT term, doc, cnt FROM terms"):
            sums.update(repr(row).encode())
    return sums.hexdigest()


_AT_ONCE = 500


def _of(connection: sqlite3.Connection, sql: str, ids: Sequence[int]) -> Iterator[Any]:
    """The rows of a statement that ends where `IN (...)` belongs."""
    for start in range(0, len(ids), _AT_ONCE):
        part = ids[start:start + _AT_ONCE]
        yield from connection.execute(f"{sql} IN ({', '.join('?' * len(part))})", part)
