"""The server's memory of parked states (`--cache-ram`): what goes in, what is pushed out, what is taken back.

A state is moved, never copied; the oldest goes first; every list is new, so that copies stay apart.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.cache.tokens import Tokens

MOST = 128
"""Parked states that are remembered: where a token's size is not known, nothing else bounds them."""


def ratio(part: float, whole: int) -> float:
    """`part` of `whole` in single precision, as the server computes it: thresholds are met exactly."""
    return array("f", [part / whole])[0]


def park(parked: Sequence[Held], new: Held, shape: Shape) -> list[Held]:
    """The parked states after `new` was parked: not at all when one contains it; those it contains go, and the
    oldest as far as their bytes leave no room."""
    room = shape.ram_bytes
    size = new.bytes(shape)
    if room == 0 or not new.tokens or any(held.tokens.starts_with(new.tokens) for held in parked):
        return list(parked)
    if room is not None and size > room:
        return list(parked)
    left = [held for held in parked if not new.tokens.starts_with(held.tokens)]
    if room is not None:
        left = left[_too_many([held.bytes(shape) for held in left], room - size) :]
    return [*left, new]


def trimmed(parked: list[Held], shape: Shape) -> list[Held]:
    """`parked` as the server leaves it after a look-up: without a limit in bytes its limit is the context's tokens.
    The newest always stays."""
    if shape.ram_bytes is not None or not shape.context:
        return parked
    return parked[min(_too_many([len(held.tokens) for held in parked], shape.context), max(0, len(parked) - 1)) :]


def _too_many(sizes: Sequence[float], room: float) -> int:
    """How many of the first must go so that the rest fits."""
    used, first = sum(sizes), 0
    while first < len(sizes) and used > room:
        used -= sizes[first]
        first += 1
    return first


def better(parked: Sequence[Held], slot: Held | None, prompt: Tokens, shape: Shape) -> int | None:
    """The parked state that the server takes for `prompt` in place of what the slot holds; None: it stays.

    It must share more with the prompt, and lose a smaller part of itself, than the slot's state and every other.
    """
    common = slot.tokens.common(prompt) if slot else 0
    kept = ratio(common, len(slot.tokens)) if slot and slot.tokens else -1.0
    used, best = ratio(common, len(prompt)), None
    for index, held in enumerate(parked):
        common = held.tokens.common(prompt)
        keeps, uses = ratio(common, len(held.tokens)), ratio(common, len(prompt))
        if keeps >= shape.overlap and keeps > kept and uses > used:
            kept, used, best = keeps, uses, index
    return best
