"""The deep examination: every way in which a state comes back on this server, each proved by what it answers.

It works with a text of its own, in a slot that is empty or that the examination used; where there is none,
what the slot held is saved first where the server can do that, and put back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

from kvchat.backends.dialect import Backend, BackendError, CacheAccess, SlotFiles
from kvchat.cache import StateProbe, Tokens
from kvchat.doctor.report import Examination, Return, ReturnWay

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


@runtime_checkable
class SlotServer(CacheAccess, SlotFiles, Protocol):
    """A server whose slots are seen, named, saved and restored."""


async def prove_returns(
    backend: Backend, found: Examination, progress: Callable[[str], None], folder: Path | None, own: Collection[int]
) -> None:
    """Try every way, as far as the server answers. Raises no BackendError.

    `folder`: where the server saves its slots, if that is at hand: the files written are removed. `own`: slots that
    hold nothing of anybody's."""
    if not isinstance(backend, SlotServer):
        return
    with suppress(BackendError):
        counts = await backend.slot_counts()
        if not counts or any(count.busy for count in counts):
            return
        empty = [slot for slot, count in enumerate(counts) if not count.tokens or slot in own]
        slot, saves = empty[0] if empty else len(counts) - 1, bool(await backend.saves_slots())
        aside = not empty and saves and bool(await backend.slot_file("save", slot, ASIDE, SECONDS))
        try:
            await _prove(backend, found, progress, slot, empty[1] if len(empty) > 1 else None, saves)
        except NothingSaidError:
            found.returns.append(Return(ReturnWay.SLOT, STATE))
        finally:
            if aside:
                await backend.slot_file("restore", slot, ASIDE, SECONDS)
            elif saves:
                await backend.erase_slot(slot, SECONDS)
            if folder is not None:
                with suppress(OSError):
                    for name in (FILE, ASIDE):
                        (folder / name).unlink(missing_ok=True)


class _Proof:
    """A state in one slot, followed through every way in which it can come back."""

    def __init__(self, server: SlotServer, found: Examination, slot: int, state: Tokens, instead: Tokens) -> None:
        """`state` and `instead`, which takes its place, share nothing with anything the server holds."""
        self._server = server
        self._found = found
        self._slot = slot
        self._state = state
        self._instead = instead

    async def from_slot(self) -> None:
        await self._held(self._state)
        await self._held(self._state)  # its last token alone, as whenever it comes back: in one batch it differs
        self._first, _ = await self._asked(self._slot)
        """What the state answers where it never went."""
        await self._held(self._state)
        self._saw(ReturnWay.SLOT, *await self._asked(self._slot))

    async def from_host_cache(self) -> None:
        await self._held(self._state)
        await self._held(self._instead)
        cached, ms = await self._held(self._state)
        probe, _ = await self._asked(self._slot)
        if cached * 2 > STATE:
            self._saw(ReturnWay.HOST_CACHE, probe, ms)
        else:
            self._found.returns.append(Return(ReturnWay.HOST_CACHE))

    async def from_file(self, other: int | None) -> None:
        """Into the slot that it was saved from, and into `other`; None: there is none to try."""
        await self._held(self._state)
        await self._server.slot_file("save", self._slot, FILE, SECONDS)
        await self._held(self._instead)
        if await self._server.slot_file("restore", self._slot, FILE, SECONDS):
            self._first, _ = await self._asked(self._slot)  # what a file gives back goes by what it gave back before
        await self._restored(ReturnWay.FILE, self._slot)
        if other is not None:
            await self._restored(ReturnWay.OTHER_SLOT, other)
            await self._server.erase_slot(other, SECONDS)

    async def _restored(self, way: ReturnWay, slot: int) -> None:
        began = time.monotonic()
        back = await self._server.slot_file("restore", slot, FILE, SECONDS)
        ms = (time.monotonic() - began) * 1000
        if back:
            self._saw(way, (await self._asked(slot))[0], ms)
        else:
            self._found.returns.append(Return(way))

    async def _held(self, tokens: Tokens) -> tuple[int, float]:
        """Have the slot hold these; how many were cached, and the milliseconds that took."""
        began = time.monotonic()
        done = await self._server.prefill(tokens, lambda _: None, self._slot)
        self._found.spend(done.prompt_tokens - (done.cached_tokens or 0))
        return done.cached_tokens or 0, (time.monotonic() - began) * 1000

    async def _asked(self, slot: int) -> tuple[StateProbe, float]:
        """What the state answers in a slot, and the milliseconds that took. Raises NothingSaidError."""
        began = time.monotonic()
        probe = await self._server.probe_slot(slot, self._state, SECONDS, extended=True)
        if probe is None:
            raise NothingSaidError
        self._found.spend(len(self._state) + 1 - probe.cached)
        return probe, (time.monotonic() - began) * 1000

    def _saw(self, way: ReturnWay, probe: StateProbe, ms: float) -> None:
        """The same state answers the same where as much of it is reused; else a part was prefilled again."""
        difference = self._first.difference(probe) if probe.cached == self._first.cached else None
        self._found.returns.append(Return(way, min(STATE, probe.cached), ms, difference))


async def _prove(
    server: SlotServer, found: Examination, progress: Callable[[str], None], slot: int, other: int | None, saves: bool
) -> None:
    words = list(dict.fromkeys(await server.tokens_of("river stone window bread paper summer yellow silver small")))
    if len(words) < 2:
        raise NothingSaidError
    chance = random.Random()
    state, instead = (Tokens(chance.choices(words, k=count)) for count in (STATE, OTHER))
    proof = _Proof(server, found, slot, state, instead)
    progress("Proving that a state comes back: from its slot …")
    await proof.from_slot()
    progress("… from the host cache …")
    await proof.from_host_cache()
    if not saves:
        found.returns.append(Return(ReturnWay.FILE))
        return
    progress("… from a file …")
    await proof.from_file(other)
