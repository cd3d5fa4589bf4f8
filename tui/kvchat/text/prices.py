"""Prices of acts, in words."""

from __future__ import annotations

from kvchat.cache.price import Alternative, Way
from kvchat.text.cache import cost_words

_WAYS: dict[Way, str] = {
    Way.NEW_CONVERSATIONS: "Leave it here and set it for new conversations",
    Way.NEXT_MESSAGE: "Say it in your next message instead",
    Way.DISREGARD: "Append a correction, such as “disregard that”",
    Way.CORRECTION: "Append a correction instead",
    Way.FORK: "Fork instead",
}


def cheaper(instead: Alternative) -> str:
    """The cheaper way as a choice: `Append a correction instead (40 tokens, about 0.11 s)`."""
    return f"{_WAYS[instead.way]} ({cost_words(instead.tokens, instead.seconds)})"
