"""Prices of acts, in words.

The rule: a price that is not known is said to be unknown, and one from few measurements is said as a range.
"""

from __future__ import annotations

from kvchat.cache.accounting import NOISE
from kvchat.cache.price import Act, Alternative, Price, Way
from kvchat.text.cache import cost_words
from kvchat.text.format import about, counted, duration, short_count

FREE = "None of these touches the cache: nothing is prefilled again."
_READ: dict[Act | None, str] = {
    "edit": "The edited message is prefilled again",
    "delete": "Everything after it is prefilled again",
    "system": "The whole conversation is prefilled again",
    "template": "The whole conversation is prefilled again",
    "model": "The other model reads the whole conversation",
    "regenerate": "The question is prefilled again",
    "continue": "The answer is prefilled again",
}
_KEEPS: frozenset[Act] = frozenset({"edit", "regenerate", "continue", "delete", "system"})

_WAYS: dict[Way, str] = {
    Way.NEW_CONVERSATIONS: "Leave it here and set it for new conversations",
    Way.NEXT_MESSAGE: "Say it in your next message instead",
    Way.DISREGARD: "Append a correction, such as “disregard that”",
    Way.CORRECTION: "Append a correction instead",
    Way.FORK: "Fork instead",
}


def price_lines(price: Price, act: Act | None = None) -> list[str]:
    """The price of an act in one or two sentences; glyphs as on every screen."""
    lines = [_price_line(price, _READ.get(act, "Prefilled again"))]
    if act in _KEEPS:
        lines.append("The branch you leave stays.")
    return lines


def in_brief(price: Price) -> str:
    """A price in a few words: `prefills 12k tokens, about 40 s`; empty: free."""
    if price.tokens is None:
        return "prefill unknown"
    if price.tokens <= NOISE:
        return ""
    time = about(price.seconds)
    return f"prefills {short_count(price.tokens)} tokens{', ' + time if time else ''}"


def compaction_in_brief(seconds: float | None) -> str:
    """What a compaction takes, in a few words. None: not measured yet."""
    return "writes a summary" if seconds is None else f"a summary, at most {duration(seconds)}"


def _price_line(price: Price, subject: str) -> str:
    if price.tokens is None:
        return f"{subject}: how many tokens is unknown, the server has not reported it."
    if price.tokens <= NOISE:
        return "Nothing is prefilled again."
    tokens = f"{subject}:  ░ {counted(price.tokens, 'token')}"
    time = about(price.seconds)
    return f"{tokens}, {time}" if time else f"{tokens}; how long that takes is not measured yet"


def change_price(price: Price | None) -> str:
    """What changing the system prompt costs, in a line; None: it is as it was."""
    if price is None:
        return "Unchanged: nothing is prefilled again."
    if price.tokens is None:
        return "░ re-reads the whole conversation, how much is unknown; the old branch stays"
    if price.tokens <= NOISE:
        return "free: nothing has been read yet"
    time = about(price.seconds)
    return f"░ re-reads {counted(price.tokens, 'token')}{', ' + time if time else ''}; the old branch stays"


def cheaper(instead: Alternative) -> str:
    """The cheaper way as a choice: `Append a correction instead (40 tokens, about 0.11 s)`."""
    return f"{_WAYS[instead.way]} ({cost_words(instead.tokens, instead.seconds)})"
