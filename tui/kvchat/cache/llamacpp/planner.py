"""Choosing how to send a request: the way that makes the server prefill least, now and when others come back.

A way is chosen over "as is" only when the simulator of the server's cache says that the server prefills less
for it, the tokens of getting there included, or as much while less of the other conversations is lost. What a
conversation would lose counts as often as it came back of late: one that is never asked again costs nothing. So
conversations that begin alike, of which the server puts each into the slot of the last, get slots of their own when the
states that they take from each other have cost as much as another prefill of what they share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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
    ways = _Ways(simulator, prompt, idle, busy, secured or {}, returns or {})
    found = [ways.as_is(), *ways.pins()]
    if detour and (around := ways.detour()) is not None:
        found.append(around)
    if restorable is not None:
        found += ways.restores(restorable)
    return _chosen(found)


def way_sparing(
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


class _Ways:
    """The ways to send a prompt, each with what it costs. As of the parameters of `plan`."""

    def __init__(
        self,
        simulator: Simulator,
        prompt: Tokens,
        idle: bool,
        busy: Collection[int],
        secured: Mapping[int, int],
        returns: Mapping[str, int],
    ) -> None:
        self._simulator = simulator
        self._prompt = prompt
        self._idle = idle
        self._busy = busy
        self._secured = secured
        self._returns = returns if simulator.shape.gives_own_slots else {}
        self._straight = simulator.predict(prompt)

    def as_is(self) -> _Weighed:
        return self._weighed(Way.AS_IS, len(self._prompt) - self._straight.cached, None, self._straight)

    def pins(self) -> Iterator[_Weighed]:
        simulator, shape = self._simulator, self._simulator.shape
        for slot, held in enumerate(simulator.slots):
            if slot == self._straight.slot or slot in self._busy:
                continue
            has_room = shape.gives_own_slots and simulator.has_room(slot, len(self._prompt))
            # An empty slot skips the server's look-up.
            if has_room or (not shape.unified and (self._idle or held is not None)):
                found = simulator.predict(self._prompt, slot)
                yield self._weighed(Way.PIN, len(self._prompt) - found.cached, slot, found)

    def detour(self) -> _Weighed | None:
        """The way around, where the server then finds more than it does now."""
        if self._straight.best <= self._straight.cached + WORTH:
            return None
        first, around = _around(self._simulator)
        after = around.predict(self._prompt)
        more = [after] if after.slot != first.slot else []
        return self._weighed(Way.DETOUR, len(self._prompt) - after.cached + len(DETOUR), None, first, *more)

    def restores(self, restorable: Restorable) -> Iterator[_Weighed]:
        """A snapshot restored into each slot that the request follows it to."""
        simulator, prompt = self._simulator, self._prompt
        rest = len(prompt) - min(restorable.tokens, len(prompt) - 1)
        anywhere = not simulator.shape.unified and restorable.tokens > simulator.shape.similarity * len(prompt)
        for slot in range(len(simulator.slots)) if anywhere else (self._straight.slot,):
            if slot not in self._busy:
                held = simulator.slots[slot]
                lost = len(held.tokens) - held.tokens.common(prompt) if held is not None else 0
                way = PlannedWay(Way.RESTORE, rest + restorable.cost, slot, slot, lost, restorable)
                yield self._with_losses(way, (held, lost, slot))

    def _weighed(self, way: Way, tokens: int, slot: int | None, first: Prediction, *more: Prediction) -> _Weighed:
        """A way, of which the simulator found what its requests do: the first one, and those after it."""
        losses = [(one.replaces, _lost(one), one.slot) for one in (first, *more)]
        return self._with_losses(PlannedWay(way, tokens, slot, first.slot, _lost(first)), *losses)

    def _with_losses(self, way: PlannedWay, *losses: tuple[Held | None, int, int]) -> _Weighed:
        """A way and what it costs later. `losses`: the states that give way, the tokens of each that are lost, and its
        slot."""
        once = later = 0
        for held, lost, slot in losses:
            back = min(lost, self._secured.get(slot, lost))
            times = self._returns.get(held.owner, 0) if held is not None else 0
            once += back
            later += back * max(times, 1 if self._idle else 0)
        return _Weighed(way, once, way.tokens + later)


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
