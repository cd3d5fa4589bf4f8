"""Why tokens were wasted: the kinds of causes, and a finding with its evidence. What is to be said of them is a value,
a kind and its arguments; `kvchat.text.findings` has the words.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Any

from msgspec import Struct

Argument = str | int | float | bool | None


class Cause(StrEnum):
    """What made a server prefill tokens again that a perfect one would have reused."""

    RESTARTED = auto()
    """The server was."""
    UNLOADED = auto()
    """The model slept or was unloaded."""
    OTHER_MODEL = auto()
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


class Reason(StrEnum):
    """What was seen, under a cause. The comment names the arguments."""

    OTHER_MODEL = auto()  # now, before: models
    SLEPT = auto()
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


class Statement(Struct, frozen=True):
    """Something to be said: its kind (a name in an enumeration such as `Reason`, in small letters) and its arguments by
    name."""

    kind: str
    arguments: tuple[tuple[str, Argument], ...] = ()

    def __getitem__(self, name: str) -> Argument:
        """An argument; None where it was not given."""
        return next((value for given, value in self.arguments if given == name), None)

    def is_a(self, kind: StrEnum) -> bool:
        """Whether this is its kind."""
        return self.kind == kind.name.lower()


def statement(kind: str, arguments: Mapping[str, object]) -> Statement:
    """A statement that was stored or written to a file; what is no argument is left out."""
    return Statement(
        kind,
        tuple(
            (name, value) for name, value in arguments.items() if value is None or isinstance(value, str | int | float)
        ),
    )


def stored(value: object) -> object:
    """A statement as the JSON array of its kind and its arguments by name; anything else as it is."""
    return [value.kind, dict(value.arguments)] if isinstance(value, Statement) else value


def statement_of(value: object) -> Statement | None:
    """A stored statement: a kind and its arguments; None for anything else."""
    match value:
        case [str(kind), dict(arguments)]:
            return statement(kind, arguments)
    return None


def as_fields(value: Struct) -> dict[str, Any]:
    """A value by its fields, and those in it too; the arguments of statements by name."""
    found = {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return found | {"arguments": dict(value.arguments)} if isinstance(value, Statement) else found


def _plain(value: object) -> object:
    match value:
        case Struct():
            return as_fields(value)
        case tuple() | list():
            return [_plain(part) for part in value]
        case dict():
            return {key: _plain(part) for key, part in value.items()}
    return value


def said(kind: StrEnum, **arguments: Argument) -> Statement:
    """The statement of this kind; arguments that are None are left out."""
    return Statement(kind.name.lower(), tuple((name, value) for name, value in arguments.items() if value is not None))


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
