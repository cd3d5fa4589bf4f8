"""Slots that still compute a request of ours which was cancelled.

llama-server ends a request whose client is gone only when its batch is computed. Until then its slot is busy, and a
prompt that belongs there is put into another, empty slot and prefilled as a whole (measured on b11549: 1,525 tokens
instead of 17). What would go to such a slot therefore waits until it is free. That costs no time, since nothing begins
before the batch ends; and nothing of ours ever waits for another client's request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

from msgspec import Struct

from kvchat.backends.dialect import BackendError, CacheAccess, ServerInfo
from kvchat.backends.errors import NoAnswerError
from kvchat.cache import SlotCount
from kvchat.chat.ground import Ground

AGAIN_S = 0.02
"""Between two looks; each is answered only between two batches."""
UNSEEN_LOOKS = 3
"""A request that was cancelled just now may not have come to its slot: the server reads its prompt's text first. So
many looks find the slot free before it counts as that."""
LATE = 64
"""Tokens that a server may have written since it was last heard of. A slot with more did not get the cancel: it
writes on, and is not waited for."""
FORGOTTEN_S = 600.0
"""A note of another kvchat that is older than this tells nothing."""


class _Cancelled(Struct):
    """A cancelled request in its slot."""

    most: int
    """Tokens that its slot holds at the most when its batch has ended."""
    task: int | None = None
    """The server's number of it; None: not seen yet."""
    looks: int = 1
    """So many more find its slot free before it is free, while it was never seen there."""
    noted: bool = False
    """Whether another kvchat cancelled it: then it is not known what its slot holds."""

    def runs(self, count: SlotCount) -> bool:
        """Whether a look at its slot still finds it there."""
        if not count.busy and self.task is None:
            self.looks -= 1
            return self.looks > 0
        if not count.busy or self.writes_on(count) or self.task not in (None, count.task):
            return False
        self.task = count.task
        return True

    def writes_on(self, count: SlotCount) -> bool:
        """Whether a busy slot holds more than what a request that got its cancel can leave."""
        return count.busy and count.tokens > self.most + LATE


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
        self._slots: dict[int, _Cancelled] = {}
        self._watch: asyncio.Task[None] | None = None
        self._lost_sight = False

    def __bool__(self) -> bool:
        return bool(self._slots)

    def hold_up(self, slot: int | None) -> bool:
        """Whether a request waits that would go to `slot`; None: it is not known where it would go."""
        return slot is None or slot in self._slots or any(found.noted for found in self._slots.values())

    def add(self, slot: int, most: int, *, heard: bool = True) -> None:
        """Our request in `slot` was cancelled just now; with its whole prompt it holds `most` tokens. `heard`: whether
        the server had begun with it."""
        self._slots[slot] = _Cancelled(most, looks=1 if heard else UNSEEN_LOOKS)
        self._begin()
        self._note()

    def computing(self) -> bool:
        """Whether one of them may still be computed now. One whose end could not be seen counts until it is asked."""
        lost, self._lost_sight = self._lost_sight, False
        return lost or bool(self._slots)

    async def free(self, seconds: float | None = None) -> bool:
        """Return when no slot computes a cancelled request any more, or after `seconds`; whether none does."""
        if self._watch is not None:
            await asyncio.wait({self._watch}, timeout=seconds)
        return not self._slots

    def _note(self) -> None:
        """Note the slots, so that other kvchats on this store can take them over."""
        slots = [{"slot": slot, "most": found.most, "task": found.task} for slot, found in self._slots.items()]
        note = json.dumps({"at": self._ground.timestamp(), "slots": slots}) if slots else None
        self._ground.in_background(self._ground.keep_setting(self._key, note))

    def take_over(self) -> None:
        """Wait for what another kvchat has cancelled, by its note."""
        try:
            found = json.loads(self._ground.setting(self._key) or "{}")
            slots = [(int(one["slot"]), int(one["most"]), one["task"]) for one in found["slots"]]
            fresh = 0 <= self._ground.timestamp() - float(found["at"]) < FORGOTTEN_S
        except (ValueError, TypeError, KeyError):
            return
        for slot, most, task in slots if fresh else ():
            if slot not in self._slots:
                self._slots[slot] = _Cancelled(most, task if isinstance(task, int) else None, noted=True)
        if self._slots:
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
            for slot, cancelled in list(self._slots.items()):
                if slot >= len(counts) or not cancelled.runs(counts[slot]):
                    self._lost_sight |= slot >= len(counts) or cancelled.writes_on(counts[slot])
                    self._slots.pop(slot, None)
            if not self._slots:
                self._freed(counts)
                self._note()
                return
            await asyncio.sleep(AGAIN_S)
