"""Requests of ours that were cancelled, and are computed on in their slots.

llama-server ends a request whose client is gone only when its batch is computed. Until then its slot is busy, and a
prompt that belongs there is put into another, empty slot and prefilled as a whole (measured on b11549: 1,525 tokens
instead of 17). What would go to such a slot therefore waits until it is free. That costs no time, since nothing begins
before the batch ends; and nothing of ours ever waits for another client's request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import Struct

from kvchat.cache.llamacpp.server_state import SlotCount

UNSEEN_LOOKS = 3
"""A request that was cancelled just now may not have come to its slot: the server reads its prompt's text first. So
many looks find the slot free before it counts as that."""
LATE = 64
"""Tokens that a server may have written since it was last heard of. A slot with more did not get the cancel: it
writes on, and is not waited for."""
FORGOTTEN_S = 600.0
"""A note of another run that is older than this tells nothing."""


class _Cancelled(Struct):
    """A cancelled request in its slot."""

    most: int
    """Tokens that its slot holds at the most when its batch has ended."""
    task: int | None = None
    """The server's number of it; None: not seen yet."""
    looks: int = 1
    """So many more find its slot free before it is free, while it was never seen there."""
    noted: bool = False
    """Whether another run cancelled it: then it is not known what its slot holds."""

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


class CancelledRequests:
    """Those of one server, until a look at its slots shows them ended."""

    def __init__(self) -> None:
        self._slots: dict[int, _Cancelled] = {}
        self._lost_sight = False
        """Whether the end of one could not be seen."""

    def __bool__(self) -> bool:
        return bool(self._slots)

    def add(self, slot: int, most: int, *, heard: bool = True) -> None:
        """Our request in `slot` was cancelled just now; with its whole prompt it holds `most` tokens. `heard`: whether
        the server had begun with it."""
        self._slots[slot] = _Cancelled(most, looks=1 if heard else UNSEEN_LOOKS)

    def hold_up(self, slot: int | None) -> bool:
        """Whether a request waits that would go to `slot`; None: it is not known where it would go."""
        return slot is None or slot in self._slots or any(found.noted for found in self._slots.values())

    def computing(self) -> bool:
        """Whether one of them may still be computed now. One whose end could not be seen counts until it is asked."""
        lost, self._lost_sight = self._lost_sight, False
        return lost or bool(self._slots)

    def seen(self, counts: Sequence[SlotCount]) -> None:
        """What the slots show now; nothing where the server has ended, or shows none."""
        for slot, cancelled in list(self._slots.items()):
            if slot >= len(counts) or not cancelled.runs(counts[slot]):
                self._lost_sight |= slot >= len(counts) or cancelled.writes_on(counts[slot])
                del self._slots[slot]

    def note(self, at: float) -> str | None:
        """The note by which another run takes them over, at a time in seconds since the epoch; None: there are none."""
        slots = [{"slot": slot, "most": found.most, "task": found.task} for slot, found in self._slots.items()]
        return json.dumps({"at": at, "slots": slots}) if slots else None

    def recall(self, note: str, now: float) -> None:
        """Take over what another run has noted. A text that is no note, or an old one, changes nothing."""
        try:
            found = json.loads(note or "{}")
            slots = [(int(one["slot"]), int(one["most"]), one["task"]) for one in found["slots"]]
            fresh = 0 <= now - float(found["at"]) < FORGOTTEN_S
        except (ValueError, TypeError, KeyError):
            return
        for slot, most, task in slots if fresh else ():
            if slot not in self._slots:
                self._slots[slot] = _Cancelled(most, task if isinstance(task, int) else None, noted=True)
