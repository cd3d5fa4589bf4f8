"""Whether a state that comes back from a file is the one that was saved: the server is asked for the likeliest next
tokens before and after.

What does not answer as it did is never used: its slot is emptied. Where the same state answers the same bit
for bit, which the first save finds out for each server, so must what comes back.
"""

from __future__ import annotations

import logging
import math
from enum import StrEnum, auto

from kvchat.backends.dialect import BackendError, SlotFiles
from kvchat.cache import StateProbe, Tokens

PROBE_S = 20.0
RESTORE_S = 60.0
MORE = 3
"""Probes more of a state that did not answer the same twice."""

log = logging.getLogger(__name__)


class StateReturn(StrEnum):
    """How a state came back."""

    PROVED = auto()
    CHANGED = auto()
    """The slot was emptied."""
    REFUSED = auto()
    """The server took the file for none and emptied the slot."""
    UNUSED = auto()
    """The server took it and reuses nothing of it."""
    OTHER = auto()
    """The slot does not hold what was saved: somebody else used it, or the cache cannot go back. Or the model computes
    no numbers."""
    UNKNOWN = auto()
    """The server answers without probabilities."""
    SILENT = auto()
    """The server did not answer: nothing is known of the state."""


class StateProof:
    """Probes the states of one server. The caller holds its lane, and lets no call be cancelled midway: what the slot
    holds would be unknown."""

    def __init__(self, *, extends: bool) -> None:
        """`extends`: as of `StateProbe.extended`, for a model whose cache cannot give up its last token; the first save
        finds that out too."""
        self.extends = extends
        self.spread: float | None = None
        """How far two probes of one state are apart here; None: not found out yet."""
        self.moves = False
        """Whether all slots share one cache: a state answers with other last bits by where in it that lies, so that it
        is asked once more where it lies first, which it does when it is restored while the others are empty."""
        self.restores = False
        """Whether the last `vouch` has restored what it was asked for."""

    async def vouch(self, server: SlotFiles, slot: int, file: str, state: Tokens) -> StateProbe | StateReturn:
        """What a slot answers that was just saved to `file`, or why that is of no use. The first time the state is
        restored and compared at once; the slot holds `state` afterwards, unless the state is changed or refused."""
        self.restores = self.extends or self.moves or self.spread is None
        found = await self._vouched(server, slot, file, state)
        if found is StateReturn.OTHER and self.spread is None and not self.extends:
            self.extends = True  # the cache cannot give up its last token, or not once it was restored
            found = await self._vouched(server, slot, file, state)
        if found is StateReturn.CHANGED:
            await server.erase_slot(slot, RESTORE_S)
        elif self.extends and found is not StateReturn.REFUSED and not await self._put_back(server, slot, file):
            return found if found is StateReturn.SILENT else StateReturn.REFUSED
        return found

    async def _vouched(self, server: SlotFiles, slot: int, file: str, state: Tokens) -> StateProbe | StateReturn:
        first = await self._probe(server, slot, file, state, self.extends)
        if not isinstance(first, StateProbe):
            return first
        if not first.cached:
            return StateReturn.UNUSED
        if not first.is_sound or not (self.extends or first.cached == len(state) - 1):
            return StateReturn.OTHER
        if self.spread is None:
            found = await self._compared(server, slot, file, state, first)
            return first if found is StateReturn.PROVED else found
        return first

    async def _compared(self, server: SlotFiles, slot: int, file: str, state: Tokens, first: StateProbe) -> StateReturn:
        """Whether what was saved comes back, and how much two probes of it differ here."""
        if not self.extends and not await self._put_back(server, slot, file):
            return StateReturn.REFUSED
        back = await self._probe(server, slot, file, state, self.extends)
        if not isinstance(back, StateProbe):
            return back
        if back == first:
            self.spread = 0.0
            return StateReturn.PROVED
        if not back.cached:
            return StateReturn.UNUSED
        if back.cached != first.cached:
            return StateReturn.OTHER
        probes = [back]
        for _ in range(MORE):
            again = await self._probe(server, slot, file, state, self.extends)
            if not isinstance(again, StateProbe):
                return again
            probes.append(again)
        spread = StateProbe.spread(probes)
        if not math.isfinite(spread) or not first.proves(back, spread):
            return StateReturn.CHANGED
        self.spread = spread
        log.info("two probes of one state differ by up to %.3g here", spread)
        return StateReturn.PROVED

    async def returned(
        self, server: SlotFiles, slot: int, file: str, state: Tokens, saved: StateProbe, spread: float
    ) -> StateReturn:
        """Whether what was restored into a slot is what `saved` tells of `state`; if it is not, the slot is emptied."""
        spread = max(spread, self.spread or 0.0)
        back = await _asked(server, slot, state, saved.extended)
        if self.moves and isinstance(back, StateProbe) and not saved.proves(back, spread):  # the others are empty now
            back = await self._probe(server, slot, file, state, saved.extended)
        if isinstance(back, StateProbe) and saved.proves(back, spread):
            if saved.extended and not await self._put_back(server, slot, file):
                return StateReturn.REFUSED
            return StateReturn.PROVED
        await server.erase_slot(slot, RESTORE_S)
        return StateReturn.CHANGED if isinstance(back, StateProbe) else back

    async def _probe(
        self, server: SlotFiles, slot: int, file: str, state: Tokens, extended: bool
    ) -> StateProbe | StateReturn:
        """What the slot answers; with a token more, or where it is to lie first, it is filled again before."""
        if (extended or self.moves) and not await self._put_back(server, slot, file):
            return StateReturn.REFUSED
        return await _asked(server, slot, state, extended)

    async def _put_back(self, server: SlotFiles, slot: int, file: str) -> bool:
        return bool(await server.slot_file("restore", slot, file, RESTORE_S))


async def _asked(server: SlotFiles, slot: int, state: Tokens, extended: bool) -> StateProbe | StateReturn:
    try:
        found = await server.probe_slot(slot, state, PROBE_S, extended=extended)
    except BackendError as error:
        log.warning("what a slot holds could not be asked: %s", error.sentence)
        return StateReturn.SILENT
    return found if found is not None else StateReturn.UNKNOWN
