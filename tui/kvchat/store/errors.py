"""What can go wrong in the store: a kind of problem and its arguments, which `text.problems` has in words.

Nothing but these leaves the package; a caller never sees an error of SQLite or of the file system.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvchat.text.problems import ProblemError, StoreProblem

_BUSY, _LOCKED, _READONLY, _IOERR, _CORRUPT, _FULL, _CANTOPEN, _NOTADB = 5, 6, 8, 10, 11, 13, 14, 26
_UNAVAILABLE = {
    _BUSY: StoreProblem.LOCKED,
    _LOCKED: StoreProblem.LOCKED,
    _FULL: StoreProblem.DISK_FULL,
    _READONLY: StoreProblem.READ_ONLY,
    _IOERR: StoreProblem.FAILING,
    _CANTOPEN: StoreProblem.FAILING,
}


class StoreError(ProblemError):
    """A failure of the store."""


class UnknownConversation(StoreError):  # noqa: N818
    """No conversation, or more than one, answers to this id."""


class UnknownImport(StoreError):  # noqa: N818
    """There is no import with this id that could be taken back."""


class Conflict(StoreError):  # noqa: N818
    """What another kvchat did meanwhile forbids a write: nothing was written, and the same again never will be."""


class HeadMoved(Conflict):
    """The branch that new messages were to extend has grown elsewhere, or a reply still streams at its end."""


class ConversationDeleted(Conflict):
    """The conversation lies in the trash, or is gone for good."""


class NotQueued(Conflict):
    """A message that was to be sent is not in the queue any more."""


class StoreUnavailable(StoreError):  # noqa: N818
    """The database cannot be read or written now: disk full, folder read-only, locked, moved. Nothing acknowledged
    is lost, and the same write with the same ids can be tried again."""


class StoreDamaged(StoreError):  # noqa: N818
    """The database's content is damaged. Opening the store again moves it aside and saves what can be read."""


def result_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code of `error`; 0 when the error came from Python's side."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_damage(error: sqlite3.Error) -> bool:
    """Whether `error` says that the file's content is wrong, and not that it cannot be reached."""
    code = result_code(error)
    return code in (_CORRUPT, _NOTADB) or "malformed" in str(error) or "decode to UTF-8" in str(error)


def failure(error: sqlite3.Error | OSError, path: Path | None) -> StoreError:
    """The store's own error for `error`, which names the file."""
    where = str(path) if path else "the conversations held in memory"
    if isinstance(error, OSError):
        return StoreUnavailable(
            StoreProblem.UNUSABLE, where=error.filename or where, reason=error.strerror or type(error).__name__
        )
    if is_damage(error):
        return StoreDamaged(StoreProblem.DAMAGED, where=where, error=error)
    if (problem := _UNAVAILABLE.get(result_code(error))) is not None:
        return StoreUnavailable(problem, where=where, error=error)
    broken = isinstance(error, sqlite3.IntegrityError)
    return StoreError(StoreProblem.NOT_WHOLE if broken else StoreProblem.REFUSED, where=where, error=error)


@contextmanager
def store_errors(path: Path | None) -> Iterator[None]:
    """Raise errors of SQLite and the file system as the store's own, a StoreError."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise failure(error, path) from error
    except UnicodeDecodeError as error:  # SQLite quotes a damaged name in its message
        raise failure(sqlite3.DatabaseError("malformed schema"), path) from error
