"""The examination: what the server says of itself, and a short probe of what its cache does with a conversation.

The rule: it takes no more of the server's time than the budget, sends nothing to another machine and pushes nothing
out of its place unless the person agreed, and stops where somebody else is being answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from kvchat.backends.dialect import Backend, BackendError, CacheAccess, SlotCount, SlotFiles
from kvchat.cache.causes.cause import Statement
from kvchat.cache.tokens import Tokens
from kvchat.doctor.probes import Meter, Talk, size_for
from kvchat.doctor.report import Examination, PinProbe, ProbeTurn, SnapshotProbe, Step
from kvchat.doctor.returns import prove_returns
from kvchat.doctor.server_facts import empty_slots, looked_at, slots_of, to_agree
from kvchat.prompt.message import new_id
from kvchat.text.doctor import PROGRESS
from kvchat.text.format import speed

BUDGET = 2000
"""Tokens of the server's time, evaluated and predicted, for one examination."""
SLOW = 30.0
"""Tokens per second of prefill below which the probe is made small."""
PIN_PART = 40
"""Tokens of a prompt that is pinned to a slot."""
SLOT_FILE_S = 60.0
ALPHABET = "a b c d e f g h"

Progress = Callable[[str], None]


async def examine(
    backend: Backend,
    *,
    budget_tokens: int = BUDGET,
    progress: Progress = lambda words: None,
    agreed: bool = False,
    model: str = "",
    snapshot_folder: Path | None = None,
    deep: bool = False,
) -> Examination:
    """Examine the server of `backend`, which is identified.

    Without `agreed`, what would need the person's word is not done: `asks` then says what it is. A failure is
    told in `failure`; no BackendError is raised. `model`: the one to ask for, where not the one it has loaded.
    `snapshot_folder`: the folder that the server saves slots to, where
    it is at hand, so that the file written for the probe can be removed. `deep`: prove each way in which a state comes
    back as well, for `returns.COST` tokens more at most. Cancelled: the connection is closed first.
    """
    progress("Looking at the server …")
    found = await looked_at(backend, agreed, model)
    if found.busy:
        return found
    if not agreed and (asks := to_agree(found, budget_tokens)):
        return replace(found, asks=asks)
    began = time.monotonic()
    probe = _Probe(backend, found, Meter(budget_tokens), progress, model, snapshot_folder, spares=not agreed)
    try:
        await probe.run()
    except BackendError as error:
        probe.found = replace(probe.found, failure=error)
    if deep and probe.found.failure is None:
        returns = await prove_returns(backend, progress, snapshot_folder, await probe.own_slots())
        probe.meter.add(returns.spent)
        probe.found = replace(probe.found, returns=tuple(returns.found))
    return replace(
        probe.found,
        turns=tuple(probe.turns),
        skipped=tuple(probe.skipped),
        warnings=tuple(dict.fromkeys(probe.warnings)),
        spent_tokens=probe.meter.spent,
        seconds=time.monotonic() - began,
    )


class _Probe:
    """What is sent, and what was seen of it so far."""

    def __init__(
        self,
        backend: Backend,
        found: Examination,
        meter: Meter,
        progress: Progress,
        model: str,
        folder: Path | None,
        spares: bool,
    ) -> None:
        """`spares`: nothing that a slot holds may be pushed out of it."""
        self.found = found
        self.meter = meter
        self.turns: list[ProbeTurn] = []
        self.warnings: list[Statement] = []
        self.skipped: list[str] = []
        self._backend = backend
        self._progress = progress
        self._model = model
        self._folder = folder
        self._tasks_before = 0
        """The number of the newest task of a slot before the probe."""
        held = found.held or ()
        spares = spares and any(held) and 0 in held and not (found.server and found.server.embedded)
        self._own = empty_slots(held)[0] if spares else None
        """The empty slot that the probe is kept to, so that it gets none that only begins alike. None: the server
        chooses."""
        self._other: int | None = None
        """The empty slot that the side request is kept to."""

    async def run(self) -> None:
        """All steps, as far as the budget reaches. Raises BackendError."""
        window = self.found.server.context_size if self.found.server else None
        no_system = bool(self.found.template and self.found.template.system_role is False)
        self._tasks_before = max((slot.task or 0 for slot in await slots_of(self._backend) or ()), default=0)
        talk = Talk(self._backend, self.meter, size_for(window), model=self._model, system_in_user=no_system)
        talk.slot = self._own
        if not await self._step(Step.FIRST, talk):
            return
        pace = self.found_so_far.prefill_speed
        slow = pace is not None and pace < SLOW
        if slow:
            self.skipped.append(f"the long texts: the server reads {speed(pace)}, so the probe was made small")
        counts = self.turns[-1].figures.prompt_tokens is not None
        if slow or not counts:
            talk = talk.alike(size_for(window, slow=slow, counts=counts), system_in_user=no_system)
        for step in (Step.ONE, Step.TWO, Step.THREE):
            if not await self._step(step, talk):
                return
        if self._own is not None:
            talk.slot = self._other = await self._another_empty_slot()
            if talk.slot is None:
                self.skipped.append(f"{Step.SIDE} and what follows it: the slots that were empty are in use now")
                return
        if not await self._step(Step.SIDE, talk):
            return
        talk.slot = None  # it goes where the conversation is: to its slot, or to what the server parked of it
        await self._look_for_emptied_slots()
        await self._step(Step.AFTER_SIDE, talk)
        if self._folder is not None:
            await self._snapshot(self._folder)
        await self._pins(slow)

    async def own_slots(self) -> list[int]:
        """The slots that hold nothing but what the probe left there."""
        used = self._used(await slots_of(self._backend) or ())
        return [slot for slot in used if self._own is None or slot in (self._own, self._other)]

    async def _another_empty_slot(self) -> int | None:
        counts = await slots_of(self._backend) or ()
        return next(
            (
                slot
                for slot in empty_slots([count.tokens for count in counts])
                if slot != self._own and not counts[slot].busy
            ),
            None,
        )

    @property
    def found_so_far(self) -> Examination:
        return replace(self.found, turns=tuple(self.turns))

    async def _step(self, step: Step, talk: Talk) -> bool:
        """One request; False where the budget does not reach for it. Raises BackendError."""
        self._progress(PROGRESS[step])
        done = await (talk.aside(step) if step in (Step.FIRST, Step.SIDE) else talk.turn(step))
        if done is None:
            self.skipped.append(f"{step} and what follows it: it could take more than the agreed tokens")
            return False
        self.turns.append(done)
        self.warnings.extend(talk.warnings)
        talk.warnings.clear()
        return True

    async def _look_for_emptied_slots(self) -> None:
        counts = await slots_of(self._backend)
        if counts is not None and len(counts) > 1:
            self.found = replace(self.found, unified=any(not slot.tokens for slot in self._used(counts).values()))

    def _used(self, counts: Sequence[SlotCount]) -> dict[int, SlotCount]:
        """The slots that the probe has used."""
        return {at: slot for at, slot in enumerate(counts) if slot.task is not None and slot.task > self._tasks_before}

    # -- saving a slot ----------------------------------------------------------------------------------------------

    async def _snapshot(self, folder: Path) -> None:
        """How fast a slot goes to the server's folder and comes back."""
        if not isinstance(self._backend, SlotFiles):
            return
        used = self._used(await slots_of(self._backend) or ())
        slot = max(used, key=lambda at: used[at].tokens, default=None)
        if slot is None or not used[slot].tokens:
            return
        self._progress("Saving and restoring what it holds …")
        name = f"doctor-{new_id()[:12]}.bin"
        try:
            began = time.monotonic()
            saved = await self._backend.slot_file("save", slot, name, SLOT_FILE_S)
            save_seconds = time.monotonic() - began
            if not saved:
                return
            began = time.monotonic()
            restored = await self._backend.slot_file("restore", slot, name, SLOT_FILE_S)
            restore_seconds = time.monotonic() - began if restored else None
        finally:
            with suppress(OSError):
                (folder / name).unlink(missing_ok=True)
        self.found = replace(
            self.found, snapshot=SnapshotProbe(saved.tokens, saved.size, save_seconds, restore_seconds)
        )

    # -- pinning ----------------------------------------------------------------------------------------------------

    async def _pins(self, slow: bool) -> None:
        """Whether a slot keeps its prompt while another one is used, when requests name their slots."""
        backend = self._backend
        if not isinstance(backend, CacheAccess) or len(self.found.held or ()) < 2:
            return
        pair = self._free_pair(await slots_of(backend) or ())
        if pair is None:
            self.skipped.append("pinning: no two slots are free to try it on")
        elif slow or not self.meter.fits(3 * PIN_PART + 12):
            self.skipped.append("pinning: it would take too long here")
        else:
            self._progress("Two requests that name their slots …")
            with suppress(BackendError):  # a server that takes no bare prompts says nothing of pinning
                await self._pinned(backend, *pair)

    def _free_pair(self, counts: Sequence[SlotCount]) -> tuple[int, int] | None:
        """Two slots that hold nothing, or only what the probe left there."""
        used = self._used(counts)
        if self._own is not None:  # another one may have been used by somebody else meanwhile
            used = {at: slot for at, slot in used.items() if at in (self._own, self._other)}
        free = [*used, *(at for at, slot in enumerate(counts) if not slot.tokens and at not in used)]
        if any(slot.busy for slot in counts) or len(free) < 2:
            return None
        return free[0], free[1]

    async def _pinned(self, backend: CacheAccess, here: int, there: int) -> None:
        ids = list(dict.fromkeys(await backend.tokens_of(ALPHABET)))[-3:]
        if len(ids) < 3:
            return
        first, second, more = ([id] * PIN_PART for id in ids)
        cached = None
        for prompt, slot in ((first, here), (second, there), (first + more[:4], here)):
            done = await backend.prefill(Tokens(prompt), lambda progress: None, slot)
            self.meter.add(done.prompt_tokens - (done.cached_tokens or 0) + 1)
            if done.slot not in (None, slot):
                return  # it does not take the slot that is named
            cached = done.cached_tokens
        if cached is not None:
            self.found = replace(self.found, pinned=PinProbe(PIN_PART, min(cached, PIN_PART)))
