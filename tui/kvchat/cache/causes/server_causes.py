"""Causes that lie in the server itself: it is another one, it lost everything, it does not cache, it does not report.

These are the server's acts, and named as such.
"""

from __future__ import annotations

from kvchat.cache.causes import remedies
from kvchat.cache.causes.case import Case, Suspicion
from kvchat.cache.causes.cause import Finding, Reason, Remedy
from kvchat.cache.causes.evidence import NOBODY
from kvchat.figures.cause import Cause
from kvchat.values import Statement, said

NEVER = 3
"""Turns in a row without any reuse from which a server is thought not to cache at all."""


def _lost(case: Case) -> tuple[Cause, Statement, Statement | None] | None:
    """Cause, evidence and remedy where what answers now cannot hold what was read before."""
    before, now = (case.e.before.sent.server if case.e.before else NOBODY), case.e.now.server
    moved = bool(before.base_url and now.base_url) and before.base_url != now.base_url
    if moved and not (before.embedded and now.embedded):
        return Cause.OTHER_MODEL, said(Reason.OTHER_SERVER), said(Remedy.GO_BACK)
    if before.model and now.model and before.model != now.model:
        return (
            Cause.OTHER_MODEL,
            said(Reason.OTHER_MODEL, now=now.model, before=before.model),
            said(Remedy.GO_BACK, model=True),
        )
    if case.e.swapped is not None:
        file, other = case.e.swapped
        return Cause.OTHER_MODEL, said(Reason.OTHER_MODEL, now=other, before=file), said(Remedy.GO_BACK, model=True)
    if case.e.slept:
        return Cause.UNLOADED, said(Reason.SLEPT), case.flags.stays_loaded()
    if before.build and now.build and before.build != now.build:
        return (
            Cause.RESTARTED,
            said(Reason.OTHER_BUILD, build=now.build),
            remedies.restarted(now.embedded, remedies.Flags()),
        )
    if case.e.windows is not None:
        old, new = case.e.windows
        evidence = said(Reason.OTHER_WINDOW, now=new, before=old)
        return Cause.OTHER_WINDOW, evidence, remedies.keep_window(case.flags)
    if case.e.restarted or moved:
        return Cause.RESTARTED, said(Reason.RESTARTED), remedies.restarted(now.embedded, case.flags, case.e.saves_slots)
    if case.e.loading_seen:
        return Cause.UNLOADED, said(Reason.LOADED_AGAIN), case.flags.stays_loaded(case.e.room_for_models)
    return None


def server_gone(case: Case) -> Suspicion | None:
    """It lost everything; where it reused most of it all the same, that hardly explains the rest."""
    lost = _lost(case)
    if lost is None:
        return None
    return case.suspect(*lost, convincing=case.cached * 2 < max(1, case.old))


def unreported(case: Case) -> Finding | None:
    """The finding for a server that reports no cached tokens; None where nothing can be said or done."""
    lost = _lost(case)
    if lost is not None:
        return case.finding(*lost)
    remedy = case.flags.reports
    return case.finding(Cause.NOT_REPORTED, said(Reason.NOT_REPORTED), remedy) if remedy is not None else None


def caching_off(case: Case) -> Suspicion | None:
    """By the request itself."""
    now, before = case.e.now, case.e.before.sent if case.e.before else None
    if not now.caches:
        return case.suspect(Cause.CACHING_OFF, said(Reason.CACHE_PROMPT_OFF), said(Remedy.SEND_CACHE_PROMPT))
    if before is not None and None not in (before.adapters, now.adapters) and before.adapters != now.adapters:
        return case.suspect(Cause.CACHING_OFF, said(Reason.OTHER_ADAPTERS), said(Remedy.KEEP_ADAPTERS))
    return None


def reported_cold(case: Case) -> Suspicion | None:
    """It reused nothing, by its own word, of what it held; not where it is another one by now, or somebody else used
    it."""
    e = case.e
    if not e.denied or e.foreign is not None or server_gone(case) or caching_off(case):
        return None
    return case.suspect(
        Cause.REPORTED_COLD, said(Reason.REPORTED_COLD, held=e.denied), remedies.check_answer(case.flags)
    )


def never_reuses(case: Case) -> Suspicion | None:
    """By the server, as it seems."""
    turns = case.e.turns_without_reuse
    if case.cached or turns < NEVER:
        return None
    return case.suspect(Cause.CACHING_OFF, said(Reason.NEVER_REUSES, turns=turns), case.flags.caches)
