"""Saved states in words: those that the person keeps, and why a snapshot is not saved, not used or of no use."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import TYPE_CHECKING

from kvchat.cache.causes.cause import Argument, Statement
from kvchat.text.format import counted, size

if TYPE_CHECKING:
    from kvchat.cache.report import KeptRoom, KeptState

KEPT = "Kept · saved while the server is idle"
KEPT_HERE = "Kept up to this answer · saved while the server is idle"
RELEASED = "No longer kept"


def kept_words(state: KeptState) -> str:
    """What is saved: `5,120 tokens, 118 MB`, or that nothing is yet."""
    if state.tokens is None:
        return "not saved yet"
    words = f"{counted(state.tokens, 'token')}, {size(state.size)}"
    if not state.fits:
        return f"{words}, of another model, window or engine"
    return words if state.complete else f"{words}, without the last turns"


def kept_short(state: KeptState) -> str:
    """The same for a line of the list: `118 MB`."""
    return "not saved yet" if state.size is None else size(state.size)


def room_words(room: KeptRoom) -> str:
    """`3 kept, 354 MB of 4.0 GB`."""
    return f"{len(room.states)} kept, {size(room.size)} of {size(room.most)}" if room.states else "none"


class SnapshotProblem(StrEnum):
    """The comment names the arguments; with `given_up`, snapshots are no longer used for that model and build."""

    NOT_KEPT = auto()
    OTHER_SERVER = auto()
    NO_SERVER = auto()
    NO_FOLDER = auto()
    NO_PROOF = auto()
    FOLDER_UNUSABLE = auto()  # reason
    NO_WRITE = auto()  # sentence
    QUIT_TOO_LONG = auto()  # seconds
    # saving
    NOT_SAVED = auto()
    ABOVE_BOUND = auto()  # needed, most: bytes
    DISK_FULL = auto()  # least: bytes that stay free
    SHORT = auto()  # size, whole: bytes, folder
    NO_ROOM = auto()
    ALL_KEPT = auto()  # names: how many
    KEPT_FULL = auto()  # title; room: bytes; release: the title of another kept one, or empty; frees: its bytes
    # restoring
    NO_SLOT = auto()  # slot
    UNREADABLE = auto()
    CANNOT_READ = auto()  # reason
    OTHER_MODEL = auto()
    OTHER_SHAPE = auto()  # shape, now
    OTHER_BUILD = auto()
    CUT = auto()  # size, whole: bytes
    DAMAGED = auto()
    GONE = auto()
    SILENT = auto()
    NO_TOKENS = auto()
    REFUSED = auto()
    CHANGED = auto()
    UNUSED = auto()
    UNPROVED = auto()


GIVEN_UP = "Snapshots are no longer used for this model with this build of the server."
_OF_CONVERSATION = "The snapshot of this conversation"
_INSTEAD = "the conversation is read by the server instead."

_SENTENCES: dict[str, str] = {
    SnapshotProblem.NOT_KEPT: "No snapshots are kept.",
    SnapshotProblem.OTHER_SERVER: "This server cannot save states; the built-in engine can.",
    SnapshotProblem.NO_SERVER: "No server is in use whose slots can be saved.",
    SnapshotProblem.NO_FOLDER: "The server was started without a folder for slots.",
    SnapshotProblem.NO_PROOF: "The server gives no log-probabilities, by which a snapshot is proved: none are kept.",
    SnapshotProblem.FOLDER_UNUSABLE: "The folder of snapshots cannot be used: {reason}.",
    SnapshotProblem.NO_WRITE: "{sentence}",
    SnapshotProblem.QUIT_TOO_LONG: "Not every conversation was saved: the server took longer than {seconds:.0f} s.",
    SnapshotProblem.NOT_SAVED: "The server did not save a snapshot.",
    SnapshotProblem.ABOVE_BOUND: "The snapshot would take {needed}; all of them may take {most}. It was not saved.",
    SnapshotProblem.DISK_FULL: "No snapshot is saved: less than {least} would stay free on the disk.",
    SnapshotProblem.SHORT: "The server wrote {size:,} of {whole:,} bytes of a snapshot into {folder}: it was not kept.",
    SnapshotProblem.NO_ROOM: "The snapshot is too large to be kept.",
    SnapshotProblem.ALL_KEPT: "No state is saved: the {names} that this server has room for are kept. Release one.",
    SnapshotProblem.KEPT_FULL: "Not saved anew: “{title}”. Kept states may take {room}. {remedy}",
    SnapshotProblem.NO_SLOT: "The server has no slot {slot}.",
    SnapshotProblem.UNREADABLE: f"{_OF_CONVERSATION} cannot be read; {_INSTEAD}",
    SnapshotProblem.CANNOT_READ: f"{_OF_CONVERSATION} cannot be read ({{reason}}); {_INSTEAD}",
    SnapshotProblem.OTHER_MODEL: f"{_OF_CONVERSATION} cannot be used: it was made with another model; {_INSTEAD}",
    SnapshotProblem.OTHER_SHAPE: f"{_OF_CONVERSATION} cannot be used: it was made for another shape of the cache "
    f"({{shape}}; the server now has {{now}}); {_INSTEAD}",
    SnapshotProblem.OTHER_BUILD: f"{_OF_CONVERSATION} cannot be used: it was made by another build of the server; "
    f"{_INSTEAD}",
    SnapshotProblem.CUT: f"{_OF_CONVERSATION} is refused: it is cut short or has grown ({{size:,}} of {{whole:,}} "
    f"bytes); {_INSTEAD}",
    SnapshotProblem.DAMAGED: f"{_OF_CONVERSATION} is refused: it is damaged; {_INSTEAD}",
    SnapshotProblem.GONE: f"{_OF_CONVERSATION} is refused: it is no longer there; {_INSTEAD}",
    SnapshotProblem.SILENT: "The server does not answer; the snapshot is kept.",
    SnapshotProblem.NO_TOKENS: f"{_OF_CONVERSATION} cannot be proved: its tokens are not known; {_INSTEAD}",
    SnapshotProblem.REFUSED: f"The server refused the snapshot of a conversation; {_INSTEAD}",
    SnapshotProblem.CHANGED: f"{_OF_CONVERSATION} did not come back as it was saved; {_INSTEAD}",
    SnapshotProblem.UNUSED: f"The server took back a snapshot and reuses nothing of it; {_INSTEAD}",
    SnapshotProblem.UNPROVED: f"{_OF_CONVERSATION} could not be proved: the server did not answer; {_INSTEAD}",
}


def snapshot_sentence(problem: Statement | None) -> str:
    """The problem as one sentence, or two where snapshots were given up for it; empty for none, and for one of a later
    version."""
    if problem is None:
        return ""
    words = _with_sizes(dict(problem.arguments))
    if problem.kind == SnapshotProblem.KEPT_FULL:
        words["remedy"] = room_remedy(str(words.get("release", "")), words.get("frees"))
    try:
        sentence = _SENTENCES[problem.kind].format_map(words)
    except (KeyError, TypeError, ValueError):  # it was in a file
        sentence = ""
    return f"{sentence} {GIVEN_UP}".lstrip() if words.get("given_up") else sentence


def _with_sizes(arguments: Mapping[str, Argument]) -> dict[str, Argument]:
    words = {
        name: size(value) if name in ("room", "frees") and isinstance(value, int) else value
        for name, value in arguments.items()
    }
    return {
        name: _size(value) if name in ("needed", "most", "least") and isinstance(value, int) else value
        for name, value in words.items()
    }


def room_remedy(release: str, frees: object) -> str:
    """What makes room for a kept state: a title to release, with what it frees, and the setting."""
    first = f"Release “{release}” ({frees}) or raise" if release else "Raise"
    return f"{first} cache.kept_gb."


def _size(octets: int) -> str:
    return f"{octets / 2**30:.1f} GiB" if octets >= 2**30 else f"{octets / 2**20:.1f} MiB"
