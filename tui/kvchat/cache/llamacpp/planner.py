"""Choosing how to send a request: the way that makes the server read least, and never more than sending it as is.

The rule: a way is chosen over "as is" only when the model of the server's cache says that the server reads less for
it, the tokens of getting there included, or as much while less of the other conversations is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kvchat.cache.llamacpp.plan import Option, Plan, Way
from kvchat.cache.llamacpp.twin import Prediction, Twin
from kvchat.cache.tokens import Tokens

WORTH = 16
"""Fewer tokens than this are not worth another way: a request more costs a few milliseconds too."""
DETOUR = Tokens(range(-8, 0))
"""The detour's prompt to the twin: unlike every other prompt."""


@dataclass(frozen=True, slots=True)
class Restorable:
    """A snapshot on disk of a state that begins the prompt."""

    tokens: int
    """How many tokens of the prompt it holds."""
    cost: int
    """The time to restore it, as tokens that the server reads in that time."""


def plan(
    twin: Twin, prompt: Tokens, *, detour: bool = True, restorable: Restorable | None = None, idle: bool = False,
    busy: Collection[int] = (),
) -> Plan:
    """The way to send `prompt`, or a prompt that begins with it. `idle`: nobody waits for it, so that tokens read now
    weigh no more than tokens of other conversations that would be read again later. `busy`: slots that work for
    somebody else, for which a pinned request would wait."""
    as_is = twin.predict(prompt)
    found = [(Option(Way.AS_IS, len(prompt) - as_is.cached), _lost(as_is))]
    if len(twin.slots) > 1 and not twin.shape.unified:
        for slot, held in enumerate(twin.slots):
            # Pinning to an empty slot skips the look-up.
            if (held is not None or idle) and slot != as_is.slot and slot not in busy:
                pinned = twin.predict(prompt, slot)
                found.append((Option(Way.PIN, len(prompt) - pinned.cached, slot), _lost(pinned)))
    if detour and as_is.best > as_is.cached + WORTH:
        around = twin.copy()
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


def worth_a_salt(twin: Twin, system: Tokens, salted: Tokens, *, detour: bool = True) -> bool:
    """Whether a new conversation should begin with a tag of its own: `system` is its system prompt's prefix as it
    stands, `salted` the same with the tag.

    The twin plays a short first turn both ways, and then the return to the conversation used last, each in the way
    that would be chosen. A tag costs reading the system prompt once more; it is worth that when the first return
    already saves more.
    """
    recent = max((held for held in twin.slots if held is not None and held.owner), key=lambda held: held.at,
                 default=None)
    if recent is None or recent.tokens.common(system) < len(system) // 2:
        return False
    back = recent.tokens + Tokens(range(-20, -10))

    def spent(prompt: Tokens) -> int:
        played, prompt = twin.copy(), prompt + Tokens(range(-140, -100))
        first = plan(played, prompt, detour=detour).chosen
        send(played, prompt, first, "new", recent.at + 1)
        return first.tokens + plan(played, back, detour=detour).chosen.tokens

    return spent(salted) + WORTH < spent(system)


def send(twin: Twin, prompt: Tokens, option: Option, owner: str, at: float) -> None:
    """Let `twin` play that `prompt` is sent in this way, and answered."""
    if option.way is Way.DETOUR:
        twin.end(twin.begin(DETOUR, "", at).slot, Tokens((-9,)))
    found = twin.begin(prompt, owner, at, option.slot if option.way is Way.PIN else None)
    twin.end(found.slot, Tokens(range(-100, -20)))
