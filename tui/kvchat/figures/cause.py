"""What tokens are wasted by."""

from __future__ import annotations

from enum import StrEnum, auto


class Cause(StrEnum):
    """What made a server prefill tokens again that a perfect one would have reused."""

    RESTARTED = auto()
    """The server was."""
    UNLOADED = auto()
    """The model slept or was unloaded."""
    OTHER_MODEL = auto()
    OTHER_WINDOW = auto()
    """The model was loaded with another window."""
    NOT_REPORTED = auto()
    CACHING_OFF = auto()
    OUR_BYTES = auto()
    """What was sent before changed."""
    CUT = auto()
    """The server dropped old text unasked."""
    SHIFTED = auto()
    """The context was."""
    REASONING = auto()
    """Dropped by the chat template, or its empty block was."""
    TEMPLATE = auto()
    """The messages are the same; the chat template wrote an earlier one differently (a date, a moved system prompt)."""
    RETOKENISED = auto()
    """The last answer was."""
    CANCELLED = auto()
    """The slot still computed one of ours, so that the server took another slot."""
    OWN_REQUEST = auto()
    """A side request of ours took the slot."""
    OTHER_CLIENT = auto()
    SLOT_TAKEN = auto()
    """By another conversation of ours."""
    NOT_LOOKED_UP = auto()
    """A state in the host cache was."""
    CACHE_FULL = auto()
    CHECKPOINT = auto()
    """The model cannot rewind to where the prompts part."""
    BLOCKS = auto()
    OTHER_ANSWER = auto()
    """Of several to one request the user chose one whose state the server does not keep."""
    REPORTED_COLD = auto()
    """The server says that it reused nothing, though it held the prompt's beginning: it may have answered another
    one."""
    UNKNOWN = auto()
