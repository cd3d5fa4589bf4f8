"""A file that cannot be trusted is moved aside, whole, and never written again.

Nothing is overwritten. The replacement takes its place only when it is complete.
"""

from __future__ import annotations

import itertools
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from kvchat.paths import make_private
from kvchat.store.file import schema
from kvchat.store.file.backup import backups
from kvchat.store.file.database import connect, has_content
from kvchat.text.problems import backup_words, draft_moved, finished, log_damaged, log_moved, moved_aside, saved_words

FOLDER = "quarantine"
COMPANIONS = ("", "-wal", "-shm", "-journal")
_FRESH = "salvaged.db"
_MADE_FROM_DRAFTS = ("backups", "snapshots", "trunks", "index.db", "index.db-wal", "index.db-shm")


def set_aside(database: Path, damage: str, now: float) -> str:
    """Save what can be read of `database` and the newest backup into a new one, move the old files to
    quarantine/<time>/, and put the new one in place. Returns the sentences for the user. Raises OSError and
    sqlite3.Error."""
    place = _new_folder(database.parent / FOLDER, now)
    fresh = place / _FRESH
    try:
        from kvchat.store.file.salvage import salvage

        saved = salvage(database, fresh, now)
    except BaseException:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
            place.rmdir()
        raise
    _move(database, place, COMPANIONS)
    for path in place.iterdir():
        make_private(path)
    fresh.replace(database)
    words = saved_words(saved.messages, saved.conversations, saved.backup, saved.whole)
    return moved_aside(database, damage, place, words)


def set_aside_draft(database: Path, now: float) -> str:
    """Move a database from before 0.2, and what was made from it, to quarantine/<time>/. Returns the sentence for the
    user. Raises OSError."""
    place = _new_folder(database.parent / FOLDER, now)
    _move(database, place, COMPANIONS)
    for name in _MADE_FROM_DRAFTS:
        if (made := database.with_name(name)).exists():
            made.replace(place / name)
    database.touch(0o600)
    return draft_moved(database, place)


def drafts(database: Path) -> list[tuple[Path, list[str]]]:
    """The databases from before 0.2 that were moved to the quarantine of `database`: the folder of each, and the ids of
    the conversations in it. What cannot be read is left out."""
    found = []
    for path in sorted((database.parent / FOLDER).glob(f"*/{database.name}")):
        with suppress(OSError, sqlite3.Error), closing(connect(path, read_only=True)) as draft:
            if schema.is_draft(draft):
                found.append((path.parent, [row[0] for row in draft.execute("SELECT id FROM conversation")]))
    return found


def set_aside_log(database: Path, now: float) -> str:
    """Move the log of a database that is gone: a new database must not take it for its own."""
    return log_moved(database, move_log(database, now), _offer(database, now))


def move_log(database: Path, now: float) -> Path:
    """Move a database's log, its index and its journal to quarantine/<time>/."""
    place = _new_folder(database.parent / FOLDER, now)
    _move(database, place, COMPANIONS[1:])
    return place


def damaged_log(database: Path, now: float) -> str:
    """A sentence for the user: the end of the log cannot be read."""
    return log_damaged(database, _offer(database, now))


def finish(database: Path) -> list[str]:
    """Put in place what was saved by a kvchat that ended before it could, if there is such a thing."""
    left = sorted((database.parent / FOLDER).glob(f"*/{_FRESH}"))
    if not left:
        return []
    left[-1].replace(database)
    return [finished(database, left[-1].parent)]


def has_log(database: Path) -> bool:
    """Whether the database has a log of changes that is not empty, as after an unclean end."""
    return has_content(database, "-wal") or has_content(database, "-journal")


def _move(database: Path, place: Path, suffixes: tuple[str, ...]) -> None:
    for suffix in suffixes:
        companion = database.with_name(database.name + suffix)
        if companion.exists():
            companion.replace(place / companion.name)


def _new_folder(parent: Path, now: float) -> Path:
    parent.mkdir(mode=0o700, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    for number in itertools.count():
        place = parent / (f"{stamp}-{number}" if number else stamp)
        try:
            place.mkdir(mode=0o700)
        except FileExistsError:
            continue
        break
    return place


def _offer(database: Path, now: float) -> str:
    return backup_words(next(iter(backups(database.parent, now)), None), database)
