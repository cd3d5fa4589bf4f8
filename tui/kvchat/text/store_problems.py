"""What can go wrong in the store and the search index, in words."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_UNVERIFIED = "The backup {path} could not be verified and was removed"


class StoreProblem(StrEnum):
    """`where`, `path`: a file or folder. `error`: what SQLite said."""

    # a conversation, a message, an import
    UNKNOWN = 'No conversation "{id}". IDs look like 4097b73d (kvchat list).'
    AMBIGUOUS = 'Several conversations begin with "{id}". Give more digits of the id.'
    IN_TRASH = "This conversation is in the trash, so nothing was sent."
    DELETED = "This conversation was deleted for good, so nothing of it was stored."
    REPLY_DIFFERS = "The reply that this was to follow has not ended, or ended otherwise than it was known."
    GONE_ON = "Another kvchat has gone on from here."
    NOT_QUEUED = "This message is not in the queue any more: another window sent it, or took it out."
    NO_IMPORT = "There is no import {id} that could be undone."
    NO_IMPORTS = "There is no import that could be undone."
    BAD_NAME = "{path} cannot be indexed: its name is not valid text. Rename it."
    # the file
    OLD_SQLITE = "kvchat needs SQLite {oldest} or newer; this Python has {version}. Use a newer Python."
    NO_FILE = "{path} is not a file. Move it away, then start kvchat again."
    NEWER = ("{path} was written by a newer kvchat (version {version} of its format; this one knows {known}). Use the "
             "newer kvchat. Nothing was changed.")
    CLOSED = "The store is closed. Start kvchat again."
    REPLACED = ("{path} was moved, deleted or replaced while kvchat was using it. Put it back, or export what is on "
                "the screen; then start kvchat again.")
    HELD = ("Another kvchat has been writing for {seconds:.0f} seconds ({path} is locked). Close it, or wait until it "
            "is done.")
    FOLDER_HELD = ("Another kvchat has been writing in {folder} for {seconds:.0f} seconds. Close it, or wait until it "
                   "is done.")
    UNUSABLE = "{where} cannot be used: {reason}. Check its permissions and the free space of its disk."
    DAMAGED = ("{where} is damaged ({error}). Start kvchat again: the file is moved aside and every message that can "
               "be read is saved.")
    LOCKED = "{where} is locked by another program. Close that program, or wait until it is done."
    DISK_FULL = "There is no room for {where}: its disk is full. Free some space, then try again."
    READ_ONLY = "{where} is read-only. Give yourself write permission on the file and its folder."
    FAILING = ("{where} cannot be read or written ({error}). Check its disk, its folder's permissions and the free "
               "space.")
    NOT_WHOLE = ("The conversation is no longer whole in {where} ({error}): another kvchat may have emptied the trash. "
                 "Open the conversation again.")
    REFUSED = "{where} refused an operation ({error})."
    UNVERIFIED = f"{_UNVERIFIED}."
    UNVERIFIED_FOR = f"{_UNVERIFIED} ({{error}})."
    BESIDE_OTHERS = ("{path} {damage}, and another kvchat is using it. Close every kvchat, then start it again: what "
                     "can be read will be saved.")
    # the search index
    INDEX_BUSY = "The search index is in use by another kvchat; try again."
    INDEX_UNUSABLE = "The search index cannot be used; until it can, it is held in memory."
    NO_INDEX = "{path} is not a search index of kvchat. Move it away."
    NEWER_INDEX = "{path} is the search index of a newer kvchat."
    INDEX_DAMAGED = "{path} is damaged ({error})."
    INDEX_REPLACED = "{path} was deleted or replaced."
    INDEX_NO_FILE = "{path} is not a file. Move it away."


class Damage(StrEnum):
    """What is wrong with a database, as what follows its name."""

    DELETED = "was deleted"
    EMPTY = "was empty"
    HEADER = "was not a database (its header is damaged)"
    SCHEMA = "was damaged (its schema cannot be read)"
    TABLES = "was damaged (tables are missing)"
    FOREIGN = "was not a database of kvchat"
    FOUND = "was damaged ({error})"
    LOG = "has lost a part of its log: what was said last may be missing"


def moved_aside(database: Path, damage: str, place: Path, saved: str, offer: str) -> str:
    """That a database was put into `place`, what was `saved` of it, and the way back."""
    return f"{database} {damage}. It was moved to {place}. {saved} {offer}"


def saved_words(messages: int, conversations: int, lost: int) -> str:
    """What could be read of a damaged database; `lost`: rows that could not."""
    if not messages and not conversations:
        return "Nothing could be read from it; a new database was begun."
    rest = f"at least {lost} rows could not be read" if lost else "as many as could be found"
    return f"{messages} messages in {conversations} conversations were saved into a new database, {rest}."


def log_moved(database: Path, place: Path, offer: str) -> str:
    return (f"{database} is gone, but its log was there: it was moved to {place} and a new database was begun. {offer}")


def log_damaged(database: Path, offer: str) -> str:
    return (f"kvchat ended without closing {database}, and the end of its log is damaged: what was said last before "
            f"that is missing. {offer}")


def finished(database: Path, place: Path, offer: str) -> str:
    """That a database which an earlier run has saved is in use now."""
    return f"{database} was damaged. It was moved to {place}, and what could be read is in a new database. {offer}"


def backup_words(newest: Path | None, database: Path) -> str:
    """The way back."""
    if newest is None:
        return "There is no backup."
    return f"The newest backup is {newest}: to go back to it, end kvchat and copy it to {database}."


def recovered_words(answers: int) -> str:
    """That answers were running when their kvchat ended."""
    return ("kvchat ended during an answer; its text so far is kept." if answers == 1 else
            f"kvchat ended during {answers} answers; their text so far is kept.")
