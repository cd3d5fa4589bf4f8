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
from kvchat.cache.llamacpp.state_probe import StateProbe
from kvchat.cache.tokens import Tokens
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


async def _prove(
    server: SlotServer, found: Examination, progress: Callable[[str], None], slot: int, other: int | None, saves: bool
) -> None:
    words = list(dict.fromkeys(await server.tokens_of("river stone window bread paper summer yellow silver small")))
    if len(words) < 2:
        raise NothingSaidError
    chance = random.Random()
    state, instead = Tokens(chance.choices(words, k=STATE)), Tokens(chance.choices(words, k=OTHER))
    """Both share nothing with anything the server holds."""

    async def held(tokens: Tokens) -> tuple[int, float]:
        """Have the slot hold these; how many were cached, and the milliseconds that took."""
        began = time.monotonic()
        done = await server.prefill(tokens, lambda _: None, slot)
        found.spend(done.prompt_tokens - (done.cached_tokens or 0))
        return done.cached_tokens or 0, (time.monotonic() - began) * 1000

    async def asked(where: int) -> tuple[StateProbe, float]:
        began = time.monotonic()
        probe = await server.probe_slot(where, state, SECONDS, extended=True)
        if probe is None:
            raise NothingSaidError
        found.spend(len(state) + 1 - probe.cached)
        return probe, (time.monotonic() - began) * 1000

    def saw(way: ReturnWay, probe: StateProbe, ms: float) -> None:
        """The same state answers the same where as much of it is reused; else a part was prefilled again."""
        same = probe.cached == first.cached
        found.returns.append(Return(way, min(STATE, probe.cached), ms, first.difference(probe) if same else None))

    progress("Proving that a state comes back: from its slot …")
    await held(state)
    await held(state)  # its last token alone, as whenever it comes back: in one batch with the others it differs
    first, _ = await asked(slot)
    await held(state)
    saw(ReturnWay.SLOT, *await asked(slot))
    progress("… from the host cache …")
    await held(state)
    await held(instead)
    cached, ms = await held(state)
    probe, _ = await asked(slot)
    if cached * 2 > STATE:
        saw(ReturnWay.HOST_CACHE, probe, ms)
    else:
        found.returns.append(Return(ReturnWay.HOST_CACHE))
    if not saves:
        found.returns.append(Return(ReturnWay.FILE))
        return
    progress("… from a file …")
    await held(state)
    await server.slot_file("save", slot, FILE, SECONDS)
    await held(instead)
    if await server.slot_file("restore", slot, FILE, SECONDS):
        first, _ = await asked(slot)  # what a file gives back goes by what it gave back before
    for way, where in ((ReturnWay.FILE, slot), (ReturnWay.OTHER_SLOT, other)):
        if where is None:
            continue
        began = time.monotonic()
        back = await server.slot_file("restore", where, FILE, SECONDS)
        ms = (time.monotonic() - began) * 1000
        if back:
            saw(way, (await asked(where))[0], ms)
        else:
            found.returns.append(Return(way))
    if other is not None:
        await server.erase_slot(other, SECONDS)
