"""Prices of acts, in words.

A price that is not known is said to be unknown, and one from few measurements is said as a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvchat.cache import Act, Alternative, CheaperWay, Price
from kvchat.figures.accounting import NOISE
from kvchat.sanitize import one_line
from kvchat.text.cache import cost_words, roughly_known
from kvchat.text.findings import cause_name
from kvchat.text.format import about, count, counted, duration, short_count

if TYPE_CHECKING:
    from kvchat.prompt.compaction import CompactionPlan

TITLES: dict[Act, str] = {
    "edit": "Edit this message?",
    "regenerate": "Regenerate the answer?",
    "continue": "Continue this answer?",
    "delete": "Delete this turn?",
    "system": "Change the system prompt?",
    "tools": "Change the tools of this conversation?",
    "template": "Change this for the whole conversation?",
    "model": "Switch to another model here?",
    "alternatives": "Ask for several answers?",
}
"""The question before an act that costs something."""

FREE = "None of these touches the cache."
_KEEPS: frozenset[Act] = frozenset({"edit", "regenerate", "continue", "delete", "system", "tools"})

_WAYS: dict[CheaperWay, str] = {
    CheaperWay.NEW_CONVERSATIONS: "Leave it here and set it for new conversations",
    CheaperWay.NEXT_MESSAGE: "Say it in your next message instead",
    CheaperWay.DISREGARD: "Append a correction, such as “disregard that”",
    CheaperWay.CORRECTION: "Append a correction instead",
    CheaperWay.FORK: "Fork instead",
}


def price_lines(price: Price, act: Act | None = None) -> list[str]:
    """The price of an act in one or two sentences."""
    lines = [_price_line(price)]
    if price.cause is not None:
        lines.append(f"Of this conversation the server holds nothing any more: {cause_name(price.cause)}.")
    lines += [
        f"“{one_line(title, 40) or 'another conversation'}” loses its slot: {counted(tokens, 'token')} to "
        "prefill there next time."
        for title, tokens in price.losing
    ]
    if act in _KEEPS:
        lines.append("The old version is kept.")
    return lines


STAYS_CACHED = "cached"


def next_prefill(tokens: int) -> str:
    """What going on with one of several answers costs: `+412 to prefill next`."""
    return f"+{short_count(tokens)} to prefill next"


def several_lines(requests: Sequence[int], models: Sequence[str]) -> list[str]:
    """How several answers come, by how many each request asks for, and what stays cached of them."""
    if models:
        return [
            "Each model prefills the conversation for itself, one after the other.",
            "The conversation stays with its model.",
        ]
    if len(requests) == 1:
        return [
            f"One prefill for all {requests[0]}, in as many slots.",
            "Only the first answer stays cached; another one is prefilled with your next message.",
        ]
    return [
        f"{counted(len(requests), 'request')}, one after the other; the question stays cached between them.",
        "Not every answer stays cached; the choice shows what each one costs.",
    ]


def in_brief(price: Price) -> str:
    """A price in a few words: `prefills 12k tokens (~40 s)`; empty: free."""
    if price.tokens is None:
        return "prefill unknown"
    if price.tokens <= NOISE:
        return ""
    time = about(price.seconds)
    return f"prefills {roughly_known(price)}{short_count(price.tokens)} tokens{f' ({time})' if time else ''}"


def compaction_lines(
    plan: CompactionPlan, window: int | None, summary_seconds: float | None, read_seconds: float | None, undo: str
) -> list[str]:
    """What a compaction does and costs, in sentences. `undo`: what takes it back."""
    replaced = plan.turns - plan.keep
    turns = f"{count(replaced)} older turns" if replaced > 1 else "the first turn"
    kept = f"the last {count(plan.keep)} stay as they are" if plan.keep > 1 else "the last one stays as it is"
    lines = [
        f"A summary replaces {turns}; {kept}.",
        f"{count(plan.before)} → at most {counted(plan.after, 'token')}"
        + (f", in a window of {count(window)}." if window else "."),
    ]
    read = f"; the new branch is prefilled once, {duration(read_seconds)}" if read_seconds else ""
    if summary_seconds is None:
        lines.append("Time for the summary: not measured yet.")
    elif summary_seconds == 0:
        lines.append(f"The summary is ready{read}.")
    else:
        lines.append(f"The summary takes about {duration(summary_seconds)}{read}.")
    return [*lines, f"The old version is kept; {undo} goes back to it."]


def compaction_in_brief(seconds: float | None) -> str:
    """What a compaction takes, in a few words. None: not measured yet; 0: its summary is ready."""
    if seconds == 0:
        return "summary ready"
    return "writes a summary" if seconds is None else f"a summary, about {duration(seconds)}"


def summary_ready(key: str, after: int, seconds: float | None) -> str:
    """`Summary ready: /compact prefills 1.9k tokens, ~6 s`, once it is written at rest."""
    took = f", {about((seconds, seconds))}" if seconds else ""
    return f"Summary ready: {key} prefills {short_count(after)} tokens{took}"


def summary_offer(full: str, switch: str) -> str:
    """What is offered once, when a window is this full for the first time."""
    return f"Window {full} full · {switch} has a summary written in spare time"


COMPACTION_STOPPED = "Compaction stopped. Nothing has changed."


def compacted_words(turns: int, before: int, after: int, ms: float, *, repeats: bool) -> str:
    """`Compacted 11 turns: 7,120 → 1,240 tokens in 4.1 s`, and what shows the summary that is now in their place."""
    took = f" in {duration(ms / 1000)}" if ms else ""
    shows = "the summary repeats itself: /source shows it, /undo goes back" if repeats else "/source reads the summary"
    return f"Compacted {counted(turns, 'turn')}: {count(before)} → {count(after)} tokens{took} · {shows}"


def _price_line(price: Price) -> str:
    if price.tokens is None:
        return "Prefills an unknown number of tokens: the server reports none."
    if price.tokens <= NOISE:
        return "Nothing to prefill."
    time = about(price.seconds) or "time not measured yet"
    return f"Prefills {roughly_known(price)}{counted(price.tokens, 'token')} before the next answer ({time})."


def change_price(price: Price | None) -> str:
    """What changing the system prompt costs, in a line; None: it is as it was."""
    if price is None:
        return "Unchanged: nothing to prefill."
    if price.tokens is None:
        return "prefills the whole conversation, size unknown; the old version is kept"
    if price.tokens <= NOISE:
        return "free: nothing to prefill yet"
    tokens, time = roughly_known(price) + counted(price.tokens, "token"), about(price.seconds)
    return f"prefills {tokens}{f' ({time})' if time else ''}; the old version is kept"


def cheaper(instead: Alternative) -> str:
    """The cheaper way as a choice: `Append a correction instead (40 tokens, ~0.1 s)`."""
    return f"{_WAYS[instead.way]} ({cost_words(instead.tokens, instead.seconds)})"
