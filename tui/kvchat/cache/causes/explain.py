"""Why a turn had wasted tokens, decided from evidence in a fixed order.

A server that reports nothing cached of what it held is named before all else, also where it cost nothing.

The order: the server is gone (other model, slept, other window, restarted, loaded, other server); it does not report;
caching was off; another one of several answers was chosen; what was sent differs (cut, shifted, our bytes, reasoning
dropped, template, re-tokenised); a remainder smaller than one block; a cancelled request that was still computed;
kvchat's own side request; another program; lost states (in the host cache and not looked up, cache memory full, slot
taken); what the model's cache cannot do (checkpoints); a server that never reuses anything; unknown.

The first cause in this order that explains at least half of the tokens is named; one that explains less, or
is only likely, is named when no later one is better. The server's acts are named as the server's, never as the
user's. A figure that was not reported is never taken for 0: `Finding.tokens` is 0 only where the finding is that
nothing was reported.
"""

from __future__ import annotations

from collections.abc import Callable

from kvchat.cache.causes import sent_causes, server_causes, state_causes
from kvchat.cache.causes.case import Case, Suspicion
from kvchat.cache.causes.cause import Finding, Reason
from kvchat.cache.causes.divergence import NO_PARTING, parting
from kvchat.cache.causes.evidence import Evidence
from kvchat.figures.accounting import NOISE
from kvchat.figures.cause import Cause
from kvchat.values import said

_ORDER: tuple[Callable[[Case], Suspicion | None], ...] = (
    server_causes.server_gone,
    server_causes.caching_off,
    state_causes.other_answer,
    sent_causes.cut,
    sent_causes.shifted,
    sent_causes.our_bytes,
    sent_causes.reasoning,
    sent_causes.template,
    sent_causes.retokenised,
    state_causes.blocks,
    state_causes.cancelled,
    state_causes.own_request,
    state_causes.other_client,
    state_causes.not_looked_up,
    state_causes.cache_full,
    state_causes.slot_taken,
    state_causes.checkpoint,
    server_causes.never_reuses,
)


def finding_of(evidence: Evidence) -> Finding | None:
    """As `explain`, else what the server has lost silently."""
    return explain(evidence) or silent_loss(evidence)


def explain(evidence: Evidence) -> Finding | None:
    """Why this turn had wasted tokens. None: a first read, no more than noise, or figures that are not known.

    A server that reports no cached tokens gives a finding of 0 tokens, for the inspector, where the user can make it
    report them or where it is known to have lost what it held.
    """
    figures = evidence.figures
    prompt, cached, new = figures.prompt_tokens, figures.cached_tokens, figures.new_tokens
    if cold := server_causes.reported_cold(_case(evidence)):
        return cold.finding
    if prompt is None or new is None or figures.first_read:
        return None
    if cached is None:
        return server_causes.unreported(Case(evidence, prompt, 0, new, 0, NO_PARTING))
    wasted = figures.wasted_tokens or 0
    if wasted <= figures.noise:
        return None
    return _decided(Case(evidence, prompt, cached, new, wasted, parting(evidence)))


def silent_loss(evidence: Evidence) -> Finding | None:
    """The prompt was cut or the window shifted silently, however few tokens that cost. None: not seen."""
    case = _case(evidence)
    found = sent_causes.cut(case) or sent_causes.shifted(case)
    return found.finding if found else None


def _case(evidence: Evidence) -> Case:
    """The evidence where figures may be unknown, without what the texts tell."""
    figures = evidence.figures
    return Case(
        evidence,
        figures.prompt_tokens or 0,
        figures.cached_tokens or 0,
        figures.new_tokens or 0,
        figures.wasted_tokens or 0,
        NO_PARTING,
    )


def _decided(case: Case) -> Finding:
    likely: Finding | None = None
    for cause in _ORDER:
        suspicion = cause(case)
        if suspicion is not None and suspicion.convincing:
            return suspicion.finding
        likely = likely or (suspicion.finding if suspicion else None)
    return likely or _unknown(case)


def _unknown(case: Case) -> Finding:
    prediction, common = case.e.prediction, case.parted.common
    if prediction is not None and prediction.cached > case.cached + NOISE:
        evidence = said(Reason.FEWER_THAN_EXPECTED, cached=case.cached, expected=prediction.cached)
    elif case.parted.exact and common is not None and common > case.cached + NOISE:
        evidence = said(Reason.SAME_BEGINNING, tokens=common)
    else:
        evidence = said(Reason.UNKNOWN)
    return case.finding(Cause.UNKNOWN, evidence, None, case.parted.where)
