"""The search index over memories and documents: one for both, derived from them, and gone without harm.

The rule: no trouble with the index is trouble for a chat. Whatever happens to its file, every call does its work, at
worst on an index in memory that is empty at first. Whoever fills it looks at `docs` now and then: a document that is
missing there, or has another stamp, is put in again.

How it is used. A document is a name with a stamp that says of what state of it the chunks are; its name begins with
what it belongs to: `memory/profile.md`, `docs/<collection>/guide/start.md`. A scope is the beginning of names, or a
list of several; `exactly(name)` is that of one document, while `docs/a.md` is also the beginning of `docs/a.md2`. One
that ends with `/` and one document cost least. No scopes (an empty list) are no documents. A document may have a date.

A chunk has a key that is unique in its document, a head (headings, weighed more) and a text of about 1,000 characters
at most. It is found as a whole. `replace` takes all chunks of a document at once, in their order, and touches only what
changed, so that it may be called after every change of a large document.

Vectors are optional, and of one model at a time. Whoever has a source of vectors asks for chunks `without_vector` until
there are none. With numpy all vectors of the scope are compared, without it those of the best chunks by words, and all
where they are few.

Every method may be called in any thread; searches run beside a write. Two kvchats may share a file.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Literal, TypeVar

from kvchat.index import content, nearness, ranking, tables, vector_rows
from kvchat.index.content import Chunk, Name
from kvchat.index.fusion import fused
from kvchat.index.ranking import Ranked, in_order
from kvchat.index.scoping import Scope, Within, exactly
from kvchat.index.tables import Tables
from kvchat.index.words import content_words
from kvchat.store.errors import StoreError, StoreUnavailable

__all__ = ["Chunk", "Document", "Hit", "Index", "Scope", "exactly"]

POOL = 200
"""The best by words, and the nearest by vectors, that are looked at."""

Document = tuple[str, Sequence[Chunk], str, float | None]
"""A document to put in: name, chunks, stamp, and date in seconds since the epoch."""
AGAIN_S = 60.0
"""After so long in memory the file is tried again."""

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that was found."""

    doc: str
    chunk: Chunk
    score: float
    """Higher is better; to be compared within one search only."""
    matched: int
    """How many distinct words of the query, of those that carry meaning, stand in the chunk; 0 for one that only its
    vector found."""
    why: Literal["words", "vector", "both"]
    similarity: float | None = None
    """The cosine of the vectors, from -1 to 1; None: not compared. What is near depends on the model."""


class Index:
    """The index. `open` makes one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._tables = tables.opened(path)
        self._renewing = threading.Lock()
        self._asked: dict[Name, int] = {}
        self._again = time.monotonic() + AGAIN_S

    @classmethod
    def open(cls, path: Path | None) -> Index:
        """The index in the file `path`, made where there is none. None: in memory."""
        return cls(path)

    @property
    def path(self) -> Path | None:
        """Its file; None while it is in memory."""
        return self._tables.path

    def search(self, query: str, k: int = 8, *, scope: Scope = "", vector: Sequence[float] | None = None,
               model: str = "", since: float | None = None, until: float | None = None) -> list[Hit]:
        """The best `k` chunks, the best first. Any text is a query; one without a word that carries meaning finds
        nothing by words. `vector`: of the query; it is used where there are vectors of its length and, if it is named,
        of its `model`. `since` and `until`: only documents of a date from the one on, and before the other. Something
        is always nearest: whoever needs a bar looks at `matched` and `similarity`."""
        if k < 1:
            return []
        words = content_words(query)
        within = Within.of(scope, since, until)

        def work(at: Tables) -> list[Hit]:
            with at.reading() as connection:
                found = ranking.by_words(connection, at.fts, words, within, max(POOL, k), k)
                near = nearness.near(at.held, connection, vector, model, within, found, POOL) if vector else {}
                best = _fused(connection, found, near)[:k]
                chunks = content.chunks(connection, [one.id for one in best])
            counts = ranking.matched(at.fts, words, chunks)
            by_words = {one.id for one in found}
            return [Hit(one.name[0], chunks[one.id], one.score, counts[one.id], _why(one.id, by_words, near),
                        near.get(one.id)) for one in best]

        return self._done(work)

    def frequencies(self, words: Sequence[str], most: int, *, scope: Scope = "") -> list[int]:
        """In how many chunks each of these texts is found by its words, counted up to `most`."""
        sought = [content_words(word) for word in words]
        within = Within.of(scope)
        return self._read(lambda at, connection: ranking.frequencies(connection, at.fts, sought, within, most))

    def replace(self, doc: str, chunks: Sequence[Chunk], stamp: str = "", date: float | None = None) -> None:
        """Make `chunks` what there is of a document, in one transaction. What says the same stays, with its vector,
        under whatever key. Of chunks with the same key the last one counts."""
        self.replace_all([(doc, chunks, stamp, date)])

    def replace_all(self, documents: Sequence[Document], gone: Sequence[str] = ()) -> None:
        """`replace` for several documents, and `remove` for those `gone`, in one transaction."""
        def work(at: Tables, connection: Connection) -> None:
            for doc in gone:
                content.remove(connection, at.fts, doc)
            for document in documents:
                content.replace(connection, at.fts, *document)

        if documents or gone:
            self._written(work)

    def remove(self, doc: str) -> None:
        """Take a document out, if it is there."""
        self.replace_all((), [doc])

    def docs(self, scope: Scope = "") -> dict[str, str]:
        """The documents by name, each with the stamp it was put in with."""
        return self._read(lambda at, connection: content.docs(connection, Within.of(scope)))

    def counts(self, scope: Scope = "") -> tuple[int, int]:
        """How many documents there are, also those without chunks, and how many chunks."""
        return self._read(lambda at, connection: content.counts(connection, Within.of(scope)))

    def names(self, scope: str, beginning: str, most: int) -> list[str]:
        """At most `most` names of documents that complete what is written behind `scope`: one for each folder and file
        that it can become at its place, then those in which a folder or file anywhere in the scope begins so."""
        return self._read(lambda at, connection: content.completions(connection, scope, beginning, most))

    def get(self, doc: str, keys: Sequence[str] | None = None) -> list[Chunk]:
        """The chunks of a document in their order; only those with these keys, if they are named."""
        return self._read(lambda at, connection: content.get(connection, doc, keys))

    def without_vector(self, model: str, limit: int, scope: Scope = "") -> list[tuple[str, Chunk]]:
        """At most `limit` chunks that have no vector of this model, each with its document."""
        found = self._read(lambda at, connection: vector_rows.lacking(connection, model, limit, Within.of(scope)))
        self._asked |= {(doc, key): id for id, doc, key, _, _ in found}
        return [(doc, Chunk(*rest)) for _, doc, *rest in found]

    def put_vectors(self, model: str, vectors: Mapping[Name, Sequence[float]]) -> None:
        """Keep the vectors of chunks, by document and key. Those of a model used before are thrown away. One whose
        chunk is gone, or has changed since `without_vector` named it, is left out. Raises ValueError for vectors of
        several lengths or with numbers that are not finite; nothing is kept then."""
        if not vectors:
            return
        if len({len(vector) for vector in vectors.values()}) > 1:
            raise ValueError("vectors of one model have one length")
        asked = {name: self._asked.pop(name) for name in vectors if name in self._asked}
        self._written(lambda at, connection: vector_rows.put(connection, model, vectors, asked))

    def digest(self, scope: Scope = "") -> str:
        """A hash of all that a search by words can find: equal before and after the index is made anew, in whatever
        order its documents came."""
        return self._read(lambda at, connection: content.digest(connection, at.fts, Within.of(scope)))

    def close(self) -> None:
        """Let go of the file. Calls after that work on an empty index in memory."""
        with self._renewing:
            self._path = None
            self._tables.close()

    def _read(self, work: Callable[[Tables, Connection], T]) -> T:
        def reading(at: Tables) -> T:
            with at.reading() as connection:
                return work(at, connection)

        return self._done(reading)

    def _written(self, work: Callable[[Tables, Connection], None]) -> None:
        def writing(at: Tables) -> None:
            with at.writing() as connection:
                work(at, connection)

        self._done(writing)

    def _done(self, work: Callable[[Tables], T]) -> T:
        """What `work` gives; where the file fails it, on one that was opened again or made anew, at last in memory."""
        self._back_to_the_file()
        for last in (False, True):
            at = self._tables
            try:
                return work(at)
            except StoreError as error:
                self._renew(at, error, in_memory=last)
        return work(self._tables)

    def _back_to_the_file(self) -> None:
        """Try the file again, some time after it could not be used: it may only have been locked. What was put in
        meanwhile is not there, as whoever fills it will find."""
        if self._path is None or self._tables.path is not None or time.monotonic() < self._again:
            return
        with self._renewing:
            if self._path is not None and self._tables.path is None:
                self._again = time.monotonic() + AGAIN_S
                found, before = tables.opened(self._path), self._tables
                if found.path is not None:
                    self._tables = found
                (found if found.path is None else before).close()

    def _renew(self, failed: Tables, error: StoreError, *, in_memory: bool) -> None:
        with self._renewing:
            if self._tables is not failed:
                return  # another thread has done it
            log.warning("the search index failed: %s", error.__cause__ or error)
            failed.close()
            path = None if in_memory else self._path
            self._again = time.monotonic() + AGAIN_S
            self._tables = tables.opened(path, anew=not isinstance(error, StoreUnavailable))


def _fused(connection: Connection, found: Sequence[Ranked], near: Mapping[int, float]) -> list[Ranked]:
    """One order of what was found by words and what is near."""
    if not near:
        return list(found)
    by_vector = in_order(connection, near.items())
    scores = fused([[one.id for one in found], [one.id for one in by_vector]])
    return in_order(connection, scores.items())


def _why(id: int, by_words: set[int], near: Mapping[int, float]) -> Literal["words", "vector", "both"]:
    if id in near:
        return "both" if id in by_words else "vector"
    return "words"
