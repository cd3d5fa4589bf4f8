"""The queue of a conversation, in words."""

from __future__ import annotations

from kvchat.prompt.queued import HoldKind

_HOLDS: dict[HoldKind, str] = {
    HoldKind.STOPPED: "answer stopped",
    HoldKind.FAILED: "answer failed",
    HoldKind.LENGTH: "answer cut at max tokens",
    HoldKind.CONTEXT_FULL: "window full",
    HoldKind.INTERRUPTED: "answer interrupted",
    HoldKind.EMPTY: "answer was empty",
    HoldKind.TOO_LONG: "too long for the window",
    HoldKind.NEEDS_YES: "needs your yes",
    HoldKind.NOT_SENT: "not sent",
    HoldKind.EARLIER: "kept from earlier",
}


def held_reason(kind: HoldKind) -> str:
    """What holds a queue, in a few words: `answer stopped`."""
    return _HOLDS[kind]


def queued_words(messages: int) -> str:
    """How many messages wait, in lists: `2 queued`."""
    return f"{messages:,} queued"


def held_words(kind: HoldKind, send: str) -> str:
    """`Queue held: answer stopped · Enter sends · ↑ edits`. `send`: the key that sends."""
    return f"Queue held: {_HOLDS[kind]} · {send} sends · ↑ edits"
