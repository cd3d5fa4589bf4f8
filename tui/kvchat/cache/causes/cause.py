"""Why tokens were read again: the kinds of causes, and a finding with its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """What made a server read tokens again that a perfect one would have reused."""

    RESTARTED = "server restarted"
    UNLOADED = "model unloaded"
    """It slept or was unloaded."""
    OTHER_MODEL = "other model"
    NOT_REPORTED = "not reported"
    CACHING_OFF = "caching off"
    OUR_BYTES = "our bytes changed"
    CUT = "prompt cut"
    """The server dropped old text without a word."""
    SHIFTED = "context shifted"
    REASONING = "reasoning dropped"
    """By the chat template, or its empty block."""
    TEMPLATE = "template changed the prompt"
    """The messages are the same; the chat template wrote an earlier one differently (a date, a moved system prompt)."""
    RETOKENISED = "reply re-tokenised"
    CANCELLED = "cancelled request"
    """The slot still computed one of ours, so that the server took another slot."""
    OWN_REQUEST = "own side request"
    OTHER_CLIENT = "another client"
    SLOT_TAKEN = "slot taken"
    """By another conversation of ours."""
    NOT_LOOKED_UP = "parked, not looked up"
    CACHE_FULL = "cache memory full"
    CHECKPOINT = "checkpoint limit"
    """The model cannot rewind to where the prompts part."""
    BLOCKS = "block size"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the prompt parts from what the server held."""

    token: int
    """Index of the first token that differs."""
    message: int | None = None
    """Index of the message it lies in; None when not known."""
    held: str = ""
    """The first differing characters the server held, raw."""
    sent: str = ""
    """The first differing characters that were sent, raw."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a turn had avoidable tokens: one sentence with its evidence, and what helps."""

    cause: Cause
    tokens: int
    """Avoidable tokens."""
    seconds: float | None
    sentence: str
    remedy: str = ""
    """What to do about it, one sentence; empty when nothing helps or nothing is needed."""
    divergence: Divergence | None = None
