"""What the chat template of the model costs: a date, dropped reasoning, a system message that moves.

The rule: pure; only a habit that costs the cache, or that kvchat has to work around, is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvchat.doctor import advice
from kvchat.doctor.report import Examination, Severity, Step, Topic, Verdict
from kvchat.doctor.reuse import lost_tokens
from kvchat.text.format import count, counted, duration

_NOTE, _BAD = Severity.NOTE, Severity.PROBLEM


def moves(found: Examination) -> bool:
    """Whether the template writes earlier messages differently in each turn."""
    template = found.template
    return template is not None and (template.moves_system is True or template.keeps_prefix is False)


def drops(found: Examination) -> bool:
    return found.template is not None and found.template.drops_reasoning is True


def _system(found: Examination) -> Iterable[Verdict]:
    info, template = found.server, found.template
    if info is None or template is None:
        return
    if moves(found):
        worst = max((lost_tokens(found, step) or 0 for step in (Step.TWO, Step.THREE, Step.AFTER_SIDE)), default=0)
        seconds = found.seconds_for(worst) if worst else None
        what = "the system message in front of the newest question" if template.moves_system \
            else "earlier messages differently in each turn"
        read = f": {counted(worst, 'token')} were read again{_took(seconds)}" if worst else ""
        yield Verdict(Topic.SYSTEM, _BAD, f"The chat template writes {what}, so that the prompt changes from there on"
                      f"{read}.", advice.system_in_place(info) if template.moves_system else "", worst or None, seconds,
                      "turn")
    elif template.system_role is False:
        yield Verdict(Topic.SYSTEM, Severity.FINE, "The chat template has no place for a system message: it goes in "
                      "the first question, and costs nothing there.")


def _date(found: Examination) -> Iterable[Verdict]:
    info = found.server
    if info is None or found.template is None or not found.template.date:
        return
    size = (info.context_size or 0) // 2
    seconds = found.seconds_for(size) if size else None
    cost = f" ({duration(seconds)} for {count(size)} tokens)" if seconds and seconds >= 1 else ""
    yield Verdict(Topic.DATE, _NOTE, "The chat template puts today's date into the prompt: after midnight each "
                  f"conversation is read again as a whole, once{cost}.",
                  advice.without_date(info, found.date_option), seconds=seconds, per="day")


def _reasoning(found: Examination) -> Iterable[Verdict]:
    info = found.server
    if info is None or not drops(found):
        return
    asked = found.keeps_reasoning_when_asked
    can = info.preserves_reasoning if asked is None else asked
    if can:
        yield Verdict(Topic.REASONING, _NOTE, "The chat template leaves earlier reasoning out unless it is asked to "
                      "keep it; left out, each turn reads the answer before it again.",
                      advice.keep_reasoning(info, True))
        return
    tokens = lost_tokens(found, Step.THREE)
    seconds = found.seconds_for(tokens) if tokens else None
    read = f" Here that was {counted(tokens, 'token')}{_took(seconds)} of a short one." if tokens else ""
    yield Verdict(Topic.REASONING, _NOTE, "The chat template leaves earlier reasoning out of the prompt: each turn "
                  f"reads the answer before it again.{read}", advice.keep_reasoning(info, False), tokens, seconds,
                  "turn")


def _took(seconds: float | None) -> str:
    return f" ({duration(seconds)})" if seconds is not None else ""


LOOKS: tuple[Callable[[Examination], Iterable[Verdict]], ...] = (_system, _date, _reasoning)
