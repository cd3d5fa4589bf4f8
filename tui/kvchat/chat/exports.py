"""The conversations of an export, each loaded when its turn has come.

One is in memory at a time, however many there are; those that are open are taken as they are now.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from kvchat.chat.conversations.live import OpenConversation
from kvchat.figures.speed import SpeedFit
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Node
from kvchat.prompt.tree import Tree
from kvchat.store import Store, StoreError
from kvchat.transfer.exported import ExportedFiles
from kvchat.transfer.formats import Source, TransferError, pieces
from kvchat.transfer.write import expanded, export

Speed = Callable[[Sequence[Node]], SpeedFit | None]


class Exported:
    """The conversations with these ids, to go through on any thread."""

    def __init__(self, store: Store, ids: Sequence[str], open: Mapping[str, OpenConversation], speed: Speed) -> None:
        """`open`: conversations by id that may be newer than in the store. `speed`: of the server that answered last on
        a branch. Made on the loop that they belong to."""
        self._store = store
        self._ids = ids
        self._speed = speed
        self._open = {id: self._source(open[id].record, Tree(open[id].tree)) for id in ids if id in open}

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Source]:
        """Raises TransferError for one that cannot be loaded."""
        for id in self._ids:
            yield self._open.get(id) or self._loaded(id)

    def _loaded(self, id: str) -> Source:
        try:
            return self._source(self._store.conversation(id), self._store.tree(id))
        except StoreError as error:
            raise TransferError(str(error)) from error

    def _source(self, conversation: Conversation, tree: Tree) -> Source:
        return Source(
            conversation, tree, speed=self._speed(tree.path(conversation.head)), images=self._store.images.of(tree)
        )


class Exports:
    """Writes conversations to files. Raises TransferError."""

    def __init__(self, store: Store, open: Mapping[str, OpenConversation], speed: Speed) -> None:
        """`open`, `speed`: as of `Exported`."""
        self._store = store
        self._open = open
        self._speed = speed

    async def write(
        self, ids: Sequence[str], format: str, path: Path, *, all_branches: bool = False, overwrite: bool = False
    ) -> Path:
        """Write conversations to the file `path` and return it. In a folder that an export of this store wrote to
        before, the files that are still as it left them are replaced. Raises TransferError."""
        sources = Exported(self._store, ids, self._open, self._speed)

        def work() -> Path:
            place = f"exported to {os.path.realpath(expanded(path))}"
            exported = ExportedFiles(self._noted(place))
            before = dict(exported.known)
            try:
                return export(path, format, sources, all_branches=all_branches, overwrite=overwrite, exported=exported)
            finally:
                if exported.known != before:
                    with suppress(StoreError):  # the next export adds a number, then
                        self._store.set_setting(place, msgspec.json.encode(exported.known).decode())

        return await asyncio.to_thread(work)

    def _noted(self, place: str) -> dict[str, tuple[str, str]]:
        """What was noted of a folder's files."""
        try:
            return msgspec.json.decode(self._store.setting(place) or "{}", type=dict[str, tuple[str, str]])
        except (StoreError, msgspec.MsgspecError):
            return {}

    def text(self, ids: Sequence[str], format: str, *, all_branches: bool = False) -> Iterator[str]:
        """Conversations as the text of an export file, in pieces."""
        return pieces(format, Exported(self._store, ids, self._open, self._speed), all_branches=all_branches)
