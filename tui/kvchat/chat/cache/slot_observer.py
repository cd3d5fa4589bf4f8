"""Observing a server's slots and who answers, and correcting the simulator of its cache by what is seen.

The rule: the server's word is believed, not the simulator's; a look that fails or takes long tells nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends.dialect import BackendError, CacheAccess, ServerInfo, ServerState, SlotCount
from kvchat.cache.accounting import NOISE
from kvchat.cache.causes.evidence import GOING_BACK, Evidence, Foreign
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.llamacpp.hypotheses import Hypotheses
from kvchat.cache.llamacpp.prediction import Mismatch
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.chat.cache.cancelled_slots import CancelledSlots
from kvchat.chat.cache.prompt_tokens import PromptTokens
from kvchat.chat.cache.server_notes import SOMEWHERE, BranchIds, Note, Notebook, Recollection, Sure, noted
from kvchat.chat.cache.turn_journal import Journal
from kvchat.chat.events import WarmthChanged
from kvchat.chat.ground import Ground

LOOK_S = 0.5
NEVER: tuple[int, ...] = (-1,)


class Look(Struct, frozen=True):
    """What a look at the slots told."""

    counts: tuple[SlotCount, ...] = ()
    late: bool = False
    """Whether the server did not answer in time: it computes a batch for somebody."""

    @property
    def busy(self) -> bool:
        """Whether the server works for somebody."""
        return self.late or any(count.busy for count in self.counts)


def cancelled_key(info: ServerInfo) -> str:
    """The name under which is noted which slots of a server still compute a cancelled request."""
    return f"cancelled slots {info.place}"


class SlotObserver:
    """What a server says of itself."""

    def __init__(
        self,
        access: CacheAccess,
        server: ServerInfo,
        simulator: Hypotheses,
        journal: Journal,
        ground: Ground,
    ) -> None:
        self.access = access
        self._ground = ground
        self.prompts = PromptTokens(access, self._changed)
        self.cancelled = CancelledSlots(access, self._note_cancelled, self._free_again, ground.timestamp)
        self.server = server
        self.simulator = simulator
        self.busy: frozenset[int] = frozenset()
        """Slots that worked for somebody else at the last look."""
        self.journal = journal
        self.state = ServerState()
        """The server's last state."""
        self._tasks_seen: tuple[int | None, ...] = ()
        self._last_counts: tuple[int, ...] = NEVER
        self._inherits = False
        """Whether the server held something before it was tracked: it may reuse what the simulator knows nothing
        of."""
        self._tasks_at_begin: tuple[int | None, ...] = ()
        self._began = False
        """Whether a request of ours was sent since the last look."""
        self.is_brief = False
        """Whether kvchat ends with this request: then nothing is asked that only a later one needs."""
        self._came: tuple[int, Callable[[int], None]] | None = None
        """The slot of the last request, which was cancelled, and what is told how far it came there."""
        self._unheard = False
        """Whether the last request was cancelled before the server was heard of: it may never have begun."""
        self.recollection: Recollection | None = None
        """What another run noted of the server."""
        self.notebook: Notebook | None = None
        """Where it is noted for another run what is known of the server; None: nowhere."""
        self._noted: object = None
        """What tells that there is nothing new to note."""
        self._left_running: int | None = None
        """The slot of a request that another run never ended."""
        self._unplaced = False
        """Whether a request is on its way whose prompt shows at its end: until then nobody knows its slot."""

    def _changed(self) -> None:
        """What is held may have changed."""
        self._ground.events.tell(WarmthChanged())

    def _note_cancelled(self, note: str) -> None:
        """Note for other kvchats on this store which slots still compute what was cancelled; empty: none does."""
        self._ground.in_background(self._ground.keep_setting(cancelled_key(self.server), note or None))

    def keep(self, notebook: Notebook, prefixes: BranchIds) -> None:
        """Go on from what another run noted, which the next look corrects, and note what comes."""
        self.notebook, note = notebook, notebook.note
        self.recollection = Recollection(self.server.base_url, self.simulator, self.journal, prefixes)
        if note is not None:
            self.recollection.recall(note)
            self.state, self._tasks_seen, self._last_counts = note.state, note.tasks, note.counts
            self._left_running = note.running

    def noting(self) -> None:
        """Note what is known of the server, if anything of it is new, without making anybody wait."""
        if self.notebook is not None and self._is_new():
            self.notebook.note_down(self)

    async def noted_now(self) -> None:
        """The same, waiting for it."""
        if self.notebook is not None and self._is_new():
            await self.notebook.write(self)

    def _is_new(self) -> bool:
        before, self._noted = (
            self._noted,
            (self.journal.number, self._tasks_seen, self._last_counts, self._running),
        )
        return before != self._noted

    @property
    def _running(self) -> int | None:
        """The slot of a request that is on its way, as it is noted."""
        return SOMEWHERE if self._unplaced else self.simulator.running

    def merge(self, note: Note) -> None:
        """As of `Noted`."""
        if self.recollection is not None:
            self.recollection.merge(note)

    def noted(self, sure: Sure) -> str:
        """As of `Noted`."""
        recollection = self.recollection

        def known(held: Held) -> int | None:
            count = recollection.sure(held) if recollection is not None else None
            return count if count is not None else sure(held)

        return noted(
            self.simulator,
            self.journal,
            self.server.base_url,
            self.state,
            self._tasks_seen,
            self._last_counts,
            self._running,
            known,
        )

    async def look(self) -> Look:
        """Look at the slots and correct the simulator."""
        counts = await self._counts()
        if counts is None:
            return Look(late=True)
        found = self._observe(counts)
        if self.simulator.running is None:
            self.noting()
        return found

    async def _counts(self) -> Sequence[SlotCount] | None:
        """What the slots hold; nothing where the server does not tell, None where it does not in time."""
        if not self.prompts.works:
            return ()
        try:
            async with asyncio.timeout(LOOK_S):
                return await self.access.slot_counts()
        except TimeoutError:
            return None
        except BackendError:
            return ()

    def _free_again(self, counts: Sequence[SlotCount]) -> None:
        """Requests that were cancelled have ended: see what they left."""
        self._observe(counts, None)

    def count(self, slot: int) -> int:
        """The tokens that the server last reported for a slot."""
        return self._last_counts[slot] if slot < len(self._last_counts) else 0

    def _observe(self, counts: Sequence[SlotCount], slot: int | None = -1, left: int = -1) -> Look:
        """Correct the simulator by what the slots hold. `slot`: where a request of ours ended just now, which left
        about `left` tokens; None: it is not known where; -1: there was none."""
        if not counts:
            return Look()
        first = self._last_counts is NEVER
        if first:
            self._inherits = any(count.tokens for count in counts)
        self._last_counts = tuple(count.tokens for count in counts)
        self.busy = frozenset(slot for slot, count in enumerate(counts) if count.busy)
        tasks = tuple(count.task for count in counts)
        emptied = any(
            before is not None and (now is None or now < before)
            for before, now in zip(self._tasks_seen, tasks, strict=False)
        )
        quiet = not self._began  # else a slot may have been emptied to make room
        used = (
            []
            if not quiet or emptied
            else [
                slot for slot, (before, now) in enumerate(zip(self._tasks_seen, tasks, strict=False)) if before != now
            ]
        )
        self._began = False
        if emptied or (first and not any(task is not None for task in tasks)):
            # only a new process has another name; one that keeps it has slept
            self._lost("slept" if self.state.process and emptied else "restarted")
        elif self._unheard and tasks == self._tasks_at_begin:
            self.simulator.never_began()
            self._came = None
        self._unheard, self._tasks_seen = False, tasks
        came, self._came = self._came, None
        surprises = self.simulator.observe([None if count.busy else count.tokens for count in counts], used)
        if came is not None and came[0] < len(counts):
            came[1](counts[came[0]].tokens)
        for found in () if first or emptied or slot is None else surprises:
            if (found.count or (found.held and quiet)) and found.slot != slot and found.count != left:
                self._used_by_another(found, counts[found.slot])
        self._left_running = None
        if surprises:
            self._changed()
        return Look(tuple(counts))

    def _used_by_another(self, found: Mismatch, count: SlotCount) -> None:
        """A slot holds what was not played: another kvchat may have noted that it did it, else it was none."""
        if self._left_running in (found.slot, SOMEWHERE):
            self._inherits = True
            return
        note = self.notebook.note if self.notebook is not None else None
        held = note.left_in(found.slot, count) if note is not None else None
        if self.recollection is None or note is None or held is None:
            self.journal.saw(self.server.base_url, "foreign", Foreign(found.slot, found.count))
            return
        self.recollection.adopt(note, found.slot, held)

    def noticed(self, state: ServerState) -> None:
        """The server said who it is: see whether it lost what it held."""
        before, self.state = self.state, state
        if state.asleep and not before.asleep:
            self._lost("slept")
        elif before.process and state.process and before.process != state.process:
            self._lost("restarted")

    def _lost(self, what: Literal["restarted", "slept"]) -> None:
        self.journal.saw(self.server.base_url, what)
        self.simulator.forget()
        self._tasks_seen = ()
        self._changed()

    def shape(self, evidence: Evidence) -> Shape:
        """What the cache is like, as far as can be told with this turn. A model that was never seen to lose anything
        by it is taken for one that goes back to anywhere, until it reuses less of an undisturbed slot than that holds
        after an act that makes it go back."""
        shape, said, cached = self.simulator.proved_shape, evidence.prediction, evidence.figures.cached_tokens
        dense = self.simulator.is_dense
        if dense is None:
            held = said.best_where if said is not None else None
            dense = (
                said is None
                or cached is None
                or said.source != "slot"
                or said.cached <= cached + NOISE
                or held is None
                or (held.kind, held.index) != ("slot", said.slot)
                or evidence.changed_by not in GOING_BACK
            )
        if dense:
            return replace(shape, rewind=Rewind.ANYWHERE)
        return shape if shape.rewind is not Rewind.ANYWHERE else replace(shape, rewind=Rewind.NOWHERE)
