"""A file that cannot be trusted is moved aside, whole, and never written again.

The rule: nothing is overwritten. The replacement takes its place only when it is complete.
"""

from __future__ import annotations

import itertools
import time
from contextlib import suppress
from pathlib import Path

from kvchat.paths import make_private
from kvchat.store.file.backup import backups
from kvchat.store.file.database import has_content
from kvchat.text.problems import backup_words, finished, log_damaged, log_moved, moved_aside, saved_words

FOLDER = "quarantine"
COMPANIONS = ("", "-wal", "-shm", "-journal")
_FRESH = "salvaged.db"


def set_aside(database: Path, damage: str, now: float) -> str:
    """Save what can be read of `database` into a new one, move the old files to quarantine/<time>/, and put the new
    one in place. Returns the sentences for the person. Raises OSError and sqlite3.Error."""
    place = _new_folder(database.parent / FOLDER, now)
    fresh = place / _FRESH
    try:
        from kvchat.store.file.salvage import salvage

        saved = salvage(database, fresh)
    except BaseException:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
            place.rmdir()
        raise
    _move(database, place, COMPANIONS)
    for path in place.iterdir():
        make_private(path)
    fresh.replace(database)
    words = saved_words(saved.messages, saved.conversations, saved.lost)
    return moved_aside(database, damage, place, words, _offer(database, now))


def set_aside_log(database: Path, now: float) -> str:
    """Move the log of a database that is gone: a new database must not take it for its own."""
    place = _new_folder(database.parent / FOLDER, now)
    _move(database, place, COMPANIONS[1:])
    return log_moved(database, place, _offer(database, now))


def told_of_log(database: Path, now: float) -> str:
    """What to say where the end of the log cannot be read."""
    return log_damaged(database, _offer(database, now))


def finish(database: Path, now: float) -> list[str]:
    """Put in place what was saved by a kvchat that ended before it could, if there is such a thing."""
    left = sorted((database.parent / FOLDER).glob(f"*/{_FRESH}"))
    if not left:
        return []
    left[-1].replace(database)
    return [finished(database, left[-1].parent, _offer(database, now))]


def has_log(database: Path) -> bool:
    """Whether a log of changes stands beside the database, as after an unclean end."""
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
