"""Batching: what indexing puts into the index, many documents to a transaction.

The rule: chunks and stamp of a document go in together, so that a run that is killed at any moment leaves nothing
half done; and no transaction is so long that another kvchat waits for it noticeably.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice

from kvchat.index.index import Chunk, Document, Index

MOST_SECONDS = 0.25
MOST_CHUNKS = 2000
MOST_CHARACTERS = 4_000_000
MOST_GONE = 200
_REST = 0.05
"""Seconds between removals in which another process can take the lock: whoever waits tries every 0.03."""


class Batch:
    """Documents that wait for their transaction."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._documents: list[Document] = []
        self._begun = 0.0
        self._chunks = 0
        self._characters = 0

    def put(self, doc: str, chunks: Sequence[Chunk], stamp: str, date: float | None) -> None:
        """Make `chunks` what there is of a document, now or a moment later."""
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
        if self._documents:
            self._index.replace_all(self._documents)
        self._documents = []
        self._chunks = self._characters = 0

    def remove(self, docs: Sequence[str]) -> None:
        """Take documents out."""
        left = iter(docs)
        while some := list(islice(left, MOST_GONE)):
            self._index.replace_all((), gone=some)
            if len(some) == MOST_GONE:
                time.sleep(_REST)
