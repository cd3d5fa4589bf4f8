"""The examination: what the server says of itself, and a short probe of what its cache does with a conversation.

It takes no more of the server's time than the budget, sends nothing to another machine and pushes nothing out of its
place unless the user agreed, and stops where another client is being answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from kvchat.backends.dialect import Backend, BackendError, CacheAccess, RoutesModels, SlotFiles
from kvchat.cache import SlotCount, Tokens
from kvchat.doctor.probes import Talk, size_for
from kvchat.doctor.report import Examination, PinProbe, SnapshotProbe, Step, unexamined
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

    Without `agreed`, what needs the user's consent is not done: `asks` then says what it is. A failure is in
    `failure`; no BackendError is raised. `model`: the one to ask for, where not the one it has loaded.
    `snapshot_folder`: the folder that the server saves slots to, where it is at hand, so that the file written for the
    probe can be removed. `deep`: prove each way in which a state comes back as well, for `returns.COST` tokens more at
    most. Cancelled: the connection is closed first.
    """
    progress("Looking at the server …")
    if isinstance(backend, RoutesModels):
        try:
            backend = await backend.on_model(model)
        except BackendError as error:
            return unexamined(backend.info.base_url, error)
    found = await looked_at(backend, agreed, model)
    found.budget = budget_tokens
    if not agreed and not found.busy and found.server is not None:
        found.asks.extend(to_agree(found, found.server))
    if found.busy or found.asks:
        return found
    began = time.monotonic()
    probe = _Probe(backend, found, progress, model, spares=not agreed)
    try:
        await probe.run(snapshot_folder)
        if deep:
            await prove_returns(backend, found, progress, snapshot_folder, await probe.own_slots())
    except BackendError as error:
        found.failure = error
    found.warnings = list(dict.fromkeys(found.warnings))
    found.seconds = time.monotonic() - began
    return found


class _Probe:
    """What is sent; what it tells is written into the examination."""

    def __init__(self, backend: Backend, found: Examination, progress: Progress, model: str, *, spares: bool) -> None:
        """`spares`: nothing that a slot holds may be pushed out of it."""
        self._backend = backend
        self._found = found
        self._progress = progress
        self._talk = Talk(backend, found, model)
        self._tasks_before = 0
        """The number of the newest task of a slot before the probe."""
        held = found.held or ()
        spares = spares and any(held) and 0 in held and not (found.server and found.server.embedded)
        self._own = empty_slots(held)[0] if spares else None
        """The empty slot that the probe is kept to, so that it gets none that only begins alike. None: the server
        chooses."""
        self._other: int | None = None
        """The empty slot that the side request is kept to."""

    async def run(self, snapshot_folder: Path | None) -> None:
        """All steps, as far as the budget reaches. Raises BackendError."""
        found, talk = self._found, self._talk
        self._tasks_before = max((slot.task or 0 for slot in await self._slots()), default=0)
        talk.slot = self._own
        if not await self._step(Step.FIRST):
            return
        await self._look_at_what_was_loaded()
        pace = found.prefill_speed
        slow = pace is not None and pace < SLOW
        if slow:
            found.skipped.append(f"the long texts: the server reads {speed(pace)}, so the probe was made small")
        counts = found.turns[-1].figures.prompt_tokens is not None
        if slow or not counts:
            talk.begin(size_for(found.window, slow=slow, counts=counts))
        for step in (Step.ONE, Step.TWO, Step.THREE):
            if not await self._step(step):
                return
        if self._own is not None:
            talk.slot = self._other = await self._another_empty_slot(self._own)
            if talk.slot is None:
                found.skipped.append(f"{Step.SIDE} and what follows it: the slots that were empty are in use now")
                return
        if not await self._step(Step.SIDE):
            return
        talk.slot = None  # it goes where the conversation is: to its slot, or to its state in the host cache
        counts_now = await self._slots()
        if len(counts_now) > 1:
            emptied = any(not slot.tokens for slot in self._used(counts_now).values())
            found.unified = emptied or None
        await self._step(Step.AFTER_SIDE)
        if snapshot_folder is not None:
            await self._snapshot(snapshot_folder)
        await self._pins(slow)

    async def _look_at_what_was_loaded(self) -> None:
        """A model that the first question loaded tells its window, slots and template only now."""
        found, model = self._found, self._talk.model
        chosen = None if found.server is None else found.server.known(model or found.server.model)
        if chosen is None or chosen.loaded is not False:
            return
        self._progress("Looking at the model …")
        await self._backend.identify()
        if model not in ("", self._backend.info.model):
            return  # what it tells would be said of another model
        now = await looked_at(self._backend, agreed=True, model=model)
        found.server, found.template, found.trained_context = now.server, now.template, now.trained_context
        found.keeps_reasoning_when_asked, found.date_option = now.keeps_reasoning_when_asked, now.date_option
        found.saves_slots = now.saves_slots
        found.held = None if now.held is None else (0,) * len(now.held)  # it was loaded for the probe
        self._talk.begin(size_for(found.window))

    async def _slots(self) -> Sequence[SlotCount]:
        return await slots_of(self._backend) or ()

    async def own_slots(self) -> list[int]:
        """The slots that hold nothing but what the probe left there."""
        return list(self._own_used(await self._slots()))

    async def _another_empty_slot(self, own: int) -> int | None:
        counts = await self._slots()
        empty = empty_slots([count.tokens for count in counts])
        return next((slot for slot in empty if slot != own and not counts[slot].busy), None)

    async def _step(self, step: Step) -> bool:
        """One request; False where the budget does not reach for it. Raises BackendError."""
        self._progress(PROGRESS[step])
        made = await (self._talk.aside(step) if step in (Step.FIRST, Step.SIDE) else self._talk.turn(step))
        if not made:
            self._found.skipped.append(f"{step} and what follows it: it could take more than the agreed tokens")
        return made

    def _used(self, counts: Sequence[SlotCount]) -> dict[int, SlotCount]:
        """The slots that the probe has used."""
        return {at: slot for at, slot in enumerate(counts) if slot.task is not None and slot.task > self._tasks_before}

    def _own_used(self, counts: Sequence[SlotCount]) -> dict[int, SlotCount]:
        """Of these, where the probe is kept to a slot, only its own: another client may have used another one."""
        used = self._used(counts)
        return {at: used[at] for at in used if self._own is None or at in (self._own, self._other)}

    async def _snapshot(self, folder: Path) -> None:
        """How fast a slot goes to the server's folder and comes back."""
        if not isinstance(self._backend, SlotFiles):
            return
        used = self._used(await self._slots())
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
        self._found.snapshot = SnapshotProbe(saved.tokens, saved.size, save_seconds, restore_seconds)

    async def _pins(self, slow: bool) -> None:
        """Whether a slot keeps its prompt while another one is used, when requests name their slots."""
        backend, found = self._backend, self._found
        if not isinstance(backend, CacheAccess) or len(found.held or ()) < 2:
            return
        counts = await self._slots()
        used = self._own_used(counts)
        free = [*used, *(at for at, slot in enumerate(counts) if not slot.tokens and at not in used)]
        if any(slot.busy for slot in counts) or len(free) < 2:
            found.skipped.append("pinning: no two slots are free to try it on")
        elif slow or not found.fits(3 * PIN_PART + 12):
            found.skipped.append("pinning: it would take too long here")
        else:
            self._progress("Two requests that name their slots …")
            with suppress(BackendError):  # a server that takes no bare prompts says nothing of pinning
                await self._pinned(backend, free[0], free[1])

    async def _pinned(self, backend: CacheAccess, here: int, there: int) -> None:
        ids = list(dict.fromkeys(await backend.tokens_of(ALPHABET)))[-3:]
        if len(ids) < 3:
            return
        first, second, more = ([id] * PIN_PART for id in ids)
        cached = None
        for prompt, slot in ((first, here), (second, there), (first + more[:4], here)):
            done = await backend.prefill(Tokens(prompt), lambda progress: None, slot)
            self._found.spend(done.prompt_tokens - (done.cached_tokens or 0) + 1)
            if done.slot not in (None, slot):
                return  # it does not take the slot that is named
            cached = done.cached_tokens
        if cached is not None:
            self._found.pinned = PinProbe(PIN_PART, min(cached, PIN_PART))
