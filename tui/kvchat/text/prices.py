"""Prices of acts, in words.

The rule: a price that is not known is said to be unknown, and one from few measurements is said as a range.
"""

from __future__ import annotations

from kvchat.cache.accounting import NOISE
from kvchat.cache.price import Act, Alternative, Price, Way
from kvchat.text.cache import cost_words
from kvchat.text.format import about, counted, duration, short_count

FREE = "None of these touches the cache: nothing to prefill."
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
    lines = [_price_line(price)]
    if act in _KEEPS:
        lines.append("The old version is kept.")
    return lines


def in_brief(price: Price) -> str:
    """A price in a few words: `prefills 12k tokens (~40 s)`; empty: free."""
    if price.tokens is None:
        return "prefill unknown"
    if price.tokens <= NOISE:
        return ""
    time = about(price.seconds)
    return f"prefills {short_count(price.tokens)} tokens{f' ({time})' if time else ''}"


def compaction_in_brief(seconds: float | None) -> str:
    """What a compaction takes, in a few words. None: not measured yet; 0: its summary is written already."""
    if seconds == 0:
        return "summary ready"
    return "writes a summary" if seconds is None else f"a summary, at most {duration(seconds)}"


def _price_line(price: Price) -> str:
    if price.tokens is None:
        return "Prefills an unknown number of tokens: the server reports none."
    if price.tokens <= NOISE:
        return "Nothing to prefill."
    return f"Prefills ░ {counted(price.tokens, 'token')} ({about(price.seconds) or 'time not measured yet'})"


def change_price(price: Price | None) -> str:
    """What changing the system prompt costs, in a line; None: it is as it was."""
    if price is None:
        return "Unchanged: nothing to prefill."
    if price.tokens is None:
        return "░ prefills the whole conversation, size unknown; the old version is kept"
    if price.tokens <= NOISE:
        return "free: nothing to prefill yet"
    time = about(price.seconds)
    return f"░ prefills {counted(price.tokens, 'token')}{f' ({time})' if time else ''}; the old version is kept"


def cheaper(instead: Alternative) -> str:
    """The cheaper way as a choice: `Append a correction instead (40 tokens, ~0.1 s)`."""
    return f"{_WAYS[instead.way]} ({cost_words(instead.tokens, instead.seconds)})"
