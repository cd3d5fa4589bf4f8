"""Why tokens were wasted: a finding with what was seen and what helps. Each is a statement, a kind and its arguments;
`kvchat.text.findings` has the words.
"""

from __future__ import annotations

from enum import StrEnum, auto

from msgspec import Struct

from kvchat.figures.cause import Cause
from kvchat.values import Statement


class Reason(StrEnum):
    """What was seen, under a cause. The comment names the arguments."""

    OTHER_MODEL = auto()  # now, before: models
    SLEPT = auto()
    OTHER_WINDOW = auto()  # now, before: tokens
    OTHER_BUILD = auto()  # build
    RESTARTED = auto()
    LOADED_AGAIN = auto()
    OTHER_SERVER = auto()
    NOT_REPORTED = auto()
    CACHE_PROMPT_OFF = auto()
    OTHER_ADAPTERS = auto()
    NEVER_REUSES = auto()  # turns
    CUT = auto()  # prefilled, whole: tokens
    SHIFTED = auto()  # kept, whole: tokens
    OVERFLOWED = auto()  # tokens, window: tokens
    SHRUNK = auto()  # prefilled, before: tokens
    ACT = auto()  # act, message: an index, None: not known
    MESSAGE_CHANGED = auto()  # message, text: the first characters that differ
    ANSWER_TRIMMED = auto()
    ANSWER_CHANGED = auto()  # text
    TOOLS_CHANGED = auto()  # text
    OPTIONS_CHANGED = auto()  # text
    THOUGHTS_DROPPED = auto()
    EMPTY_THOUGHTS_DROPPED = auto()
    OTHER_DATE = auto()  # date
    SYSTEM_MOVED = auto()
    REWRITTEN = auto()  # message, text, token
    ANSWER_REWRITTEN = auto()
    RETOKENISED = auto()  # token: of the answer, None: from its first; call: whether it was one
    BLOCKS = auto()  # block: tokens
    CANCELLED = auto()
    WARM_UP = auto()
    SIDE_REQUEST = auto()  # name: of its kind
    FOREIGN_SLOT = auto()  # slot, tokens; since, seen: seconds since the epoch
    FOREIGN_TOKENS = auto()  # tokens
    FOREIGN = auto()
    NOT_LOOKED_UP = auto()  # tokens
    CACHE_FULL = auto()  # tokens
    OTHER_BRANCH = auto()
    OTHER_CONVERSATION = auto()  # name
    OTHER_CONVERSATION_OR_FULL = auto()  # name
    OTHER_SLOT = auto()  # slot, tokens, answered: the slot that did
    CHECKPOINT = auto()  # token, wanted: tokens, None: not known
    FEWER_THAN_EXPECTED = auto()  # cached, expected: tokens
    SAME_BEGINNING = auto()  # tokens
    OTHER_ANSWER = auto()  # number: which one was chosen, from 1
    REPORTED_COLD = auto()  # held: tokens
    UNKNOWN = auto()


class Remedy(StrEnum):
    """What helps. The comment names the arguments; `flag` is a setting of the server in use, ready to be typed."""

    KEEP_SNAPSHOTS = auto()
    SAVE_SLOTS = auto()  # flag
    SAVES_IN_APP = auto()
    STAYS_LOADED = auto()
    GO_BACK = auto()
    KEEP_WINDOW = auto()  # setting: of kvchat's own, None: the window is set at the server
    SLEEP_LATER = auto()  # words: a sentence
    MORE_MODELS = auto()  # flag
    REPORT = auto()  # words
    SWITCH_CACHING_ON = auto()  # words, or flag and program
    LOOK_FOR_PROXY = auto()
    SEND_CACHE_PROMPT = auto()
    KEEP_ADAPTERS = auto()
    REPORT_TO_US = auto()
    LARGER_WINDOW = auto()  # flag
    NO_SHIFT = auto()  # flag
    KEEP_REASONING = auto()  # known: whether the template has the switch
    WARM_UP_REASONING = auto()
    THINKING_ON = auto()
    FIX_DATE = auto()
    NO_SYSTEM_PROMPT = auto()
    KEEP_APART = auto()
    OTHER_SYSTEM_PROMPT = auto()
    HOST_CACHE = auto()  # flag
    MORE_SLOTS = auto()  # flag, embedded
    MORE_CACHE = auto()  # flag
    DETOUR = auto()
    NO_PIN = auto()
    WHOLE_WINDOW = auto()  # flag
    MORE_CHECKPOINTS = auto()  # flag
    CHECK_ANSWER = auto()  # flag, None: the built-in engine's, which has none


class Divergence(Struct, frozen=True):
    """Where the prompt parts from what the server held."""

    token: int
    """Index of the first token that differs."""
    message: int | None = None
    """Index of the message it lies in; None when not known."""
    held: str = ""
    """The first differing characters the server held, raw."""
    sent: str = ""
    """The first differing characters that were sent, raw."""


class Finding(Struct, frozen=True):
    """Why a turn wasted tokens, what was seen of it, and what helps."""

    cause: Cause
    tokens: int
    """Wasted tokens."""
    evidence: Statement
    """A `Reason`."""
    remedy: Statement | None = None
    """A `Remedy`; None when nothing helps or nothing is needed."""
    divergence: Divergence | None = None
