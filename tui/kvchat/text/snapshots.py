"""Saved states in words: those that the user keeps, and why a snapshot is not saved, not used or of no use."""

from __future__ import annotations

from enum import UNIQUE, StrEnum, verify
from typing import TYPE_CHECKING

from kvchat.text.format import counted, filled, size
from kvchat.values import Statement

if TYPE_CHECKING:
    from kvchat.reports.cache_report import KeptRoom, KeptState

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


GIVEN_UP = "Snapshots are no longer used for this model with this build of the server."
_OF_CONVERSATION = "The snapshot of this conversation"
_INSTEAD = "the conversation is read by the server instead."


@verify(UNIQUE)
class SnapshotProblem(StrEnum):
    """Sizes are bytes. With the argument `given_up`, snapshots are no longer used for that model and build."""

    NOT_KEPT = "No snapshots are kept."
    OTHER_SERVER = "This server cannot save states; the built-in engine can."
    NO_SERVER = "No server is in use whose slots can be saved."
    NO_FOLDER = "The server was started without a folder for slots."
    NO_PROOF = "The server gives no log-probabilities, by which a snapshot is proved: none are kept."
    FOLDER_UNUSABLE = "The folder of snapshots cannot be used: {reason}."
    NO_WRITE = "{sentence}"
    QUIT_TOO_LONG = "Not every conversation was saved: the server took longer than {seconds:.0f} s."
    # saving
    NOT_SAVED = "The server did not save a snapshot."
    ABOVE_BOUND = "The snapshot would take {needed:binary}; all of them may take {most:binary}. It was not saved."
    DISK_FULL = "No snapshot is saved: less than {least:binary} would stay free on the disk."
    SHORT = "The server wrote {size:,} of {whole:,} bytes of a snapshot into {folder}: it was not kept."
    NO_ROOM = "The snapshot is too large to be kept."
    ALL_KEPT = "No state is saved: the {names} that this server has room for are kept. Release one."
    KEPT_FULL = (
        "Not saved again: “{title}”. Kept states may take {room:size}. <release:Release “{release}” ({frees:size}) or "
        "raise|Raise> cache.kept_gb."
    )
    # restoring
    NO_SLOT = "The server has no slot {slot}."
    UNREADABLE = f"{_OF_CONVERSATION} cannot be read; {_INSTEAD}"
    CANNOT_READ = f"{_OF_CONVERSATION} cannot be read ({{reason}}); {_INSTEAD}"
    OTHER_MODEL = f"{_OF_CONVERSATION} cannot be used: it was made with another model; {_INSTEAD}"
    OTHER_SHAPE = (
        f"{_OF_CONVERSATION} cannot be used: it was made for another shape of the cache ({{shape}}; the server now has "
        f"{{now}}); {_INSTEAD}"
    )
    OTHER_BUILD = f"{_OF_CONVERSATION} cannot be used: it was made by another build of the server; {_INSTEAD}"
    CUT = f"{_OF_CONVERSATION} is refused: it is cut short or has grown ({{size:,}} of {{whole:,}} bytes); {_INSTEAD}"
    DAMAGED = f"{_OF_CONVERSATION} is refused: it is damaged; {_INSTEAD}"
    GONE = f"{_OF_CONVERSATION} is refused: it is no longer there; {_INSTEAD}"
    SILENT = "The server does not answer; the snapshot is kept."
    NO_TOKENS = f"{_OF_CONVERSATION} cannot be proved: its tokens are not known; {_INSTEAD}"
    REFUSED = f"The server refused the snapshot of a conversation; {_INSTEAD}"
    CHANGED = f"{_OF_CONVERSATION} did not come back as it was saved; {_INSTEAD}"
    UNUSED = f"The server took back a snapshot and reuses nothing of it; {_INSTEAD}"
    UNPROVED = f"{_OF_CONVERSATION} could not be proved: the server did not answer; {_INSTEAD}"


def snapshot_sentence(problem: Statement | None) -> str:
    """The problem as one sentence, or two where snapshots were given up for it; empty for none, and for one of a later
    version."""
    if problem is None:
        return ""
    try:
        sentence = filled(SnapshotProblem[problem.kind.upper()], dict(problem.arguments))
    except (KeyError, TypeError, ValueError):  # it was in a file
        sentence = ""
    return f"{sentence} {GIVEN_UP}".lstrip() if problem["given_up"] else sentence
