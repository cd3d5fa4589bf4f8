"""The deep examination: every way in which a state comes back on this server, each proved by what it answers.

The rule: it works with a text of its own, in a slot that is empty or that the examination used; where there is none,
what the slot held is saved first where the server can do that, and put back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from kvchat.backends.dialect import Backend, BackendError, CacheAccess, SlotFiles
from kvchat.cache.llamacpp.state_probe import StateProbe
from kvchat.cache.tokens import Tokens
from kvchat.doctor.report import Return, ReturnWay

STATE, OTHER = 256, 64
"""Tokens of the state that is followed, and of the one that takes its place."""
READS = 4
"""How often the state is prefilled at most: where no way works."""
COST = READS * STATE + 2 * OTHER + 7
"""Tokens that the server evaluates at most."""
SECONDS = 60.0
FILE, ASIDE = "kvchat-doctor.bin", "kvchat-doctor-aside.bin"


class NothingSaidError(Exception):
    """The server gives no log-probabilities."""


class Returns:
    """What is done on one server, and what was seen."""

    def __init__(
        self, backend: Backend, progress: Callable[[str], None], folder: Path | None, own: Collection[int]
    ) -> None:
        """`folder`: where the server saves its slots, if that is at hand: the files written are removed. `own`: slots
        that hold nothing of anybody's."""
        self._backend = backend
        self._own = own
        self._progress = progress
        self._folder = folder
        self.found: list[Return] = []
        self.spent = 0

    async def prove(self) -> None:
        """Try every way. Raises BackendError."""
        backend = self._backend
        if not isinstance(backend, CacheAccess) or not isinstance(backend, SlotFiles):
            return
        counts = await backend.slot_counts()
        if not counts or any(count.busy for count in counts):
            return
        empty = [slot for slot, count in enumerate(counts) if not count.tokens or slot in self._own]
        slot, saves = empty[0] if empty else len(counts) - 1, await backend.saves_slots()
        aside = not empty and bool(saves) and bool(await backend.slot_file("save", slot, ASIDE, SECONDS))
        try:
            await self._prove(backend, backend, slot, empty[1] if len(empty) > 1 else None, bool(saves))
        except NothingSaidError:
            self.found.append(Return(ReturnWay.SLOT, STATE, None, None))
        finally:
            if aside:
                await backend.slot_file("restore", slot, ASIDE, SECONDS)
            elif saves:
                await backend.erase_slot(slot, SECONDS)
            if self._folder is not None:
                with suppress(OSError):
                    for name in (FILE, ASIDE):
                        (self._folder / name).unlink(missing_ok=True)

    async def _prove(self, access: CacheAccess, files: SlotFiles, slot: int, other: int | None, saves: bool) -> None:
        state, instead = await self._texts(access)

        async def held(tokens: Tokens) -> None:
            done = await access.prefill(tokens, lambda _: None, slot)
            self.spent += done.prompt_tokens - (done.cached_tokens or 0)

        async def asked(where: int) -> tuple[StateProbe, float]:
            began = time.monotonic()
            probe = await files.probe_slot(where, state, SECONDS, extended=True)
            if probe is None:
                raise NothingSaidError
            self.spent += len(state) + 1 - probe.cached
            return probe, (time.monotonic() - began) * 1000

        def saw(way: ReturnWay, probe: StateProbe, ms: float) -> None:
            """The same state answers the same where as much of it is reused; else a part was prefilled anew."""
            same = probe.cached == first.cached
            self.found.append(Return(way, min(STATE, probe.cached), ms, first.difference(probe) if same else None))

        self._progress("Proving that a state comes back: from its slot …")
        await held(state)
        await held(state)  # its last token alone, as whenever it comes back: in one batch with the others it differs
        first, _ = await asked(slot)
        await held(state)
        saw(ReturnWay.SLOT, *await asked(slot))
        self._progress("… from the host cache …")
        await held(state)
        await held(instead)
        began = time.monotonic()
        done = await access.prefill(state, lambda _: None, slot)
        ms = (time.monotonic() - began) * 1000
        self.spent += STATE - (done.cached_tokens or 0)
        probe, _ = await asked(slot)
        if (done.cached_tokens or 0) * 2 > STATE:
            saw(ReturnWay.HOST_CACHE, probe, ms)
        else:
            self.found.append(Return(ReturnWay.HOST_CACHE, 0, None, None))
        if not saves:
            self.found.append(Return(ReturnWay.FILE, 0, None, None))
            return
        self._progress("… from a file …")
        await held(state)
        await files.slot_file("save", slot, FILE, SECONDS)
        await held(instead)
        if await files.slot_file("restore", slot, FILE, SECONDS):
            first, _ = await asked(slot)  # what a file gives back goes by what it gave back before
        for way, where in ((ReturnWay.FILE, slot), (ReturnWay.OTHER_SLOT, other)):
            if where is None:
                continue
            began = time.monotonic()
            back = await files.slot_file("restore", where, FILE, SECONDS)
            ms = (time.monotonic() - began) * 1000
            if back:
                saw(way, (await asked(where))[0], ms)
            else:
                self.found.append(Return(way, 0, None, None))
        if other is not None:
            await files.erase_slot(other, SECONDS)

    async def _texts(self, access: CacheAccess) -> tuple[Tokens, Tokens]:
        """A state and another one, that share nothing with anything the server holds."""
        words = list(dict.fromkeys(await access.tokens_of("river stone window bread paper summer yellow silver small")))
        if len(words) < 2:
            raise NothingSaidError
        chance = random.Random()
        return (Tokens(chance.choices(words, k=STATE)), Tokens(chance.choices(words, k=OTHER)))


async def prove_returns(
    backend: Backend, progress: Callable[[str], None], folder: Path | None, own: Collection[int] = ()
) -> Returns:
    """What came back, as far as the server answered. Raises no BackendError."""
    made = Returns(backend, progress, folder, own)
    with suppress(BackendError):
        await made.prove()
    return made
