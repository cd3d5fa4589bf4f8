"""Causes that lie in the prompt: cut, shifted, changed by the user or the client, or by the chat template.

An act of the user is named as an act, not as a fault, and only where what was sent shows it or nothing
that was sent is known.
"""

from __future__ import annotations

import re

from kvchat.cache.causes import remedies
from kvchat.cache.causes.case import Case, Suspicion
from kvchat.cache.causes.cause import Divergence, Reason, Remedy
from kvchat.cache.causes.divergence import Difference, content_of, differ, prompt_length, spans
from kvchat.cache.causes.evidence import Evidence
from kvchat.figures.accounting import NOISE
from kvchat.figures.cause import Cause
from kvchat.values import Statement, said

_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2} [A-Z][a-z]{2,8}\.? \d{4}|[A-Z][a-z]{2,8}\.? \d{1,2},? \d{4}")


def text_at(where: Divergence | None) -> str | None:
    """The first differing characters as they are sent now, else as they were; None where there are none."""
    return (where.sent.strip() or where.held.strip() or None) if where is not None else None


def cut_length(e: Evidence) -> int | None:
    """How many tokens the prompt should have had at least, where the server read fewer; else None."""
    prompt, before = e.figures.prompt_tokens, e.before
    if prompt is None:
        return None
    counted = e.counted if e.counted is not None else len(e.now.tokens) if e.now.tokens is not None else None
    if counted is not None:
        return counted if prompt < counted - NOISE else None
    if before is None or before.prompt_tokens is None or not _goes_on(e):
        return None
    kept = before.prompt_tokens
    if not before.reasoning and not e.drops_reasoning and before.predicted_tokens is not None:
        kept += before.predicted_tokens
    return kept if prompt < kept - NOISE - kept // 50 else None


def _goes_on(e: Evidence) -> bool:
    """Whether this request is known to carry all of the last one and its answer."""
    old = e.before.sent.wires if e.before else ()
    return bool(old) and len(e.now.wires) > len(old) and e.now.wires[: len(old)] == old


def cut(case: Case) -> Suspicion | None:
    whole = cut_length(case.e)
    if whole is None:
        return None
    return case.suspect(
        Cause.CUT,
        said(Reason.CUT, prefilled=case.prompt, whole=whole),
        remedies.larger_window(case.flags, max(whole, case.e.figures.context_size or 0)),
    )


def shift(e: Evidence) -> tuple[int, int] | None:
    """Tokens held after the last answer, and how many there should have been, where the server dropped some."""
    before = e.before
    if before is None or before.left is None or not before.slot_tokens:
        return None
    return (before.slot_tokens, before.left) if before.slot_tokens < before.left - NOISE else None


def shifted(case: Case) -> Suspicion | None:
    found = shift(case.e)
    if found is None:
        return None
    kept, whole = found
    return case.suspect(
        Cause.SHIFTED, said(Reason.SHIFTED, kept=kept, whole=whole), remedies.no_shift(case.flags, whole)
    )


def our_bytes(case: Case) -> Suspicion | None:
    e, parted = case.e, case.parted
    act = e.changed_by
    unseen = not e.now.wires and not e.now.rendered and parted.what in (Difference.UNKNOWN, Difference.BEHIND)
    if act is not None and (unseen or parted.what in (Difference.MESSAGE, Difference.OPTIONS, Difference.ANSWER)):
        index = e.changed_message if e.changed_message is not None else parted.where.message if parted.where else None
        return case.suspect(
            Cause.OUR_BYTES,
            said(Reason.ACT, act=act, message=index),
            None,
            parted.where,
            convincing=case.explains(parted.common),
        )
    changed = _change(case)
    if changed is None:
        return None
    return case.suspect(
        Cause.OUR_BYTES, changed, said(Remedy.REPORT_TO_US), parted.where, convincing=case.explains(parted.common)
    )


def _change(case: Case) -> Statement | None:
    """What changed in what was sent, without an act of the user; None where nothing did."""
    e, where = case.e, case.parted.where
    match case.parted.what:
        case Difference.MESSAGE:
            return said(Reason.MESSAGE_CHANGED, message=where.message if where else None, text=text_at(where))
        case Difference.ANSWER:
            before = e.before
            trimmed = before is not None and (
                content_of(e.now.wires[len(before.sent.wires)]).strip() == before.reply.strip()
            )
            return said(Reason.ANSWER_TRIMMED) if trimmed else said(Reason.ANSWER_CHANGED, text=text_at(where))
        case Difference.OPTIONS:
            tools = e.before is not None and differ(e.before.sent.tools, e.now.tools)
            return said(Reason.TOOLS_CHANGED if tools else Reason.OPTIONS_CHANGED, text=text_at(where))
    return None


def reasoning(case: Case) -> Suspicion | None:
    e, what = case.e, case.parted.what
    before = e.before
    if before is None:
        return None
    no_thinking = b'"enable_thinking":false' in (e.now.options or b"")
    guessed = what is Difference.BEHIND and (
        (bool(before.reasoning) and e.drops_reasoning is not False) or (no_thinking and e.drops_reasoning is True)
    )
    if what is not Difference.THOUGHTS and not guessed:
        return None
    if before.reasoning:
        evidence = said(Reason.THOUGHTS_DROPPED)
        remedy = remedies.keep_reasoning(e.can_keep_reasoning, e.reasoning_option)
    else:
        evidence, remedy = said(Reason.EMPTY_THOUGHTS_DROPPED), said(Remedy.THINKING_ON)
    return case.suspect(
        Cause.REASONING, evidence, remedy, case.parted.where, convincing=case.explains(case.parted.common)
    )


def template(case: Case) -> Suspicion | None:
    parted, where = case.parted, case.parted.where
    if parted.what is not Difference.TEMPLATE:
        return None
    return case.suspect(Cause.TEMPLATE, *_by_template(case, where), where, convincing=case.explains(parted.common))


def _by_template(case: Case, where: Divergence | None) -> tuple[Statement, Statement | None]:
    """What the template did, and what helps against it."""
    e, common = case.e, case.parted.common
    length = prompt_length(e.before) if e.before else None
    date = _DATE.search(where.sent) if where is not None and _DATE.search(where.held) else None
    if date is not None:
        return said(Reason.OTHER_DATE, date=date[0]), said(Remedy.FIX_DATE)
    places = spans(e.now.rendered, e.now.wires[:2]) if e.now.rendered else []
    if len(places) == 2 and places[0] and places[1] and places[0] > places[1]:
        return said(Reason.SYSTEM_MOVED), said(Remedy.NO_SYSTEM_PROMPT)
    if common is not None and length is not None and common < length - NOISE:
        message = where.message if where is not None else None
        return said(Reason.REWRITTEN, message=message, text=text_at(where), token=common), None
    return said(Reason.ANSWER_REWRITTEN), None


def retokenised(case: Case) -> Suspicion | None:
    parted, before = case.parted, case.e.before
    if parted.what not in (Difference.REPLY, Difference.BEHIND) or before is None:
        return None
    length = prompt_length(before)
    at = max(0, parted.common - length) + 1 if parted.common is not None and length is not None else None
    sure = parted.what is Difference.REPLY or parted.exact
    return case.suspect(
        Cause.RETOKENISED,
        said(Reason.RETOKENISED, token=at if at is not None and at > 1 else None, call=before.calls or None),
        None,
        parted.where,
        convincing=sure and case.explains(parted.common),
    )
