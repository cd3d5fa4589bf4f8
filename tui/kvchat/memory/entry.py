"""What a memory is, what can happen to it, which message it came from, and what can go wrong. Pure values.

An entry's id never changes and is never used again. Every change of an entry is a `Change` that keeps what was before,
so that it can be undone. Nothing but `MemoryTrouble` leaves `Memories`: a caller never sees an error of a file, of
SQLite or of the index.
"""

from __future__ import annotations

import secrets
from enum import StrEnum

from msgspec import Struct

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Without letters that are taken for others."""
PROFILE = "profile.md"
"""The page whose lines go into the first turn of every new conversation. Nothing gets there unreviewed."""
BY_HAND = "hand"
"""`Entry.by` of what the user wrote into a file."""
BY_YOU = "you"
"""`Entry.by` of what the user asked kvchat to remember."""


class Kind(StrEnum):
    """What a memory is about."""

    IDENTITY = "identity"
    """Who the user is: name, place, language, work."""
    PREFERENCE = "preference"
    PROJECT = "project"
    PERSON = "person"
    """Somebody else in the user's life."""
    DECISION = "decision"
    SKILL = "skill"
    """What the user knows or can do, or is learning."""
    FACT = "fact"
    """Anything else."""


class Status(StrEnum):
    """The state of an entry. Only LIVE ones are in the files, are found and are recalled."""

    LIVE = "live"
    PENDING = "pending"
    """Pending approval; in no file."""
    DELETED = "deleted"
    """By the user. Its text is not noted again."""
    SUPERSEDED = "superseded"
    """A newer entry says it better, or says otherwise."""


class Act(StrEnum):
    """What happened to an entry."""

    NOTED = "noted"
    """Extracted from a conversation."""
    ADDED = "added"
    """The user asked for it, or wrote it into a file."""
    PROPOSED = "proposed"
    ACCEPTED = "accepted"
    EDITED = "edited"
    MOVED = "moved"
    DELETED = "deleted"
    MERGED = "merged"
    """Superseded by one that says the same."""
    CORRECTED = "corrected"
    """Superseded by one that says otherwise."""
    SUMMARISED = "summarised"
    """Superseded by one that says it more shortly, with others."""
    RESTORED = "restored"
    """A change was undone."""


class Entry(Struct, frozen=True):
    """One memory: a line of a file, or a few."""

    id: str
    kind: Kind
    text: str
    """Plain words; a newline only where the user wrote one."""
    page: str
    """Its file, relative to the folder, with forward slashes: `profile.md`, `topics/projects.md`."""
    created: float
    """Seconds since the epoch."""
    status: Status = Status.LIVE
    confidence: float | None = None
    """From 0 to 1, as found at the extraction; None where the user wrote it."""
    conversation: str = ""
    """The conversation it came from; empty: none."""
    nodes: tuple[str, ...] = ()
    """The messages it came from."""
    by: str = BY_YOU
    """Who wrote it: BY_YOU, BY_HAND, or the model's name."""
    superseded_by: str = ""
    """The entry that took its place."""
    edited: bool = False
    """Whether the user changed its line in the file; kvchat never rewrites such a line by itself."""

    @property
    def is_skill(self) -> bool:
        """Whether it is a procedure: when, the steps, and why."""
        return self.page.startswith("skills/")

    @property
    def is_episode(self) -> bool:
        """Whether it sums up a part of a conversation. It is for the user to read and is never recalled."""
        return self.page.startswith("episodes/")

    @property
    def is_users_own(self) -> bool:
        """Whether the user wrote, asked for or edited the words: kvchat changes none of these by itself."""
        return self.edited or self.by in (BY_YOU, BY_HAND)


class Change(Struct, frozen=True):
    """One change of one entry. `before` None: it is new; `after` None: never."""

    act: Act
    before: Entry | None
    after: Entry
    at: float
    """Seconds since the epoch."""
    session: str = ""
    """The run of kvchat in which it happened."""
    why: str = ""
    """A few words for the user, where the act does not say it all."""
    seq: int = 0
    """Its number in the history; 0 before it is stored."""
    undone: bool = False


class Why(StrEnum):
    """Why something that a model found is not noted, or only after the user's approval. `text.memory` has the words and
    explains each value."""

    # An answer that is none
    NO_TEXT = "no_text"
    NO_JSON = "no_json"
    # What no memory is, whoever said it
    EMPTY = "empty"
    CONTROL = "control"
    TOKENS = "tokens"
    MARKUP = "markup"
    SECRET = "secret"
    LONG = "long"
    QUESTION = "question"
    UNFINISHED = "unfinished"
    UNNAMED = "unnamed"
    MANY = "many"
    # What the user did not say so
    NOTHING = "nothing"
    UNSAID = "unsaid"
    SCATTERED = "scattered"
    NOWHERE = "nowhere"
    TURNED = "turned"
    NUMBER = "number"
    COUNT = "count"
    NAME = "name"
    # What the memory refuses
    WORDLESS = "wordless"
    DELETED = "deleted"
    # What the user is asked about first
    ADDRESS = "address"
    ORDER = "order"
    IDENTITY = "identity"
    PASTED = "pasted"
    BOTH = "both"
    OF_OTHERS = "of_others"
    SIGNS = "signs"
    NOT_YOU = "not_you"
    REPLACES = "replaces"
    OF_PROFILE = "of_profile"
    WITH_ADDRESS = "with_address"
    OWN_LINE = "own_line"
    PROCEDURE = "procedure"
    UNWRITTEN = "unwritten"


class ChangeReason(Struct, frozen=True):
    """Why, and what it is about: a number, a name, words; empty: the kind says it all."""

    why: Why
    what: str = ""


class Fact(Struct, frozen=True):
    """What an extraction found, checked, before it is an entry."""

    kind: Kind
    text: str
    confidence: float
    """From 0 to 1: how well the user's own words bear it out, or the model's own figure where that is lower."""
    nodes: tuple[str, ...]
    """The messages it came from."""
    topic: str = ""
    """One or two words for the page, where the user named a project or a subject."""
    replaces: str = ""
    """The id of the entry that it corrects."""
    review: ChangeReason | None = None
    """Why the user is asked first; None: no need."""
    page: str = ""
    """Where it is put, whatever its kind and topic; its lines then stay as they are."""


def new_id() -> str:
    """An id for a new entry: `m` and 8 letters or digits."""
    return "m" + "".join(secrets.choice(_ALPHABET) for _ in range(8))


class MemoryTrouble(Exception):  # noqa: N818
    """Something that was asked of the memory cannot be done. Nothing that was remembered is lost by it."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
