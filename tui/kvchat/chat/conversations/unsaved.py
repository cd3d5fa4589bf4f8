"""Conversations that the disk refused, and a file elsewhere that holds them.

The file is kvchat's lossless JSON: every branch, byte for byte, with the drafts, in front of which stand the messages
of the queue. What an incognito run holds is never written.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.store_writer import StoreWriter
from kvchat.prompt.tree import Tree
from kvchat.store import Store, StoreError

if TYPE_CHECKING:
    from kvchat.transfer.formats import Source


class Rescued(Struct, frozen=True):
    """What became of the conversations that were not saved when kvchat had to end."""

    conversations: int
    path: Path | None
    """The file that holds them; None: no folder took it."""
    reason: str = ""
    """Why the last folder did not, in a sentence."""


class Unsaved:
    """What the open conversations hold and the store does not."""

    def __init__(
        self, store: Store, writer: StoreWriter, conversations: Mapping[str, OpenConversation], *, incognito: bool
    ) -> None:
        self._store = store
        self._writer = writer
        self._conversations = conversations
        self._incognito = incognito
        self.queued: Callable[[OpenConversation], str] = lambda conversation: conversation.draft
        """A conversation's draft, behind the messages of its queue that are not stored."""

    @property
    def reason(self) -> str:
        """Why the disk refused last, in a sentence or two."""
        return self._writer.trouble

    async def retry(self) -> list[Source]:
        """Try once more to save what waits; the conversations that are not saved even then, newest first."""
        if self._writer.unsaved:
            try:
                await self._writer.flush()
            except StoreError:
                pass  # it is said in the banner
        held = self._held()
        return await asyncio.to_thread(self._missing, held) if held else []

    async def write(self, path: Path) -> Path:
        """Write them to the new file `path`, which only the user may read, and return it. Raises TransferError."""
        held = self._held()
        return await asyncio.to_thread(lambda: _written(path, self._missing(held)))

    def rescue(self, folders: Iterable[Path], now: datetime) -> Rescued | None:
        """Write them to the folder of the store, or to the first of `folders` that takes them; None when all is
        saved."""
        found, reason = self._missing(self._held()), ""
        if not found:
            return None
        from kvchat.transfer.formats import TransferError

        own = self._store.database.path
        # Where its file is gone, a folder that has come into its place is not the user's.
        for folder in chain([own.parent] if own is not None and os.path.exists(own) else [], folders):  # noqa: PTH110
            try:
                return Rescued(len(found), _written(folder / file_name(now), found))
            except TransferError as error:
                reason = error.sentence
        return Rescued(len(found), None, reason)

    def _held(self) -> list[Source]:
        """Copies of the open conversations that somebody would miss, for a thread, newest first."""
        if self._incognito or not self._writer.unsaved:
            return []
        from kvchat.transfer.formats import Source

        drafts = [(one, self.queued(one)) for one in self._conversations.values() if one.record.trashed is None]
        found = [Source(one.record, Tree(one.tree), draft) for one, draft in drafts if one.record.turns or draft]
        return sorted(found, key=lambda one: one.conversation.updated, reverse=True)

    def _missing(self, held: Sequence[Source]) -> list[Source]:
        """Those that the store does not have like that. Waits for a running write."""
        return [replace(one, images=self._images(one)) for one in held if not self._is_stored(one)]

    def _images(self, one: Source) -> dict[str, bytes]:
        try:
            return self._store.images.of(one.tree)
        except StoreError:
            return {}

    def _is_stored(self, one: Source) -> bool:
        id = one.conversation.id
        try:
            if self._store.conversation(id) != one.conversation or self._store.draft(id) != one.draft:
                return False
            tree = self._store.tree(id)
        except StoreError:
            return False
        return all(node.id in tree and tree[node.id] == node for node in one.tree)


def file_name(now: datetime) -> str:
    """A name for the file: `kvchat-unsaved-2026-11-21-091600.json`."""
    return f"kvchat-unsaved-{now:%Y-%m-%d-%H%M%S}.json"


def _written(path: Path, conversations: Sequence[Source]) -> Path:
    from kvchat.transfer.formats import render
    from kvchat.transfer.write import write_text

    return write_text(path, render("json", conversations))
