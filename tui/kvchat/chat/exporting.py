"""The conversations of an export, each loaded when its turn has come.

The rule: one is in memory at a time, however many there are; those that are open are taken as they are now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kvchat.chat.live import OpenConversation
from kvchat.prompt.tree import Tree
from kvchat.store import Store, StoreError
from kvchat.transfer import Source, TransferError, export, pieces


class Exported:
    """The conversations with these ids, to go through on any thread."""

    def __init__(self, store: Store, ids: Sequence[str], open: Mapping[str, OpenConversation]) -> None:
        """`open`: conversations by id that may be newer than in the store. Made on the loop that they belong to."""
        self._store = store
        self._ids = ids
        self._open = {id: Source(open[id].record, Tree(open[id].tree)) for id in ids if id in open}

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Source]:
        """Raises TransferError for one that cannot be loaded."""
        for id in self._ids:
            yield self._open.get(id) or self._loaded(id)

    def _loaded(self, id: str) -> Source:
        try:
            return Source(self._store.conversation(id), self._store.tree(id))
        except StoreError as error:
            raise TransferError(str(error)) from error


class Exports:
    """Writes conversations to files. Raises TransferError."""

    def __init__(self, store: Store, open: Mapping[str, OpenConversation]) -> None:
        """`open`: conversations by id that may be newer than in the store."""
        self._store = store
        self._open = open

    async def write(self, ids: Sequence[str], format: str, path: Path, *, all_branches: bool = False,
                    overwrite: bool = False) -> Path:
        """Write conversations to the file `path` and return it."""
        sources = Exported(self._store, ids, self._open)
        return await asyncio.to_thread(export, path, format, sources, all_branches=all_branches, overwrite=overwrite)

    def text(self, ids: Sequence[str], format: str, *, all_branches: bool = False) -> Iterator[str]:
        """Conversations as the text of an export file, in pieces."""
        return pieces(format, Exported(self._store, ids, self._open), all_branches=all_branches)
