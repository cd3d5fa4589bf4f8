"""What can go wrong in the store, each told in one sentence: what, where, and what to do.

The rule: nothing but these leaves the package; a caller never sees an error of SQLite or of the file system.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BUSY, _LOCKED, _READONLY, _IOERR, _CORRUPT, _FULL, _CANTOPEN, _NOTADB = 5, 6, 8, 10, 11, 13, 14, 26


class StoreError(Exception):
    """A failure of the store."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class UnknownConversation(StoreError):  # noqa: N818
    """No conversation, or more than one, answers to this id."""


class UnknownImport(StoreError):  # noqa: N818
    """There is no import with this id that could be taken back."""

    def __init__(self, id: str) -> None:
        super().__init__(f"There is no import {id[:40]} that could be undone." if id else
                         "There is no import that could be undone.")


class Conflict(StoreError):  # noqa: N818
    """What another kvchat did meanwhile stands against a write: nothing was written, and the same again never will be.
    """


class HeadMoved(Conflict):
    """The branch that new messages were to stand on has gone on elsewhere, or a reply still streams at its end."""


class ConversationDeleted(Conflict):
    """The conversation lies in the trash, or is gone for good."""


class NotQueued(Conflict):
    """A message that was to be sent is not in the queue any more."""


class StoreUnavailable(StoreError):  # noqa: N818
    """The database cannot be read or written now: disk full, folder read-only, locked, moved. Nothing acknowledged
    is lost, and the same write with the same ids can be tried again."""


class StoreDamaged(StoreError):  # noqa: N818
    """The database's content is damaged. Opening the store anew moves it aside and saves what can be read."""


def result_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code of `error`; 0 when the error came from Python's side."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_damage(error: sqlite3.Error) -> bool:
    """Whether `error` says that the file's content is wrong, and not that it cannot be reached."""
    code = result_code(error)
    return code in (_CORRUPT, _NOTADB) or "malformed" in str(error) or "decode to UTF-8" in str(error)


def failure(error: sqlite3.Error | OSError, path: Path | None) -> StoreError:
    """The store's own error for `error`, in a sentence that names the file."""
    where = str(path) if path else "the conversations held in memory"
    if isinstance(error, OSError):
        reason = error.strerror or type(error).__name__
        return StoreUnavailable(f"{error.filename or where} cannot be used: {reason}. Check its permissions and the "
                                "free space of its disk.")
    code = result_code(error)
    if is_damage(error):
        return StoreDamaged(f"{where} is damaged ({error}). Start kvchat again: the file is moved aside and every "
                            "message that can be read is saved.")
    if code in (_BUSY, _LOCKED):
        return StoreUnavailable(f"{where} is locked by another program. Close that program, or wait until it is done.")
    if code == _FULL:
        return StoreUnavailable(f"There is no room for {where}: its disk is full. Free some space, then try again.")
    if code == _READONLY:
        return StoreUnavailable(f"{where} is read-only. Give yourself write permission on the file and its folder.")
    if code in (_IOERR, _CANTOPEN):
        return StoreUnavailable(f"{where} cannot be read or written ({error}). Check its disk, its folder's "
                                "permissions and the free space.")
    if isinstance(error, sqlite3.IntegrityError):
        return StoreError(f"The conversation is no longer whole in {where} ({error}): another kvchat may have "
                          "emptied the trash. Open the conversation again.")
    return StoreError(f"{where} refused an operation ({error}).")


@contextmanager
def told(path: Path | None) -> Iterator[None]:
    """Turn errors of SQLite and the file system into the store's own."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise failure(error, path) from error
    except UnicodeDecodeError as error:  # SQLite quotes a damaged name in its message
        raise failure(sqlite3.DatabaseError("malformed schema"), path) from error
