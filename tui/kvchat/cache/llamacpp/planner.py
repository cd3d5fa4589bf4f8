"""Choosing how to send a request: the way that makes the server prefill least, and never more than sending it as is.

The rule: a way is chosen over "as is" only when the simulator of the server's cache says that the server prefills less
for it, the tokens of getting there included, or as much while less of the other conversations is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto

from kvchat.cache.llamacpp.simulator import Prediction, Simulator
from kvchat.cache.tokens import Tokens


class Way(StrEnum):
    """A way to send a request."""

    AS_IS = auto()
    PIN = auto()
    DETOUR = auto()
    """A tiny unrelated request first, which makes the server look up a parked state."""
    RESTORE = auto()


@dataclass(frozen=True, slots=True)
class Option:
    way: Way
    tokens: int
    """Tokens the server reads in all: for the request, and for getting there."""
    slot: int | None = None
    """The slot to pin or to restore into."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The chosen way and the options it was chosen from, cheapest first."""

    chosen: Option
    options: tuple[Option, ...]

    @property
    def slot(self) -> int | None:
        """The slot to pin the request to."""
        return self.chosen.slot if self.chosen.way is Way.PIN else None


WORTH = 16
"""Fewer tokens than this are not worth another way: a request more costs a few milliseconds too."""
DETOUR = Tokens(range(-8, 0))
"""The detour's prompt to the simulator: unlike every other prompt."""


@dataclass(frozen=True, slots=True)
class Restorable:
    """A snapshot on disk of a state that begins the prompt."""

    tokens: int
    """How many tokens of the prompt it holds."""
    cost: int
    """The time to restore it, as tokens that the server reads in that time."""


def plan(
    simulator: Simulator, prompt: Tokens, *, detour: bool = True, restorable: Restorable | None = None,
    idle: bool = False, busy: Collection[int] = (),
) -> Plan:
    """The way to send `prompt`, or a prompt that begins with it. `idle`: nobody waits for it, so that tokens read now
    weigh no more than tokens of other conversations that would be read again later. `busy`: slots that work for
    somebody else, for which a pinned request would wait."""
    as_is = simulator.predict(prompt)
    found = [(Option(Way.AS_IS, len(prompt) - as_is.cached), _lost(as_is))]
    if len(simulator.slots) > 1 and not simulator.shape.unified:
        for slot, held in enumerate(simulator.slots):
            # Pinning to an empty slot skips the look-up.
            if (held is not None or idle) and slot != as_is.slot and slot not in busy:
                pinned = simulator.predict(prompt, slot)
                found.append((Option(Way.PIN, len(prompt) - pinned.cached, slot), _lost(pinned)))
    if detour and as_is.best > as_is.cached + WORTH:
        around = simulator.copy()
        first = around.begin(DETOUR, "", 0.0)
        around.end(first.slot, Tokens((-9,)))
        after = around.predict(prompt)
        lost = _lost(first) + (_lost(after) if after.slot != first.slot else 0)
        found.append((Option(Way.DETOUR, len(prompt) - after.cached + len(DETOUR)), lost))
    if restorable is not None:
        rest = len(prompt) - min(restorable.tokens, len(prompt) - 1)
        found.append((Option(Way.RESTORE, rest + restorable.cost, as_is.slot), _lost(as_is)))
    return _cheapest_in_all(found) if idle else _chosen(found)


def _lost(prediction: Prediction) -> int:
    """Tokens of another conversation that would be gone."""
    return len(prediction.replaces.tokens) - prediction.common if prediction.replaces is not None else 0


def _cheapest_in_all(found: Sequence[tuple[Option, int]]) -> Plan:
    as_is, as_is_lost = found[0]
    best, lost = min(found, key=lambda item: item[0].tokens + item[1])
    if best.tokens + lost + WORTH > as_is.tokens + as_is_lost:
        best = as_is
    return Plan(best, tuple(option for option, _ in found))


def _chosen(found: Sequence[tuple[Option, int]]) -> Plan:
    as_is, as_is_lost = found[0]
    best, _ = min(found, key=lambda item: (item[0].tokens, item[1]))
    if best.tokens > as_is.tokens - WORTH:
        spares = [item for item in found[1:] if item[0].tokens <= as_is.tokens and item[1] + WORTH < as_is_lost]
        best = min(spares, key=lambda item: (item[1], item[0].tokens))[0] if spares else as_is
    return Plan(best, tuple(sorted((option for option, _ in found), key=lambda option: option.tokens)))


def worth_a_salt(simulator: Simulator, system: Tokens, salted: Tokens, *, detour: bool = True) -> bool:
    """Whether a new conversation should begin with a tag of its own: `system` is its system prompt's prefix as it
    stands, `salted` the same with the tag.

    The simulator plays a short first turn both ways, and then the return to the conversation used last, each in the way
    that would be chosen. A tag costs reading the system prompt once more; it is worth that when the first return
    already saves more.
    """
    recent = max((held for held in simulator.slots if held is not None and held.owner), key=lambda held: held.at,
                 default=None)
    if recent is None or recent.tokens.common(system) < len(system) // 2:
        return False
    back = recent.tokens + Tokens(range(-20, -10))

    def spent(prompt: Tokens) -> int:
        played, prompt = simulator.copy(), prompt + Tokens(range(-140, -100))
        first = plan(played, prompt, detour=detour).chosen
        send(played, prompt, first, "new", recent.at + 1)
        return first.tokens + plan(played, back, detour=detour).chosen.tokens

    return spent(salted) + WORTH < spent(system)


def send(simulator: Simulator, prompt: Tokens, option: Option, owner: str, at: float) -> None:
    """Let `simulator` play that `prompt` is sent in this way, and answered."""
    if option.way is Way.DETOUR:
        simulator.end(simulator.begin(DETOUR, "", at).slot, Tokens((-9,)))
    found = simulator.begin(prompt, owner, at, option.slot if option.way is Way.PIN else None)
    simulator.end(found.slot, Tokens(range(-100, -20)))
