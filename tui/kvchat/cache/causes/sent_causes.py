"""Causes that lie in the prompt: cut, shifted, changed by the person or the client, or by the chat template.

The rule: an act of the person is told as an act, not as a fault, and only where what was sent shows it or nothing
that was sent is known.
"""

from __future__ import annotations

import re

from kvchat.cache.accounting import NOISE
from kvchat.cache.causes import remedies
from kvchat.cache.causes.case import Case, Suspicion, shortened
from kvchat.cache.causes.cause import Cause, Divergence
from kvchat.cache.causes.divergence import content_of, spans
from kvchat.cache.causes.evidence import Change, Evidence
from kvchat.cache.causes.parting import Difference, differ, prompt_length

_ACTS: dict[Change, str] = {
    "edit": "You edited {message}",
    "regenerate": "You asked for another answer",
    "delete": "You deleted messages",
    "fork": "You forked the conversation",
    "system": "You changed the system prompt",
    "template": "You changed the template's options",
    "model": "You chose another model",
    "tools": "You changed the tools",
    "compact": "You compacted the conversation",
}
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2} [A-Z][a-z]{2,8}\.? \d{4}|[A-Z][a-z]{2,8}\.? \d{1,2},? \d{4}")
_OURS = "kvchat never rewrites what it sent before: if nothing else changed the conversation, please report this."


def message_name(index: int | None, *, start: bool = False) -> str:
    """`message 3`, `the system prompt`; with `start` as a sentence begins."""
    name = "a message" if index is None else f"message {index}" if index else "the system prompt"
    return name[0].upper() + name[1:] if start else name


def quoted(where: Divergence | None) -> str:
    """` at “…10:15”`: the first differing characters as they are sent now, else as they were."""
    text = shortened((where.sent.strip() or where.held.strip()) if where else "", 24)
    return f" at “…{text}”" if text else ""


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
    return bool(old) and len(e.now.wires) > len(old) and e.now.wires[:len(old)] == old


def cut(case: Case) -> Suspicion | None:
    whole = cut_length(case.e)
    if whole is None:
        return None
    return case.suspect(
        Cause.CUT, f"The server cut the prompt without a word: it read {case.prompt:,} of {whole:,} tokens.",
        remedies.larger_window(case.kind, max(whole, case.e.figures.context_size or 0)))


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
        Cause.SHIFTED, f"The window was full: the server dropped old text and kept {kept:,} of {whole:,} tokens.",
        remedies.no_shift(case.kind, whole))


def our_bytes(case: Case) -> Suspicion | None:
    e, parted = case.e, case.parted
    act = e.changed_by
    unseen = not e.now.wires and not e.now.rendered and parted.what in (Difference.UNKNOWN, Difference.BEHIND)
    if act is not None and (unseen or parted.what in (Difference.MESSAGE, Difference.OPTIONS, Difference.ANSWER)):
        index = e.changed_message if e.changed_message is not None else parted.where.message if parted.where else None
        said = _ACTS.get(act, "You changed the conversation").format(message=message_name(index))
        return case.suspect(Cause.OUR_BYTES, f"{said}: {case.read}.", "", parted.where,
                            convincing=case.explains(parted.common))
    said = _change(case)
    if not said:
        return None
    return case.suspect(Cause.OUR_BYTES, f"{said}: {case.read}.", _OURS, parted.where,
                        convincing=case.explains(parted.common))


def _change(case: Case) -> str:
    """What changed in what was sent, without an act of the person; empty where nothing did."""
    e, where = case.e, case.parted.where
    match case.parted.what:
        case Difference.MESSAGE:
            return f"{message_name(where.message if where else None, start=True)} changed{quoted(where)}"
        case Difference.ANSWER:
            before = e.before
            trimmed = before is not None and (
                content_of(e.now.wires[len(before.sent.wires)]).strip() == before.reply.strip())
            return "The last answer was sent back trimmed" if trimmed else (
                f"The last answer was sent back with another text{quoted(where)}")
        case Difference.OPTIONS:
            tools = e.before is not None and differ(e.before.sent.tools, e.now.tools)
            return f"The {'tools' if tools else 'template options'} changed{quoted(where)}"
    return ""


def reasoning(case: Case) -> Suspicion | None:
    e, what = case.e, case.parted.what
    before = e.before
    if before is None:
        return None
    no_thinking = b'"enable_thinking":false' in (e.now.options or b"")
    guessed = what is Difference.BEHIND and (
        (bool(before.reasoning) and e.drops_reasoning is not False) or (no_thinking and e.drops_reasoning is True))
    if what is not Difference.THOUGHTS and not guessed:
        return None
    if before.reasoning:
        sentence = f"The chat template forgets thoughts: the last answer ({case.avoidable:,} tokens) was read again."
        remedy = remedies.keep_reasoning(e.can_keep_reasoning)
    else:
        sentence = f"The chat template drops its empty thinking block: {case.read}."
        remedy = remedies.empty_block()
    return case.suspect(Cause.REASONING, sentence, remedy, case.parted.where,
                        convincing=case.explains(case.parted.common))


def template(case: Case) -> Suspicion | None:
    parted, where = case.parted, case.parted.where
    if parted.what is not Difference.TEMPLATE:
        return None
    sentence, remedy = _template_words(case, where)
    return case.suspect(Cause.TEMPLATE, f"{sentence}: {case.read}.", remedy, where,
                        convincing=case.explains(parted.common))


def _template_words(case: Case, where: Divergence | None) -> tuple[str, str]:
    """What the template did, and what helps against it."""
    e, common = case.e, case.parted.common
    length = prompt_length(e.before) if e.before else None
    date = _DATE.search(where.sent) if where is not None and _DATE.search(where.held) else None
    if date is not None:
        return (f"The chat template wrote another date (“{date[0]}”)",
                "Fix the date in the template options, where the template knows it: date_string.")
    places = spans(e.now.rendered, e.now.wires[:2]) if e.now.rendered else []
    if len(places) == 2 and places[0] and places[1] and places[0] > places[1]:
        return ("The chat template moves the system prompt to the last question",
                "Put the instructions into the first message instead of the system prompt.")
    if common is not None and length is not None and common < length - NOISE:
        name = message_name(where.message) if where and where.message is not None else "the prompt"
        at = quoted(where) or f" from token {common:,} on"
        return f"The chat template wrote {name} differently{at}", ""
    return "The chat template writes an answer differently once it is history", ""


def retokenised(case: Case) -> Suspicion | None:
    parted, before = case.parted, case.e.before
    if parted.what not in (Difference.REPLY, Difference.BEHIND) or before is None:
        return None
    length = prompt_length(before)
    at = max(0, parted.common - length) + 1 if parted.common is not None and length is not None else None
    since = f" from its token {at:,} on" if at is not None and at > 1 else ""
    sure = parted.what is Difference.REPLY or parted.exact
    return case.suspect(
        Cause.RETOKENISED, f"The last answer reads back as other tokens{since}: {case.read}.", "", parted.where,
        convincing=sure and case.explains(parted.common))
