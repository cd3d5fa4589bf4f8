"""Waits for slots that still compute a request of ours which was cancelled, as long as looks at them show that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kvchat.backends.dialect import BackendError, CacheAccess, ServerInfo
from kvchat.backends.errors import NoAnswerError
from kvchat.cache import SlotCount
from kvchat.cache.tracking import CancelledRequests
from kvchat.chat.ground import Ground

AGAIN_S = 0.02
"""Between two looks; each is answered only between two batches."""


class CancelledSlots:
    """Those of one server, which the store notes for other kvchats."""

    def __init__(
        self, access: CacheAccess, server: ServerInfo, ground: Ground, freed: Callable[[Sequence[SlotCount]], None]
    ) -> None:
        """`freed` gets what the slots hold when the last one is free."""
        self._access = access
        self._key = f"cancelled slots {server.place}"
        self._ground = ground
        self._freed = freed
        self.requests = CancelledRequests()
        self._watch: asyncio.Task[None] | None = None

    def add(self, slot: int, most: int, *, heard: bool = True) -> None:
        """As of `CancelledRequests`."""
        self.requests.add(slot, most, heard=heard)
        self._begin()
        self._note()

    async def free(self, seconds: float | None = None) -> bool:
        """Return when no slot computes a cancelled request any more, or after `seconds`; whether none does."""
        if self._watch is not None:
            await asyncio.wait({self._watch}, timeout=seconds)
        return not self.requests

    def _note(self) -> None:
        """Note the slots, so that other kvchats on this store can take them over."""
        note = self.requests.note(self._ground.timestamp())
        self._ground.in_background(self._ground.keep_setting(self._key, note))

    def take_over(self) -> None:
        """Wait for what another kvchat has cancelled, by its note."""
        self.requests.recall(self._ground.setting(self._key), self._ground.timestamp())
        if self.requests:
            self._begin()

    def _begin(self) -> None:
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._until_free())

    async def _until_free(self) -> None:
        while True:
            try:
                counts = await self._access.slot_counts()
            except NoAnswerError:
                continue  # a batch takes longer than a call may
            except BackendError:
                counts = []  # the server has ended, or shows no slots
            self.requests.seen(counts)
            if not self.requests:
                self._freed(counts)
                self._note()
                return
            await asyncio.sleep(AGAIN_S)
