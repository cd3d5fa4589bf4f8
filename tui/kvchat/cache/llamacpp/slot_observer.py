"""What a server's slots and the process behind them show, and what that says of the requests before: it corrects the
simulator, for the server's word counts. And what else has changed a slot than requests that are played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from kvchat.cache.journal import Journal
from kvchat.cache.llamacpp.checkpoints import Memory
from kvchat.cache.llamacpp.hypotheses import Hypotheses
from kvchat.cache.llamacpp.prediction import Mismatch
from kvchat.cache.llamacpp.server_state import ServerState, SlotCount
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.cache.tokens import Tokens

NEVER: tuple[int, ...] = (-1,)
SOMEWHERE = -1
"""The slot of a running request, while it is not known."""
UNSEEN = -1
"""The task of a slot that a request of ours has used since it was looked at."""


class Look(Struct, frozen=True):
    """What a look at the slots found."""

    counts: tuple[SlotCount, ...] = ()
    late: bool = False
    """Whether the server did not answer in time: it computes a batch for somebody."""

    @property
    def busy(self) -> bool:
        """Whether the server works for somebody."""
        return self.late or any(count.busy for count in self.counts)


class SlotObserver:
    """What a server says of its slots, and what that says of the requests before."""

    def __init__(self, server: str, simulator: Hypotheses, journal: Journal, *, is_router: bool = False) -> None:
        """`server`: its name in the journal. `is_router`: the process behind the slots is one model's, which a router
        loads and unloads."""
        self._ended: Literal["restarted", "unloaded"] = "unloaded" if is_router else "restarted"
        self._server = server
        self._simulator = simulator
        self.journal = journal
        self.state = ServerState()
        """The server's last state."""
        self.busy: frozenset[int] = frozenset()
        """Slots that worked for somebody else at the last look."""
        self.tasks: tuple[int | None, ...] = ()
        """By slot: its last task, as of `SlotCount.task`."""
        self.tasks_at_begin: tuple[int | None, ...] = ()
        """The same, as it was before the last request of ours."""
        self.tokens: tuple[int, ...] = NEVER
        """By slot: the tokens that the server last reported."""
        self.looked_at = 0.0
        """When that was, in seconds since the epoch; of another run: when it last noted something."""
        self.inherits = False
        """Whether the server held something before it was tracked: it may reuse what the simulator knows nothing
        of."""
        self.unplaced = False
        """Whether a request is on its way whose prompt shows at its end: until then its slot is not known."""
        self._began = False
        """Whether a request of ours was sent since the last look."""
        self._unheard = False
        """Whether the last request was cancelled before the server was heard of: it may never have begun."""
        self._came: tuple[int, Callable[[int], None]] | None = None
        """The slot of the last request, which was cancelled, and who learns how far it came there."""

    @property
    def running(self) -> int | None:
        """The slot of a request of ours that is on its way; SOMEWHERE: not known which."""
        return SOMEWHERE if self.unplaced else self._simulator.running

    @property
    def is_seen(self) -> bool:
        """Whether no request of ours was sent since the last look."""
        return not self._began

    def is_as_left(self, counts: Sequence[SlotCount]) -> bool:
        """Whether the slots are at rest, and just as they were at the last look. Those of another process are not: the
        numbers of its tasks begin again."""
        tasks = tuple(count.task for count in counts)
        is_used = any(task is not None for task in tasks)
        same = (tasks, tuple(count.tokens for count in counts)) == (self.tasks, self.tokens)
        return is_used and same and not self.state.asleep and not any(count.busy for count in counts)

    def ran_in(self, counts: Sequence[SlotCount]) -> int | None:
        """The slot of the last request of ours: the only one whose last task is another than before. None: it is not
        known, as where several are."""
        used = _with_new_task(counts, self.tasks_at_begin)
        return used[0] if len(used) == 1 else None

    def used_since_look(self, counts: Sequence[SlotCount]) -> list[int]:
        """The slots whose last task is another one than at the last look."""
        return _with_new_task(counts, self.tasks)

    def request_sent(self) -> int:
        """A request of ours is on its way, whose prompt `Cache.sent` gets now or later; its number."""
        self.tasks_at_begin, self._unheard, self._began = self.tasks, False, True
        return self.journal.next()

    def is_told(self, slot: int, tokens: int) -> bool:
        """The server says itself that our request has ended in this slot, which holds `tokens` now: this counts as a
        look at it, if all slots ever were looked at."""
        if slot >= len(self.tokens):
            return False
        self.tokens = (*self.tokens[:slot], tokens, *self.tokens[slot + 1 :])
        self.tasks = (*self.tasks[:slot], UNSEEN, *self.tasks[slot + 1 :])
        return True

    def request_cut(self, *, unheard: bool, came: tuple[int, Callable[[int], None]] | None = None) -> None:
        """The last request was cancelled. `unheard`: before the server was heard of. `came`: its slot, and who learns
        how many tokens that holds once its last batch has ended."""
        self._unheard, self._came = unheard, came

    def observe(
        self, counts: Sequence[SlotCount], slot: int | None = -1, left: int = -1
    ) -> tuple[bool, list[Mismatch]]:
        """Correct the simulator by what the slots hold. Gives whether any was not as thought, and those that hold what
        no request of ours left there. `slot`: where a request of ours ended just now, which left about `left`
        tokens; None: it is not known where; -1: there was none."""
        first, quiet = self.tokens is NEVER, not self._began  # else a slot may have been emptied to make room
        if first:
            self.inherits = any(count.tokens for count in counts)
        self.tokens = tuple(count.tokens for count in counts)
        self.busy = frozenset(slot for slot, count in enumerate(counts) if count.busy)
        tasks = tuple(count.task for count in counts)
        pairs = list(zip(self.tasks, tasks, strict=False))
        emptied = any(before is not None and (now is None or now < before) for before, now in pairs)
        used = [slot for slot, (before, now) in enumerate(pairs) if before not in (now, UNSEEN)]
        used = used if quiet and not emptied else []
        lost = False
        if emptied or (first and not any(task is not None for task in tasks)):
            # only a new process has another name; one that keeps it has slept
            lost = self._lost("slept" if self.state.process and emptied else self._ended)
        elif self._unheard and tasks == self.tasks_at_begin:
            self._simulator.never_began()
            self._came = None
        came, self._came = self._came, None
        ran = self.ran_in(counts) if self._began else None
        self._began, self._unheard, self.tasks = False, False, tasks
        surprises = self._simulator.observe([None if count.busy else count.tokens for count in counts], used, ran)
        if came is not None and came[0] < len(counts):
            came[1](counts[came[0]].tokens)
        known = first or emptied or slot is None
        strange = (found for found in surprises if not known and (found.count or (found.held and quiet)))
        return lost or bool(surprises), [found for found in strange if found.slot != slot and found.count != left]

    def noticed(self, state: ServerState) -> bool:
        """The server said who it is: whether it lost what it held."""
        before, self.state = self.state, state
        if state.asleep and not before.asleep:
            return self._lost("slept" if state.process else self._ended)
        if before.process and state.process and before.process != state.process:
            if state.has_other_file(before):
                return self._lost("swapped", (before.file, state.file))
            return self._lost(self._ended)
        return False

    def _lost(
        self, what: Literal["restarted", "slept", "unloaded", "swapped"], files: tuple[str, str] | None = None
    ) -> Literal[True]:
        self.journal.saw(self._server, what, files=files)
        self._simulator.forget()
        self.tasks = ()
        return True

    # -- what else has changed a slot -------------------------------------------------------------------------------

    def adopted(
        self,
        kind: Literal["conversation", "warm-up", "side"],
        slot: int,
        tokens: Tokens,
        owner: str,
        tip: str = "",
        number: int | None = None,
    ) -> None:
        """A request ended in a slot whose prompt was not known in time: `tokens` are there now."""
        self.adopt(slot, Held(tokens, owner, self.journal.now(), tip=tip))
        self.journal.used(kind, owner, self._server, slot, {}, number)

    def adopt(self, slot: int, held: Held, memories: Mapping[str, Memory] | None = None) -> None:
        """A request that was not played left this in a slot. `memories`: how far back it can go, as of `Note`."""
        self._simulator.adopt(slot, held, memories)

    def used(self, slots: Iterable[int]) -> None:
        """Requests of ours that are not played have used slots; what these hold, `observe` tells."""
        for slot in slots:
            self.journal.used("side", "", self._server, slot, {})

    def forget_parked(self, is_gone: Callable[[Held], bool]) -> None:
        """A request that was not played took these parked states, or pushed them out."""
        self._simulator.forget_parked(is_gone)

    def ran_out(self) -> None:
        """The server broke off several answers in a window that was not full."""
        self._simulator.ran_out()

    def refilled(self, slot: int, held: Held) -> None:
        """The server was started with a saved state in a slot."""
        self._simulator.restored(slot, held)
        self._simulator.probed(slot)

    def restored(self, slot: int, held: Held) -> None:
        """A saved state was put into a slot."""
        self.journal.used("conversation", held.owner, self._server, slot, self._simulator.restored(slot, held))

    def put_back(self, slot: int) -> None:
        """What a slot holds was saved and restored."""
        self._simulator.put_back(slot)

    def cleared(self, slot: int) -> None:
        """A slot was emptied."""
        self._simulator.cleared(slot)

    def probed(self, slot: int) -> None:
        """A request has asked what a slot holds and left that as it was."""
        self._simulator.probed(slot)
        self._began = True


def _with_new_task(counts: Sequence[SlotCount], before: Sequence[int | None]) -> list[int]:
    """The slots whose last task is another one than `before`."""
    return [slot for slot, count in enumerate(counts) if before[slot : slot + 1] != (count.task,)]
