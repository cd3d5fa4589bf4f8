"""Causes that lie in the server itself: it is another one, it lost everything, it does not cache, it does not report.

The rule: these are the server's acts, and told as such.
"""

from __future__ import annotations

from kvchat.cache.causes import remedies
from kvchat.cache.causes.case import Case, Suspicion, model_name, shortened
from kvchat.cache.causes.cause import Cause, Finding
from kvchat.cache.causes.evidence import NOBODY

NEVER = 3
"""Turns in a row without any reuse from which a server is thought not to cache at all."""


def _lost(case: Case) -> tuple[Cause, str, str] | None:
    """Cause, words and remedy where what answers now cannot hold what was read before."""
    before, now = (case.e.before.sent.server if case.e.before else NOBODY), case.e.now.server
    if before.model and now.model and before.model != now.model:
        return (Cause.OTHER_MODEL, f"{model_name(now.model)} answered in place of {model_name(before.model)}",
                "Each model has a cache of its own: going back finds the other one's if it stayed loaded.")
    if case.e.slept:
        return Cause.UNLOADED, "The model slept", remedies.unloaded(case.kind, now.embedded)
    if before.build and now.build and before.build != now.build:
        return (Cause.RESTARTED, f"The server restarted as another build ({shortened(now.build, 20)})",
                remedies.restarted(now.embedded))
    moved = bool(before.base_url and now.base_url) and before.base_url != now.base_url
    if case.e.restarted or (moved and before.embedded and now.embedded):
        return Cause.RESTARTED, "The server restarted", remedies.restarted(now.embedded)
    if case.e.loading_seen:
        return Cause.UNLOADED, "The model had to be loaded again", remedies.unloaded(case.kind, now.embedded)
    if moved:
        return (Cause.OTHER_MODEL, "Another server answered, with a cache of its own",
                "Going back to the first server finds what it still holds.")
    return None


def server_gone(case: Case) -> Suspicion | None:
    """It lost everything; where it reused most of it all the same, that hardly explains the rest."""
    lost = _lost(case)
    if lost is None:
        return None
    cause, said, remedy = lost
    return case.suspect(cause, f"{said}: {case.read}.", remedy, convincing=case.cached * 2 < max(1, case.old))


def unreported(case: Case) -> Finding | None:
    """The finding for a server that reports no cached tokens; None where nothing can be said or done."""
    lost = _lost(case)
    if lost is not None:
        cause, said, remedy = lost
        return case.finding(cause, f"{said}; it does not report what it read again.", remedy)
    remedy = remedies.not_reported(case.kind)
    if not remedy:
        return None
    return case.finding(Cause.NOT_REPORTED, "The server does not report cached tokens: the reuse is unknown.", remedy)


def caching_off(case: Case) -> Suspicion | None:
    """By the request itself."""
    now, before = case.e.now, case.e.before.sent if case.e.before else None
    if not now.caches:
        return case.suspect(Cause.CACHING_OFF, f"Caching was off for this request: {case.read}.",
                            "Remove cache_prompt = false from the parameters.")
    if before is not None and None not in (before.adapters, now.adapters) and before.adapters != now.adapters:
        return case.suspect(Cause.CACHING_OFF, f"Other LoRA adapters clear the server's cache: {case.read}.",
                            "Keep the same adapters within a conversation.")
    return None


def never_reuses(case: Case) -> Suspicion | None:
    """By the server, as it seems."""
    turns = case.e.turns_without_reuse
    if case.cached or turns < NEVER:
        return None
    return case.suspect(Cause.CACHING_OFF, f"The server reused nothing in {turns} turns: its caching seems to be off.",
                        remedies.caching_off(case.kind))
