"""Choosing how to send a request: the way that makes the server prefill least, now and when others come back.

A way is chosen over "as is" only when the simulator of the server's cache says that the server prefills less
for it, the tokens of getting there included, or as much while less of the other conversations is lost. What a
conversation would lose counts as often as it came back of late: one that is never asked again costs nothing. So
conversations that begin alike, of which the server puts each into the slot of the last, get slots of their own when the
states that they take from each other have cost as much as another prefill of what they share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum, auto

from msgspec import Struct

from kvchat.cache.llamacpp.simulator import Prediction, Simulator
from kvchat.cache.llamacpp.slot_state import Held
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
    """A way to send a prompt, and what it costs."""

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
    returns: Mapping[str, int] | None = None,
) -> Plan:
    """The way to send `prompt`, or a prompt that begins with it. `idle`: no request waits for it, so that tokens
    prefilled now weigh no more than tokens of other conversations that would be prefilled again later. `busy`: slots
    that work for somebody else, for which a pinned request would wait. `secured`: slots whose states are in a snapshot
    or can be put into one, with what it costs to have them back, as of `Restorable`. `returns`: by the owner of a
    state, how often it is expected to be of use again."""
    as_is, shape = simulator.predict(prompt), simulator.shape
    others = [slot for slot in range(len(simulator.slots)) if slot != as_is.slot and slot not in busy]
    own = shape.gives_own_slots
    pins = [
        slot
        for slot in others
        if (own and simulator.has_room(slot, len(prompt)))
        or (not shape.unified and (idle or simulator.slots[slot] is not None))  # an empty one skips the look-up
    ]
    expected = returns if returns and own else {}

    def weighed(way: PlannedWay, *states: tuple[Held | None, int, int]) -> _Weighed:
        """A way and what it costs later. `states`: which give way, the tokens of each that are lost, and its slot."""
        once = later = 0
        for held, lost, slot in states:
            back = min(lost, (secured or {}).get(slot, lost))
            times = expected.get(held.owner, 0) if held is not None else 0
            once += back
            later += back * max(times, 1 if idle else 0)
        return _Weighed(way, once, way.tokens + later)

    def option(way: Way, tokens: int, slot: int | None, found: Prediction, *more: Prediction) -> _Weighed:
        """A way, of which the simulator found what its requests do: the first one, and those after it."""
        states = [(one.replaces, _lost(one), one.slot) for one in (found, *more)]
        return weighed(PlannedWay(way, tokens, slot, found.slot, _lost(found)), *states)

    found = [option(Way.AS_IS, len(prompt) - as_is.cached, None, as_is)]
    for slot in pins:
        pinned = simulator.predict(prompt, slot)
        found.append(option(Way.PIN, len(prompt) - pinned.cached, slot, pinned))
    if detour and as_is.best > as_is.cached + WORTH:
        first, around = _around(simulator)
        after = around.predict(prompt)
        more = [after] if after.slot != first.slot else []
        found.append(option(Way.DETOUR, len(prompt) - after.cached + len(DETOUR), None, first, *more))
    if restorable is not None:
        rest = len(prompt) - min(restorable.tokens, len(prompt) - 1)
        anywhere = not shape.unified and restorable.tokens > shape.similarity * len(prompt)  # the request follows it
        for slot in range(len(simulator.slots)) if anywhere else (as_is.slot,):
            if slot not in busy:
                held = simulator.slots[slot]
                lost = len(held.tokens) - held.tokens.common(prompt) if held is not None else 0
                found.append(
                    weighed(
                        PlannedWay(Way.RESTORE, rest + restorable.cost, slot, slot, lost, restorable),
                        (held, lost, slot),
                    )
                )
    return _chosen(found)


def beside(
    simulators: Sequence[Simulator], prompt: Tokens, keep: Tokens, *, detour: bool = True, busy: Collection[int] = ()
) -> PlannedWay | None:
    """The cheapest way to send `prompt` that leaves as much of `keep`, a prompt that comes later, as there is now.

    None: there is none. An empty `keep` is left by all. `simulators`: those that may be right, the likeliest first;
    nothing is lost by any of them."""

    def spares(simulator: Simulator, way: PlannedWay) -> bool:
        now = plan(simulator, keep, detour=detour, busy=busy).chosen.tokens
        later = _around(simulator)[1] if way.way is Way.DETOUR else simulator.copy()
        found = later.begin(prompt, "", 0.0, way.slot if way.way is Way.PIN else None)
        later.end(found.slot, Tokens.unknown(1))
        return plan(later, keep, detour=detour, busy=busy).chosen.tokens <= now + WORTH

    ways = plan(simulators[0], prompt, detour=detour, idle=True, busy=busy).options
    return next((way for way in ways if not keep or all(spares(one, way) for one in simulators)), None)


def _around(simulator: Simulator) -> tuple[Prediction, Simulator]:
    """What the detour does, and the simulator behind it."""
    around = simulator.copy()
    found = around.begin(DETOUR, "", 0.0)
    around.end(found.slot, Tokens((-9,)))
    return found, around


class _Weighed(Struct, frozen=True):
    option: PlannedWay
    lost: int
    """What it costs to have back, once, what the option replaces, in tokens."""
    cost: int
    """Tokens read for the request, and for what is expected to come back."""


def _lost(prediction: Prediction) -> int:
    """Tokens of another conversation that would be gone."""
    return len(prediction.replaces.tokens) - prediction.common if prediction.replaces is not None else 0


def _chosen(found: Sequence[_Weighed]) -> Plan:
    as_is = found[0]
    best = min(found, key=lambda item: (item.cost, item.lost))
    if best.cost > as_is.cost - WORTH:
        spares = [
            item
            for item in found[1:]
            if item.option.tokens <= as_is.option.tokens and item.cost <= as_is.cost and item.lost + WORTH < as_is.lost
        ]
        best = min(spares, key=lambda item: (item.lost, item.option.tokens)) if spares else as_is
    return Plan(best.option, tuple(sorted((item.option for item in found), key=lambda option: option.tokens)))
