"""What a server holds of a prompt, or of what was sent for one owner, as it is believed now."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from kvchat.cache.cache import Cache
from kvchat.cache.llamacpp.planner import DETOUR, PlannedWay, Way
from kvchat.cache.tokens import Tokens
from kvchat.figures.accounting import NOISE

Place = Literal["slot", "stored", "nowhere"]
"""Stored: in the host cache, in a snapshot or partly in a slot; so that the next request prefills some of it a second
time, or has it looked up."""


class Holding(Struct, frozen=True):
    """What a server holds."""

    place: Place
    tokens: int
    missing: int
    """Tokens that the next request would prefill a second time."""
    since: float | None
    """When the server last used it, seconds since the epoch."""
    exact: bool = True
    """Whether `missing` is counted, on rules that are known to be the server's."""

    @classmethod
    def of_prompt(cls, cache: Cache, prompt: Tokens, owner: str, *, detour: bool) -> Holding:
        """What is held of a prompt. `detour`: as of `Cache.before`."""
        simulator = cache.best
        found, way = simulator.predict(prompt), cache.before(prompt, owner, detour=detour).chosen
        is_detour = way.way is Way.DETOUR
        missing = max(0, way.tokens - 1 - (len(DETOUR) if is_detour else 0))
        owned = [held for held in (*simulator.slots, *simulator.parked) if held is not None and held.owner == owner]
        since, exact = max((held.at for held in owned), default=None), cache.is_sure_of(prompt)
        if missing <= NOISE:
            place: Place = "slot" if not is_detour and found.source == "slot" else "stored"
            return cls(place, max(found.cached, len(prompt) - missing - 1), missing, since, exact)
        if found.best * 4 >= len(prompt) or found.best > found.cached:
            return cls("stored", found.best, missing, since, exact)
        return cls("nowhere", found.cached, missing, since, exact)

    @classmethod
    def of_owner(cls, cache: Cache, owner: str, used: int | None) -> Holding | None:
        """The longest state of an owner, whose last request and answer were `used` tokens; None: there is none."""
        states = [(held, True) for held in cache.best.slots if held is not None and held.owner == owner]
        states += [(held, False) for held in cache.best.parked if held.owner == owner]
        if not states:
            return None
        held, in_slot = max(states, key=lambda item: len(item[0].tokens))
        size = len(held.tokens)
        missing = max(0, (used or size) - 1 - size)
        return cls("slot" if in_slot and missing <= NOISE else "stored", size, missing, held.at, exact=False)


def taken_by(cache: Cache, prompt: Tokens, way: PlannedWay) -> tuple[int, Place]:
    """How many tokens of a prompt that is sent in this way come out of the cache, and from where."""
    if way.restores is not None:
        return way.restores.tokens, "stored"
    if way.way is Way.DETOUR:
        return len(prompt) - way.tokens + len(DETOUR), "stored"
    found = cache.best.predict(prompt, way.slot)
    return found.cached, "slot" if found.source == "slot" else "stored"
