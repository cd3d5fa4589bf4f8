"""What can be found out without any of the model's time: its state, its slots, its template, its training.

The rule: nothing that was cached is touched, a sleeping server is not woken and another machine is not asked
unless the person agreed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from kvchat.backends.dialect import Backend, BackendError, CacheAccess, HostClass, ServerInfo, SlotCount, SlotFiles
from kvchat.backends.http.payload import PayloadError, as_object, count_at, figures_at, is_object, list_at
from kvchat.backends.kinds import LLAMACPP, kind_of, title_of
from kvchat.backends.template import rendering
from kvchat.cache.causes.cause import Statement, said
from kvchat.doctor.report import Examination
from kvchat.text.doctor import Asks

SLOTS_USED = 3
"""Slots that the probe may come to use: for its first question, its conversation and its side request."""
PROCESS_LOOKS = 4
"""How often a server is asked who it is: behind a router that deals requests out, different ones answer."""


@runtime_checkable
class _Asked(Protocol):
    async def get_json(self, path: str) -> tuple[object, object]: ...


async def looked_at(backend: Backend, agreed: bool, model: str = "") -> Examination:
    """What the server says of itself, asked for `model` where that is given. Raises no BackendError: what it does not
    answer stays unknown."""
    info = replace(backend.info, model=model or backend.info.model)
    found = Examination(info.base_url, info, template=info.template)
    if not agreed and (info.host_class is not HostClass.LOOPBACK or info.remote_of(info.model)):
        return found
    if isinstance(backend, CacheAccess):
        asleep, replicas = await _processes(backend)
        found = replace(found, asleep=asleep, replicas=replicas)
        if asleep and not agreed:
            return found
        counts = await slots_of(backend)
        if isinstance(backend, SlotFiles):
            found = replace(found, saves_slots=await backend.saves_slots())
        if counts is not None:
            found = replace(found, held=tuple(slot.tokens for slot in counts), busy=any(slot.busy for slot in counts))
    template = await rendering(backend)
    return replace(
        found,
        template=template.facts,
        keeps_reasoning_when_asked=template.keeps_when_asked,
        date_option=template.date_option,
        trained_context=await _trained(backend),
    )


async def slots_of(backend: Backend) -> Sequence[SlotCount] | None:
    """What the slots hold; None where the server does not say."""
    if not isinstance(backend, CacheAccess):
        return None
    try:
        return await backend.slot_counts() or None
    except BackendError:
        return None


async def _processes(backend: CacheAccess) -> tuple[bool | None, int | None]:
    """Whether the model sleeps, and how many different processes answer; None where it does not say."""
    try:
        states = [await backend.server_state() for _ in range(PROCESS_LOOKS)]
    except BackendError:
        return None, None
    seen = {state.process for state in states if state.process}
    return any(state.asleep for state in states), len(seen) or None


async def _trained(backend: Backend) -> int | None:
    """Tokens that the model was trained for, as llama.cpp lists it."""
    if backend.info.kind != LLAMACPP or not isinstance(backend, _Asked):
        return None
    try:
        _, found = await backend.get_json("/v1/models")
        entries = [entry for entry in list_at(as_object(found, "a list of models"), "data") if is_object(entry)]
        own = next((entry for entry in entries if entry.get("id") == backend.info.model), entries[0] if entries else {})
        return count_at(figures_at(own, "meta"), "n_ctx_train")
    except (BackendError, PayloadError):
        return None


def to_agree(found: Examination, budget: int) -> tuple[Statement, ...]:
    """What the person has to know before the probe; empty when it needs no word."""
    info = found.server
    if info is None:
        return ()
    asks = []
    if info.host_class is not HostClass.LOOPBACK:
        asks.append(said(Asks.ELSEWHERE, url=info.base_url, tokens=budget))
    if found.asleep:
        asks.append(said(Asks.ASLEEP))
    chosen = info.known(info.model)
    if remote := info.remote_of(info.model):
        asks.append(said(Asks.PASSED_ON, title=title_of(info.kind), model=info.model, remote=remote, tokens=budget))
    elif chosen is not None and chosen.loaded is False:
        asks.append(said(Asks.NOT_LOADED, model=info.model))
    elif occupied := _occupied(info, found.held, info.replicas or (found.replicas or 1) > 1):
        asks.append(occupied)
    return tuple(asks)


def empty_slots(held: Sequence[int]) -> list[int]:
    """The slots that hold nothing."""
    return [slot for slot, tokens in enumerate(held) if not tokens]


def _occupied(info: ServerInfo, held: tuple[int, ...] | None, replicas: bool) -> Statement | None:
    """What the probe pushes out of its place; None when there is room. The embedded engine parks it in memory."""
    if info.embedded:
        return None
    if held is not None and replicas:
        return said(Asks.SEVERAL_SERVERS)
    if held is not None:
        free = len(empty_slots(held))
        if free == len(held) or free >= SLOTS_USED:
            return None
        if len(held) == 1:
            return said(Asks.ONE_SLOT, tokens=held[0])
        return (
            said(Asks.FEW_SLOTS, free=free, slots=len(held), used=SLOTS_USED)
            if free
            else said(Asks.FULL_SLOTS, slots=len(held))
        )
    if info.slots is None and not kind_of(info.kind).keeps_many:
        return said(Asks.ONE_CONVERSATION, title=title_of(info.kind))
    return None
