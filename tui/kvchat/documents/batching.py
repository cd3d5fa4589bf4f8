"""Batching: what indexing puts into the index, many documents to a transaction.

The rule: a document has its stamp only once all its chunks are in, so that what a run that is killed at any moment
leaves half done is read again; and no transaction is so long that another kvchat waits for it noticeably. What cannot
be put in because another kvchat holds the index raises IndexBusyError.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kvchat.index.index import Chunk, Document, Index, exactly

MOST_SECONDS = 0.25
MOST_CHUNKS = 2000
MOST_CHARACTERS = 4_000_000
MOST_GONE = 200
_REST = 0.05
"""Seconds between removals in which another process can take the lock: whoever waits tries every 0.03."""


class Batch:
    """Documents that wait for their transaction."""

    def __init__(self, index: Index, lasts: Callable[[], bool] = lambda: True) -> None:
        self._index = index
        self._lasts = lasts
        """Whether there is still something to write for."""
        self._documents: list[Document] = []
        self._begun = 0.0
        self._chunks = 0
        self._characters = 0

    def put(self, doc: str, chunks: Sequence[Chunk], stamp: str, date: float | None) -> None:
        """Make `chunks` what there is of a document, now or a moment later. A large one goes in by and by."""
        if max(len(chunks), self._there(doc)) > MOST_CHUNKS:
            self.flush()
            self._index.replace_slowly((doc, chunks, stamp, date), MOST_CHUNKS, _REST)
            return
        if not self._documents:
            self._begun = time.monotonic()
        self._documents.append((doc, chunks, stamp, date))
        self._chunks += len(chunks)
        self._characters += sum(len(chunk.text) for chunk in chunks)
        if (self._chunks >= MOST_CHUNKS or self._characters >= MOST_CHARACTERS
                or time.monotonic() - self._begun >= MOST_SECONDS):
            self.flush()

    def flush(self) -> None:
        """Put in what waits."""
        if self._documents and self._lasts():
            self._index.replace_all(self._documents, at_once=True)
        self._documents = []
        self._chunks = self._characters = 0

    def remove(self, docs: Sequence[str]) -> None:
        """Take documents out."""
        some: list[str] = []
        chunks = 0
        for doc in docs:
            if not self._lasts():
                return
            there = self._there(doc)
            if there > MOST_CHUNKS:
                self._index.replace_slowly((doc, (), "", None), MOST_CHUNKS, _REST)
                there = 0
            if some and (chunks + there > MOST_CHUNKS or len(some) == MOST_GONE):
                self._index.replace_all((), gone=some, at_once=True)
                time.sleep(_REST)
                some, chunks = [], 0
            some.append(doc)
            chunks += there
        if self._lasts():
            self._index.replace_all((), gone=some, at_once=True)

    def _there(self, doc: str) -> int:
        """How many chunks the index has of a document."""
        return self._index.counts(exactly(doc))[1]
