"""The figures of some days in words, for `kvchat stats`, its picture and F2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.text.findings import cause_name
from kvchat.text.format import count, counted, duration, percent

if TYPE_CHECKING:
    from kvchat.figures.accounting import Totals
    from kvchat.figures.stats import Stats


LEGEND = "tokens cached", "new", "wasted"
"""What becomes of the tokens of prompts, in the order of the bars."""


REUSE = "cached share of what was sent before; new text does not count"
"""What the figure is: C / (P - N), unlike the share of a whole prompt in an answer's title."""


def days_words(days: int) -> str:
    """`last 7 days`, `today`."""
    return f"last {days} days" if days > 1 else "today"


def headline(stats: Stats) -> tuple[str, str]:
    """The figure that counts most of what is known, and what it is: `2 min 17 s`, `of prefill saved`."""
    totals = stats.totals
    if totals.unknown == totals.turns:
        return "reuse unknown:", "too little reported by the servers"
    if totals.seconds_saved is None:
        return count(totals.cached_tokens), "tokens from the cache"
    return duration(totals.seconds_saved), "of prefill saved"


def nothing(days: int) -> str:
    """That there was no answer."""
    return "No answers today; --days 7 looks at the last week." if days == 1 else f"No answers in the last {days} days."


def unreported(days: int) -> str:
    """That of no answer it is known how much was reused."""
    return f"The servers reported too little to tell what was reused ({days_words(days)}): there is nothing to draw."


def reuse_words(totals: Totals) -> str:
    """`93 %`, or why there is no such figure."""
    if not totals.turns:
        return "no answers"
    if totals.unknown == totals.turns:
        return "unknown"
    return percent(totals.reuse) if totals.reuse is not None else "all new"


def reuse_cells(totals: Totals, cells: int) -> int | None:
    """How many of the cells of a bar are cached; the rest was wasted. None: there was nothing to reuse, or it is not
    known."""
    if totals.reuse is None:
        return None
    return min(round(totals.reuse * cells), cells - (totals.reuse < 0.995))


def waste_rows(stats: Stats) -> list[tuple[str, str, str]]:
    """The causes of waste, the most expensive first: `server restarted`, `2 answers`, `3,100 tokens`."""
    found, what = sorted(stats.misses.items(), key=lambda item: (-item[1][1], item[0])), requests_name(stats.totals)
    return [(cause_name(cause), counted(turns, what), counted(tokens, "token")) for cause, (turns, tokens) in found]


def answers_words(totals: Totals) -> str:
    """`43 answers`, `43 answers in 61 requests` where some took steps."""
    requests = f" in {counted(totals.turns, 'request')}" if totals.steps else ""
    return counted(totals.answers, "answer") + requests


def unknown_words(totals: Totals) -> str:
    """`3 of 43 answers`, `3 of 61 requests`: of these the servers reported too little; empty where all are known."""
    return f"{totals.unknown:,} of {counted(totals.turns, requests_name(totals))}" if totals.unknown else ""


def requests_name(totals: Totals) -> str:
    """What is counted: an answer is one request unless it took steps."""
    return "request" if totals.steps else "answer"
