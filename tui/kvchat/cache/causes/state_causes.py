"""Causes that lie in what the server held: states taken, lost or not looked up, and what its cache cannot do.

Where the simulator knows what a request ran over, only that request is named; else one is named as the taker
of a slot only where it ran in that slot, or where slots are not known and nothing better explains the turn.
"""

from __future__ import annotations

from kvchat.cache.causes import remedies
from kvchat.cache.causes.case import Case, Suspicion
from kvchat.cache.causes.cause import Reason, Remedy
from kvchat.cache.causes.evidence import GOING_BACK, OwnUse
from kvchat.figures.accounting import NOISE
from kvchat.figures.cause import Cause
from kvchat.values import said

SIMILAR = 0.1
"""llama.cpp takes the slot that holds more than this share of a prompt."""


def other_answer(case: Case) -> Suspicion | None:
    """The server has the prompt of the last answer, and not the answer."""
    chosen = case.e.unkept
    if chosen is None or chosen.prompt_tokens is None or chosen.alternative is None:
        return None
    gone = chosen.prompt_tokens + (chosen.predicted_tokens or 0) - case.cached
    if case.cached < chosen.prompt_tokens - NOISE:
        return None
    return case.suspect(
        Cause.OTHER_ANSWER, said(Reason.OTHER_ANSWER, number=chosen.alternative + 1), convincing=case.is_most(gone)
    )


def blocks(case: Case) -> Suspicion | None:
    block, limit = case.e.block, case.old
    if case.parted.exact and case.parted.common is not None:
        limit = min(limit, case.parted.common)
    if block <= 1 or case.cached % block or not 0 <= limit - case.cached <= block:
        return None
    return case.suspect(Cause.BLOCKS, said(Reason.BLOCKS, block=block))


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
    if not case.e.during_cancelled:
        return None
    foreseen = prediction is not None and case.is_most(prediction.cached - case.cached)
    return case.suspect(Cause.CANCELLED, said(Reason.CANCELLED), convincing=foreseen)


def own_request(case: Case) -> Suspicion | None:
    taker = _taker(case)
    if taker is None or taker[0].kind in ("conversation", "branch"):
        return None
    use, sure = taker
    evidence = said(Reason.WARM_UP) if use.kind == "warm-up" else said(Reason.SIDE_REQUEST, name=use.name or None)
    return case.suspect(
        Cause.OWN_REQUEST, evidence, remedies.apart(case.flags, case.e.shape, _shared(case, use)), convincing=sure
    )


def other_client(case: Case) -> Suspicion | None:
    foreign, prediction = case.e.foreign, case.e.prediction
    if foreign is None:
        return None
    tokens = foreign.tokens or None
    if foreign.slot is not None:
        when = {"since": foreign.since, "seen": foreign.seen} if foreign.since and foreign.seen else {}
        evidence = said(Reason.FOREIGN_SLOT, slot=foreign.slot, tokens=tokens, **when)
    elif tokens:
        evidence = said(Reason.FOREIGN_TOKENS, tokens=tokens)
    else:
        evidence = said(Reason.FOREIGN)
    emptied = foreign.slot is not None and not tokens
    taken = any(_lost(use) > case.cached + NOISE for use in case.e.uses)
    elsewhere = (
        foreign.slot is not None
        and case.e.before is not None
        and case.e.before.slot is not None
        and case.e.before.slot != foreign.slot
        and not (case.e.shape is not None and case.e.shape.unified)
    )
    foreseen = foreign.slot is None and prediction is not None and abs(prediction.cached - case.cached) <= NOISE
    return case.suspect(
        Cause.OTHER_CLIENT,
        evidence,
        None if emptied else remedies.another_program(case.flags, case.e.shape, _shared(case, None)),
        convincing=not elsewhere and not foreseen and not taken,
    )


def not_looked_up(case: Case) -> Suspicion | None:
    prediction = case.e.prediction
    if prediction is None or prediction.best_where is None or prediction.best_where.kind != "parked":
        return None
    unused = prediction.best - max(case.cached, prediction.common)
    if unused <= NOISE:
        return None
    return case.suspect(
        Cause.NOT_LOOKED_UP,
        said(Reason.NOT_LOOKED_UP, tokens=prediction.best),
        said(Remedy.DETOUR),
        convincing=case.is_most(unused),
    )


def cache_full(case: Case) -> Suspicion | None:
    gone = case.e.evicted
    if not gone:
        return None
    return case.suspect(
        Cause.CACHE_FULL,
        said(Reason.CACHE_FULL, tokens=gone),
        remedies.more_cache(case.flags, case.e.shape),
        convincing=case.is_most(gone),
    )


def slot_taken(case: Case) -> Suspicion | None:
    taker, prediction = _taker(case), case.e.prediction
    if taker is not None and taker[0].kind in ("conversation", "branch"):
        use, sure = taker
        if use.kind == "branch":
            return case.suspect(Cause.SLOT_TAKEN, said(Reason.OTHER_BRANCH), convincing=sure)
        return case.suspect(
            Cause.SLOT_TAKEN,
            said(
                Reason.OTHER_CONVERSATION_OR_FULL if case.e.may_be_full else Reason.OTHER_CONVERSATION,
                name=use.name.strip() or None,
            ),
            remedies.apart(case.flags, case.e.shape, _shared(case, use)),
            convincing=sure,
        )
    where = prediction.best_where if prediction is not None else None
    if (
        prediction is None
        or where is None
        or where.kind != "slot"
        or where.index == prediction.slot
        or prediction.best <= max(case.cached, prediction.common) + NOISE
    ):
        return None
    return case.suspect(
        Cause.SLOT_TAKEN,
        said(Reason.OTHER_SLOT, slot=where.index, tokens=prediction.best, answered=prediction.slot),
        said(Remedy.NO_PIN) if prediction.chosen_by == "pinned" else remedies.apart(case.flags, case.e.shape, True),
    )


def checkpoint(case: Case) -> Suspicion | None:
    shape, prediction, before = case.e.shape, case.e.prediction, case.e.before
    if shape is None or shape.rewind == "anywhere":
        return None
    foreseen = (
        prediction is not None
        and abs(prediction.cached - case.cached) <= NOISE
        and prediction.common > case.cached + NOISE
    )
    common = case.parted.common
    left = before.left if before is not None else None
    counted = (
        case.parted.exact
        and common is not None
        and common > case.cached + NOISE
        and (left is None or common < left - 1)
    )
    start = before.prompt_tokens if before is not None else None
    usual = start is not None and case.cached > 0 and abs(start - 4 - case.cached) <= 1
    back = case.e.changed_by in GOING_BACK
    if not (foreseen or counted or usual or back):
        return None
    wanted = prediction.common if foreseen and prediction is not None else common if counted else left
    return case.suspect(
        Cause.CHECKPOINT,
        said(Reason.CHECKPOINT, token=case.cached, wanted=None if back else wanted),
        remedies.checkpoints(case.flags, shape),
        case.parted.where,
        convincing=(foreseen or counted or usual) and (wanted is None or case.is_most(wanted - case.cached)),
    )
