"""What became of the cache between two turns of the probe, from their figures.

The rule: pure; a turn whose figures are not reported has no fate.
"""

from __future__ import annotations

from enum import StrEnum

from kvchat.cache.accounting import NOISE
from kvchat.doctor.report import Examination, Step

BEFORE: dict[Step, Step] = {Step.TWO: Step.ONE, Step.THREE: Step.TWO, Step.AFTER_SIDE: Step.THREE}
BLOCK = 16
"""Tokens of the smallest block that a server caches in; reuse ends at a multiple of it."""
BLOCK_NOISE = 64
SURELY_KEPT, SURELY_LOST = 0.7, 0.3
"""Shares of what was there before, from which on and up to which an estimate tells something."""
SURE_S = 0.3
"""A first token that takes less says nothing of what was read."""


class Kept(StrEnum):
    """How much of the turn before was still there."""

    ALL = "all"
    BUT_ANSWER = "all but the answer"
    PARTLY = "a part"
    LOST = "nothing"


def fate(found: Examination, step: Step) -> Kept | None:
    """What the turn `step` found of the one before it; None: not reported."""
    now, before = found.turn(step), found.turn(BEFORE[step])
    if now is None or before is None or now.cached_tokens is None or not before.prompt_tokens:
        return None
    old = (now.prompt_tokens or 0) - (now.new_tokens or 0)
    if now.new_tokens is None:
        old = before.prompt_tokens
    if found.estimated:
        share = now.cached_tokens / max(1, old)
        return Kept.ALL if share >= SURELY_KEPT else Kept.LOST if share <= SURELY_LOST else None
    missing = old - now.cached_tokens
    slack = BLOCK_NOISE if now.cached_tokens and now.cached_tokens % BLOCK == 0 else NOISE
    if missing <= slack:
        return Kept.ALL
    if now.cached_tokens >= before.prompt_tokens - slack:
        return Kept.BUT_ANSWER if missing * 2 > (before.predicted_tokens or 0) else Kept.ALL
    return Kept.LOST if now.cached_tokens * 2 < before.prompt_tokens else Kept.PARTLY


def lost_tokens(found: Examination, step: Step) -> int | None:
    """Tokens that the turn `step` read again."""
    now = found.turn(step)
    return None if now is None else now.wasted_tokens


def seems_cached(found: Examination) -> bool | None:
    """Whether the times to the first token say that the cache works; None where they are too short to tell."""
    first = found.turn(Step.ONE)
    later = [turn for turn in (found.turn(Step.TWO), found.turn(Step.THREE)) if turn is not None and turn.ttft_ms]
    if first is None or not first.ttft_ms or not later or first.ttft_ms < SURE_S * 1000:
        return None
    slowest = max(turn.ttft_ms or 0 for turn in later)
    if slowest < first.ttft_ms * 0.5:
        return True
    return False if min(turn.ttft_ms or 0 for turn in later) > first.ttft_ms * 0.9 else None


def reuse_seen(found: Examination) -> bool:
    """Whether it is known that a conversation is reused: by the server's figures, or by the times."""
    fates = [fate(found, step) for step in BEFORE]
    return any(kept in (Kept.ALL, Kept.BUT_ANSWER) for kept in fates) or seems_cached(found) is True
