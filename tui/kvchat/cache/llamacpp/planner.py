"""Choosing how to send a request: the way that makes the server prefill least, and never more than sending it as is.

A way is chosen over "as is" only when the simulator of the server's cache says that the server prefills less
for it, the tokens of getting there included, or as much while less of the other conversations is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum, auto

from msgspec import Struct

from kvchat.cache.llamacpp.simulator import Prediction, Simulator
from kvchat.cache.tokens import Tokens


class Way(StrEnum):
    """A way to send a request."""

    AS_IS = auto()
    PIN = auto()
    DETOUR = auto()
    """A tiny unrelated request first, which makes the server look up a parked state."""
    RESTORE = auto()


class Restorable(Struct, frozen=True):
    """A snapshot on disk of a state that begins as the prompt does."""

    tokens: int
    """How many tokens of the prompt the server reuses of it."""
    cost: int
    """The time to restore it, as tokens that the server reads in that time."""
    name: str = ""


class PlannedWay(Struct, frozen=True):
    way: Way
    tokens: int
    """Tokens the server reads in all: for the request, and for getting there."""
    slot: int | None = None
    """The slot to pin or to restore into."""
    takes: int | None = None
    """The slot whose state gives way to it."""
    lost: int = 0
    """Tokens of that state which are nowhere else then, but perhaps in a snapshot."""
    restores: Restorable | None = None


class Plan(Struct, frozen=True):
    """The chosen way and the options it was chosen from, cheapest first."""

    chosen: PlannedWay
    options: tuple[PlannedWay, ...]

    @property
    def slot(self) -> int | None:
        """The slot to pin the request to."""
        return self.chosen.slot if self.chosen.way is Way.PIN else None


WORTH = 16
"""Fewer tokens than this are not worth another way: a request more costs a few milliseconds too."""
DETOUR = Tokens(range(-8, 0))
"""The detour's prompt to the simulator: unlike every other prompt."""


def plan(
    simulator: Simulator,
    prompt: Tokens,
    *,
    detour: bool = True,
    restorable: Restorable | None = None,
    idle: bool = False,
    busy: Collection[int] = (),
    secured: Mapping[int, int] | None = None,
) -> Plan:
    """The way to send `prompt`, or a prompt that begins with it. `idle`: no request waits for it, so that tokens
    prefilled now weigh no more than tokens of other conversations that would be prefilled again later. `busy`: slots
    that work for somebody else, for which a pinned request would wait. `secured`: slots whose states are in a snapshot
    or can be put into one, with what it costs to have them back, as of `Restorable`."""
    as_is = simulator.predict(prompt)

    def option(way: Way, tokens: int, slot: int | None, found: Prediction, more: int = 0) -> _Weighed:
        """An option and what it loses; `more`: what is lost besides what `found` says."""
        lost = _lost(found)
        return _Weighed(PlannedWay(way, tokens, slot, found.slot, lost), _weight(lost, found.slot, secured) + more)

    found = [option(Way.AS_IS, len(prompt) - as_is.cached, None, as_is)]
    if len(simulator.slots) > 1 and not simulator.shape.unified:
        for slot, held in enumerate(simulator.slots):
            # Pinning to an empty slot skips the look-up.
            if (held is not None or idle) and slot != as_is.slot and slot not in busy:
                pinned = simulator.predict(prompt, slot)
                found.append(option(Way.PIN, len(prompt) - pinned.cached, slot, pinned))
    if detour and as_is.best > as_is.cached + WORTH:
        around = simulator.copy()
        first = around.begin(DETOUR, "", 0.0)
        around.end(first.slot, Tokens((-9,)))
        after = around.predict(prompt)
        more = _lost(after) if after.slot != first.slot else 0
        found.append(option(Way.DETOUR, len(prompt) - after.cached + len(DETOUR), None, first, more))
    if restorable is not None:
        rest = len(prompt) - min(restorable.tokens, len(prompt) - 1)
        shape = simulator.shape
        anywhere = not shape.unified and restorable.tokens > shape.similarity * len(prompt)  # the request follows it
        for slot in range(len(simulator.slots)) if anywhere else (as_is.slot,):
            if slot not in busy:
                held = simulator.slots[slot]
                lost = len(held.tokens) - held.tokens.common(prompt) if held is not None else 0
                found.append(
                    _Weighed(
                        PlannedWay(Way.RESTORE, rest + restorable.cost, slot, slot, lost, restorable),
                        _weight(lost, slot, secured),
                    )
                )
    return _cheapest_in_all(found) if idle else _chosen(found)


class _Weighed(Struct, frozen=True):
    option: PlannedWay
    lost: int
    """What it costs to have back what the option replaces, in tokens."""


def _lost(prediction: Prediction) -> int:
    """Tokens of another conversation that would be gone."""
    return len(prediction.replaces.tokens) - prediction.common if prediction.replaces is not None else 0


def _weight(lost: int, slot: int, secured: Mapping[int, int] | None) -> int:
    return min(lost, secured[slot]) if secured is not None and slot in secured else lost


def _cheapest_in_all(found: Sequence[_Weighed]) -> Plan:
    as_is = found[0]
    best = min(found, key=lambda item: item.option.tokens + item.lost)
    if best.option.tokens + best.lost + WORTH > as_is.option.tokens + as_is.lost:
        best = as_is
    return Plan(best.option, tuple(item.option for item in found))


def _chosen(found: Sequence[_Weighed]) -> Plan:
    as_is = found[0]
    best = min(found, key=lambda item: (item.option.tokens, item.lost))
    if best.option.tokens > as_is.option.tokens - WORTH:
        spares = [
            item for item in found[1:] if item.option.tokens <= as_is.option.tokens and item.lost + WORTH < as_is.lost
        ]
        best = min(spares, key=lambda item: (item.lost, item.option.tokens)) if spares else as_is
    return Plan(best.option, tuple(sorted((item.option for item in found), key=lambda option: option.tokens)))
