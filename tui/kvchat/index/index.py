"""The search index over memories and documents: one for both, derived from them, and gone without harm.

Trouble with the index never troubles a chat. Whatever happens to its file, every call works, at worst on an index in
memory that is empty at first. Whoever fills it looks at `docs` now and then: a document that is missing there, or has
another stamp, is put in again. A file that another kvchat holds is no damage: a search finds nothing that once, after a
second, `trouble` says so, and what was to be put in waits for the next call.

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

Every method may be called in any thread; searches run during a write. Two kvchats may share a file.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from sqlite3 import Connection
from typing import Literal, TypeVar

from msgspec import Struct

from kvchat.index import content, index_file, ranking, vector_search, vectors
from kvchat.index.content import Chunk, Name
from kvchat.index.index_file import IndexBusyError, Tables
from kvchat.index.scoping import Scope, Within, exactly
from kvchat.index.tokenizer import content_words
from kvchat.store.errors import StoreError, StoreUnavailable
from kvchat.text.problems import StoreProblem

__all__ = ["Chunk", "Document", "Hit", "Index", "IndexBusyError", "Scope", "exactly"]

RENEWED = 200
"""Chunks that are brought up to date in one transaction."""
POOL = 200
"""The best by words, and the nearest by vectors, that are looked at."""

Document = tuple[str, Sequence[Chunk], str, float | None]
"""A document to put in: name, chunks, stamp, and date in seconds since the epoch."""
AGAIN_S = 60.0
"""After so long in memory the file is tried again."""
SOON_S = 2.0
"""After so long one that was in use."""
PATIENCE_S = 3.0
"""How long what need not be put in at once waits for another kvchat to finish a write."""

T = TypeVar("T")
log = logging.getLogger(__name__)


class Hit(Struct, frozen=True):
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
        self._tables = index_file.open_tables(path)
        self._renewing = threading.Lock()
        self._asked: dict[Name, int] = {}
        self._putting = threading.RLock()
        self._waiting: dict[str, Document | None] = {}
        """What could not be put in, or taken out, because the file was in use."""
        self._is_busy = False
        self._again = self._next_try()

    @classmethod
    def open(cls, path: Path | None) -> Index:
        """The index in the file `path`, made where there is none. None: in memory."""
        return cls(path)

    @property
    def path(self) -> Path | None:
        """Its file, also while that is in use; None while it is in memory for another reason."""
        return self._path if self._tables.is_stand_in else self._tables.path

    @property
    def trouble(self) -> str:
        """A sentence where the last call could not use the file; empty: it could."""
        if self._is_busy or self._tables.is_stand_in:
            return StoreProblem.INDEX_BUSY
        return StoreProblem.INDEX_UNUSABLE if self._path is not None and self._tables.path is None else ""

    def search(
        self,
        query: str,
        k: int = 8,
        *,
        scope: Scope = "",
        vector: Sequence[float] | None = None,
        model: str = "",
        since: float | None = None,
        until: float | None = None,
    ) -> list[Hit]:
        """The best `k` chunks, the best first. Any text is a query; one of stop words alone finds nothing by
        words. `vector`: of the query; it is used where there are vectors of its length and, if it is named,
        of its `model`. `since` and `until`: only documents of a date from the one on, and before the other. Something
        is always nearest: whoever needs a bar looks at `matched` and `similarity`."""
        if k < 1:
            return []
        words = content_words(query)
        within = Within.of(scope, since, until)

        def work(at: Tables, connection: Connection) -> list[Hit]:
            found = ranking.by_words(connection, at.fts, words, within, max(POOL, k), k)
            near = vector_search.near(at.held, connection, vector, model, within, found, POOL) if vector else {}
            best = ranking.fused(connection, found, near)[:k]
            chunks = content.chunks(connection, [one.id for one in best])
            counts = ranking.matched(at.fts, words, chunks)
            by_words = {one.id for one in found}
            return [
                Hit(
                    one.name[0],
                    chunks[one.id],
                    one.score,
                    counts[one.id],
                    _why(one.id, by_words, near),
                    near.get(one.id),
                )
                for one in best
            ]

        return self._read(work, [])

    def frequencies(self, words: Sequence[str], most: int, *, scope: Scope = "") -> list[int]:
        """In how many chunks each of these texts is found by its words, counted up to `most`."""
        sought = [content_words(word) for word in words]
        within = Within.of(scope)
        return self._read(
            lambda at, connection: ranking.frequencies(connection, at.fts, sought, within, most), [0] * len(sought)
        )

    def replace(self, doc: str, chunks: Sequence[Chunk], stamp: str = "", date: float | None = None) -> None:
        """Make `chunks` what there is of a document, in one transaction. What says the same stays, with its vector,
        under whatever key. Of chunks with the same key the last one counts."""
        self.replace_all([(doc, chunks, stamp, date)])

    def replace_all(self, documents: Sequence[Document], gone: Sequence[str] = (), *, at_once: bool = False) -> None:
        """`replace` for several documents, and `remove` for those `gone`, in one transaction. `at_once`: raises
        IndexBusyError where another kvchat holds the file for long; else it is done by a later call then."""
        if not documents and not gone:
            return
        new = dict[str, Document | None](dict.fromkeys(gone)) | {document[0]: document for document in documents}
        with self._putting:
            if at_once:
                for doc in new:
                    self._waiting.pop(doc, None)
                self._put(new, None)
            else:
                self._waiting |= new
                self._put_what_waits(PATIENCE_S)

    def renew(self) -> None:
        """Bring what an earlier kvchat put in up to date, so that it is found by all the words that it has now; until
        then it is found as it was. About 1 ms a chunk, in short transactions. Raises IndexBusyError."""
        if self._looked_up(lambda at, connection: content.is_prepared(connection)):
            return
        while self._written(lambda at, connection: content.renew(connection, at.fts, RENEWED)):
            pass

    def replace_slowly(self, document: Document, most: int, rest: float) -> None:
        """`replace` in transactions of at most `most` chunks, `rest` seconds apart. The document has no stamp until all
        is in; nor has it one where somebody else wrote in it meanwhile. Raises IndexBusyError."""
        doc, chunks, stamp, date = document

        def slices() -> Iterator[content.Changes]:
            return self._looked_up(lambda at, connection: content.changes(connection, doc, chunks)).slices(most)

        def apply(part: content.Changes, stamp: str) -> None:
            self._written(lambda at, connection: content.apply(connection, at.fts, doc, part, stamp, date))

        for part in slices():
            apply(part, "")
            time.sleep(rest)
        if not any(slices()):
            apply(content.Changes([], [], []), stamp)

    def _put(self, documents: Mapping[str, Document | None], patience: float | None) -> None:
        def work(at: Tables, connection: Connection) -> None:
            for doc, document in documents.items():
                if document is None:
                    content.remove(connection, at.fts, doc)
                else:
                    content.replace(connection, at.fts, *document)

        self._written(work, patience)

    def _put_what_waits(self, patience: float) -> None:
        """What cannot be put in now goes on waiting."""
        if not self._waiting or not self._putting.acquire(blocking=patience > 0):
            return
        waiting, self._waiting = self._waiting, {}
        try:
            self._put(waiting, patience)
        except IndexBusyError:
            self._waiting = waiting
        finally:
            self._putting.release()

    def remove(self, doc: str) -> None:
        """Take a document out, if it is there."""
        self.replace_all((), [doc])

    def docs(self, scope: Scope = "", *, surely: bool = False) -> dict[str, str]:
        """The documents by name, each with the stamp it was put in with. `surely`: raise IndexBusyError where the file
        is in use, instead of returning none."""
        self._put_what_waits(0.0)

        def work(at: Tables, connection: Connection) -> dict[str, str]:
            if surely and at.is_stand_in:
                raise IndexBusyError
            return content.docs(connection, Within.of(scope))

        return self._looked_up(work) if surely else self._read(work, {})

    def count(self, scope: Scope = "") -> int:
        """How many chunks there are."""
        return self._read(lambda at, connection: content.count(connection, Within.of(scope)), 0)

    def names(self, scope: str, beginning: str, most: int) -> list[str]:
        """At most `most` names of documents that complete what is written behind `scope`: one for each folder and file
        that it can become at its place, then those in which a folder or file anywhere in the scope begins so."""
        return self._read(lambda at, connection: content.completions(connection, scope, beginning, most), [])

    def get(self, doc: str, keys: Sequence[str] | None = None) -> list[Chunk]:
        """The chunks of a document in their order; only those with these keys, if they are named."""
        return self._read(lambda at, connection: content.get(connection, doc, keys), [])

    def without_vector(self, model: str, limit: int, scope: Scope = "") -> list[tuple[str, Chunk]]:
        """At most `limit` chunks that have no vector of this model, each with its document."""
        nothing: list[tuple[int, str, str, str, str]] = []
        found = self._read(lambda at, connection: vectors.lacking(connection, model, limit, Within.of(scope)), nothing)
        self._asked |= {(doc, key): id for id, doc, key, _, _ in found}
        return [(doc, Chunk(*rest)) for _, doc, *rest in found]

    def put_vectors(self, model: str, given: Mapping[Name, Sequence[float]]) -> None:
        """Keep the vectors of chunks, by document and key. Those of a model used before are thrown away. One whose
        chunk is gone, or has changed since `without_vector` named it, is left out. Raises ValueError for vectors of
        several lengths or with numbers that are not finite; nothing is kept then."""
        if not given:
            return
        if len({len(vector) for vector in given.values()}) > 1:
            raise ValueError("vectors of one model have one length")
        asked = {name: self._asked.pop(name) for name in given if name in self._asked}

        with suppress(IndexBusyError):
            self._written(lambda at, connection: vectors.put(connection, model, given, asked), PATIENCE_S)

    def digest(self, scope: Scope = "") -> str:
        """A hash of all that a search by words can find: equal before and after a rebuild, in whatever order the
        documents came."""
        return self._read(lambda at, connection: content.digest(connection, at.fts, Within.of(scope)), "")

    def close(self) -> None:
        """Let go of the file. Calls after that work on an empty index in memory."""
        with self._renewing:
            self._path = None
            self._tables.close()

    def _read(self, work: Callable[[Tables, Connection], T], nothing: T) -> T:
        """What `work` gives; `nothing` where the file is in use."""
        try:
            return self._looked_up(work)
        except IndexBusyError:
            return nothing

    def _looked_up(self, work: Callable[[Tables, Connection], T]) -> T:
        """What `work` gives that reads. Raises IndexBusyError."""

        def reading(at: Tables) -> T:
            with at.reading() as connection:
                return work(at, connection)

        return self._tried(reading)

    def _written(self, work: Callable[[Tables, Connection], T], patience: float | None = None) -> T:
        """What `work` gives that writes. Raises IndexBusyError."""

        def writing(at: Tables) -> T:
            with at.writing(patience) as connection:
                return work(at, connection)

        return self._tried(writing)

    def _tried(self, work: Callable[[Tables], T]) -> T:
        """What `work` gives, noting whether the file is in use; where the file fails it, on one that was opened again
        or rebuilt, at last in memory. Raises IndexBusyError."""
        self._back_to_the_file()
        try:
            for last in (False, True):
                at = self._tables
                try:
                    found = work(at)
                    break
                except IndexBusyError:
                    raise
                except StoreError as error:
                    self._renew(at, error, in_memory=last)
            else:
                found = work(self._tables)
        except IndexBusyError:
            self._is_busy = True
            raise
        self._is_busy = False
        return found

    def _back_to_the_file(self) -> None:
        """Try the file again, some time after it could not be used: it may only have been locked. What was put in
        meanwhile is not there, as whoever fills it will find."""
        if self._path is None or self._tables.path is not None or time.monotonic() < self._again:
            return
        with self._renewing:
            if self._path is not None and self._tables.path is None:
                found, before = index_file.open_tables(self._path), self._tables
                before.is_stand_in = found.is_stand_in
                if found.path is not None:
                    self._tables = found
                (found if found.path is None else before).close()
                self._again = self._next_try()

    def _next_try(self) -> float:
        return time.monotonic() + (SOON_S if self._tables.is_stand_in else AGAIN_S)

    def _renew(self, failed: Tables, error: StoreError, *, in_memory: bool) -> None:
        with self._renewing:
            if self._tables is not failed:
                return  # another thread has done it
            log.warning("the search index failed: %s", error.__cause__ or error)
            failed.close()
            path = None if in_memory else self._path
            self._tables = index_file.open_tables(path, rebuild=not isinstance(error, StoreUnavailable))
            self._again = self._next_try()


def _why(id: int, by_words: set[int], near: Mapping[int, float]) -> Literal["words", "vector", "both"]:
    if id in near:
        return "both" if id in by_words else "vector"
    return "words"
