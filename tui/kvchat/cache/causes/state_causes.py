"""Causes that lie in what the server held: states taken, lost or not looked up, and what its cache cannot do.

The rule: where the simulator knows what a request ran over, only that request is named; else one is named as the taker
of a slot only where it ran in that slot, or where slots are not known and nothing better explains the turn.
"""

from __future__ import annotations

from kvchat.cache.accounting import NOISE
from kvchat.cache.causes import remedies
from kvchat.cache.causes.case import Case, Suspicion, shortened
from kvchat.cache.causes.cause import Cause
from kvchat.cache.causes.evidence import OwnUse

SIMILAR = 0.1
"""llama.cpp takes the slot that holds more than this share of a prompt."""


def blocks(case: Case) -> Suspicion | None:
    block, limit = case.e.block, case.old
    if case.parted.exact and case.parted.common is not None:
        limit = min(limit, case.parted.common)
    if block <= 1 or case.cached % block or not 0 <= limit - case.cached <= block:
        return None
    return case.suspect(Cause.BLOCKS, f"The server keeps whole blocks of {block:,} tokens: {case.read}.")


def _taker(case: Case) -> tuple[OwnUse, bool] | None:
    """The own request that took this branch's slot, and whether that is certain: the one that ran over most of this
    prompt, else the first one that may have."""
    if all(use.lost is not None for use in case.e.uses):
        use = max(case.e.uses, key=_lost, default=None)
        gone = _lost(use) - max(case.cached, case.e.prediction.best if case.e.prediction else 0) if use else 0
        return (use, case.is_most(gone)) if use is not None and gone > NOISE else None
    slot = case.e.before.slot if case.e.before else None
    for use in case.e.uses:
        if use.kept is not None and use.kept > case.cached + NOISE:
            continue
        known = use.slot is not None and slot is not None
        if not known or use.slot == slot:
            return use, known or use.kept is not None
    return None


def _lost(use: OwnUse) -> int:
    return use.lost or 0


def _shared(case: Case, use: OwnUse | None) -> bool:
    """Whether what took the slot begins like this prompt, so far that the server chose the slot by that."""
    if use is not None and use.by_prefix is not None:
        return use.by_prefix
    return (use.kept if use is not None and use.kept is not None else case.cached) > case.prompt * SIMILAR


def cancelled(case: Case) -> Suspicion | None:
    prediction = case.e.prediction
    if not case.e.beside_cancelled:
        return None
    foreseen = prediction is not None and case.is_most(prediction.cached - case.cached)
    return case.suspect(
        Cause.CANCELLED, f"The slot still computed a cancelled request, so another one answered: {case.read}.",
        convincing=foreseen)


def own_request(case: Case) -> Suspicion | None:
    taker = _taker(case)
    if taker is None or taker[0].kind in ("conversation", "branch"):
        return None
    use, sure = taker
    what = "reading ahead for another chat" if use.kind == "warm-up" else (
        f"{shortened(use.name)} request" if use.name else "side request")
    return case.suspect(Cause.OWN_REQUEST, f"kvchat's own {what} took this conversation's slot: {case.read}.",
                        remedies.apart(case.kind, case.e.shape, _shared(case, use)), convincing=sure)


def other_client(case: Case) -> Suspicion | None:
    foreign, prediction = case.e.foreign, case.e.prediction
    if foreign is None:
        return None
    said, tokens = "Another program used the model", foreign.tokens
    if foreign.slot is not None:
        seen = f"slot {foreign.slot} holds {f'{tokens:,} tokens that are' if tokens else 'text that is'} not ours"
    elif tokens:
        seen = f"the server read {tokens:,} tokens that were not sent from here"
    else:
        seen = case.read
    taken = any(_lost(use) > case.cached + NOISE for use in case.e.uses)
    elsewhere = (foreign.slot is not None and case.e.before is not None and case.e.before.slot is not None
                 and case.e.before.slot != foreign.slot and not (case.e.shape is not None and case.e.shape.unified))
    foreseen = (foreign.slot is None and prediction is not None
                and abs(prediction.cached - case.cached) <= NOISE)
    return case.suspect(Cause.OTHER_CLIENT, f"{said}: {seen}.",
                        remedies.another_program(case.kind, case.e.shape, _shared(case, None)),
                        convincing=not elsewhere and not foreseen and not taken)


def not_looked_up(case: Case) -> Suspicion | None:
    prediction = case.e.prediction
    if prediction is None or prediction.best_where is None or prediction.best_where.kind != "parked":
        return None
    unused = prediction.best - max(case.cached, prediction.common)
    if unused <= NOISE:
        return None
    return case.suspect(
        Cause.NOT_LOOKED_UP,
        f"{prediction.best:,} tokens were parked in the server's memory; it did not look them up.",
        "Keep the settings cache.detour and cache.salt on: both make the server look.", convincing=case.is_most(unused))


def cache_full(case: Case) -> Suspicion | None:
    gone = case.e.evicted
    if not gone:
        return None
    return case.suspect(
        Cause.CACHE_FULL, f"The server ran out of cache memory and dropped {gone:,} tokens of this conversation.",
        remedies.more_cache(case.kind, case.e.shape), convincing=case.is_most(gone))


def slot_taken(case: Case) -> Suspicion | None:
    taker, prediction = _taker(case), case.e.prediction
    if taker is not None and taker[0].kind in ("conversation", "branch"):
        use, sure = taker
        name = f"“{shortened(use.name)}”" if use.name.strip() else "Another conversation"
        if use.kind == "branch":
            return case.suspect(Cause.SLOT_TAKEN, f"Another branch of this conversation took its slot: {case.read}.",
                                convincing=sure)
        return case.suspect(Cause.SLOT_TAKEN, f"{name} took this conversation's slot: {case.read}.",
                            remedies.apart(case.kind, case.e.shape, _shared(case, use)), convincing=sure)
    where = prediction.best_where if prediction is not None else None
    if (prediction is None or where is None or where.kind != "slot" or where.index == prediction.slot
            or prediction.best <= max(case.cached, prediction.common) + NOISE):
        return None
    return case.suspect(
        Cause.SLOT_TAKEN,
        f"Slot {where.index} held {prediction.best:,} tokens of this, but slot {prediction.slot} answered.",
        "Remove id_slot from the parameters." if prediction.chosen_by == "pinned" else
        remedies.apart(case.kind, case.e.shape, True))


def checkpoint(case: Case) -> Suspicion | None:
    shape, prediction, before = case.e.shape, case.e.prediction, case.e.before
    if shape is None or shape.rewind == "anywhere":
        return None
    foreseen = (prediction is not None and abs(prediction.cached - case.cached) <= NOISE
                and prediction.common > case.cached + NOISE)
    common = case.parted.common
    left = before.left if before is not None else None
    counted = (case.parted.exact and common is not None and common > case.cached + NOISE
               and (left is None or common < left - 1))
    start = before.prompt_tokens if before is not None else None
    usual = start is not None and case.cached > 0 and abs(start - 4 - case.cached) <= 1
    back = case.e.changed_by in ("edit", "regenerate", "delete", "fork")
    if not (foreseen or counted or usual or back):
        return None
    wanted = prediction.common if foreseen and prediction is not None else common if counted else left
    aim = f", not to {wanted:,}" if wanted is not None and not back else ""
    return case.suspect(
        Cause.CHECKPOINT, f"This model can only go back to token {case.cached:,}{aim}: {case.read}.",
        remedies.checkpoints(case.kind, shape), case.parted.where,
        convincing=(foreseen or counted or usual) and (wanted is None or case.is_most(wanted - case.cached)))
