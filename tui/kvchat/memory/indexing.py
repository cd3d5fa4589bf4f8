"""What the search index holds of the memory: one document per page, one chunk per entry.

The rule: it is made of the entries that are live and of nothing else, so that it can be thrown away and made anew.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath

from kvchat.index.index import Chunk, Index
from kvchat.memory.entry import Entry, Status

SCOPE = "memory/"
"""The beginning of the names of the memory's documents."""


def documents(entries: Iterable[Entry]) -> dict[str, list[Chunk]]:
    """The documents by name; the chunks in the order of their keys, so that equal entries give equal documents."""
    pages: dict[str, list[Chunk]] = defaultdict(list)
    for entry in entries:
        if entry.status is Status.LIVE:
            pages[SCOPE + entry.page].append(Chunk(entry.id, heading(entry.page), entry.text))
    return {name: sorted(chunks, key=lambda chunk: chunk.key) for name, chunks in pages.items()}


def heading(page: str) -> str:
    """What a page is about, in words: its name without folder and ending."""
    return PurePosixPath(page).stem.replace("-", " ").replace("_", " ")


def stamp(chunks: Iterable[Chunk]) -> str:
    """Differs when a chunk does."""
    said = "".join(f"{len(chunk.text)} {chunk.key} {chunk.head} {chunk.text}\0" for chunk in chunks)
    return hashlib.blake2b(said.encode("utf-8", "replace"), digest_size=16).hexdigest()


def brought_up_to_date(index: Index, entries: Iterable[Entry]) -> bool:
    """Make the index hold `entries`; whether it had to be changed."""
    wanted, there = documents(entries), index.docs(SCOPE)
    changed = False
    for name in there.keys() - wanted.keys():
        index.remove(name)
        changed = True
    for name, chunks in wanted.items():
        now = stamp(chunks)
        if there.get(name) != now:
            index.replace(name, chunks, now)
            changed = True
    return changed


def emptied(index: Index) -> None:
    """Take all of the memory out of the index."""
    for name in index.docs(SCOPE):
        index.remove(name)
