"""What can be found out without any of the model's time: its state, its slots, its template, its training.

Nothing that was cached is touched, a sleeping server is not woken and another machine is not asked unless the user
agreed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from kvchat.backends.dialect import Backend, BackendError, CacheAccess, HostClass, ServerInfo, SlotFiles
from kvchat.backends.http.payload import PayloadError, as_object, count_at, figures_at, is_object, list_at
from kvchat.backends.kinds import LLAMACPP, kind_of, title_of
from kvchat.backends.template import rendering
from kvchat.cache import SlotCount
from kvchat.doctor.report import Examination
from kvchat.text.doctor import Asks
from kvchat.values import Statement, said

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
        found.asleep, found.replicas = await _processes(backend)
        if found.asleep and not agreed:
            return found
        counts = await slots_of(backend)
        if isinstance(backend, SlotFiles):
            found.saves_slots = await backend.saves_slots()
        if counts is not None:
            found.held, found.busy = tuple(slot.tokens for slot in counts), any(slot.busy for slot in counts)
    template = await rendering(backend)
    found.template = template.facts
    found.keeps_reasoning_when_asked, found.date_option = template.keeps_when_asked, template.date_option
    found.trained_context = await _trained(backend)
    return found


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
    asleep = any(state.asleep and state.process for state in states)  # a router has unloaded one without a process
    return asleep, len(seen) or None


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


def to_agree(found: Examination, info: ServerInfo) -> Iterable[Statement]:
    """What the user has to know before the probe; empty when it needs no word."""
    if info.host_class is not HostClass.LOOPBACK:
        yield said(Asks.ELSEWHERE, url=info.base_url, tokens=found.budget)
    if found.asleep:
        yield said(Asks.ASLEEP)
    chosen = info.known(info.model)
    if remote := info.remote_of(info.model):
        yield said(Asks.PASSED_ON, title=title_of(info.kind), model=info.model, remote=remote, tokens=found.budget)
    elif chosen is not None and chosen.loaded is False:
        loaded = sum(model.loaded is True for model in info.listing)
        full = info.room_for_models is not None and loaded >= info.room_for_models
        yield said(Asks.NOT_LOADED, model=info.model, full=full or None)
    elif not info.embedded:  # the built-in engine parks in memory what the probe pushes out
        yield from _occupied(found, info)


def empty_slots(held: Sequence[int]) -> list[int]:
    """The slots that hold nothing."""
    return [slot for slot, tokens in enumerate(held) if not tokens]


def _occupied(found: Examination, info: ServerInfo) -> Iterable[Statement]:
    """What the probe pushes out of its place; nothing when there is room."""
    if found.held is None:
        if info.slots is None and not kind_of(info.kind).keeps_many:
            yield said(Asks.ONE_CONVERSATION, title=title_of(info.kind))
        return
    slots, free = len(found.held), len(empty_slots(found.held))
    if info.replicas or found.servers:
        yield said(Asks.SEVERAL_SERVERS)
    elif free < min(slots, SLOTS_USED):
        if slots == 1:
            yield said(Asks.ONE_SLOT, tokens=found.held[0])
        elif free:
            yield said(Asks.FEW_SLOTS, free=free, slots=slots, used=SLOTS_USED)
        else:
            yield said(Asks.FULL_SLOTS, slots=slots)
