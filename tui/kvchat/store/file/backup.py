"""Backups: whole, checked copies of the database, private, one a day, the newest of each of seven days kept.

A copy gets its name only after it was read back without an error. A backup from the future was made while the
clock was ahead: it is kept, and counts neither as the newest nor among the seven.
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
import time
from pathlib import Path

from kvchat.store.errors import StoreError, store_errors
from kvchat.store.file.database import connect
from kvchat.store.file.schema import APPLICATION_ID
from kvchat.text.problems import StoreProblem

FOLDER = "backups"
KEEP_DAYS = 7
LEFT_SECONDS = 24 * 3600.0
"""How old a copy is that was begun and never finished."""

_NAME = re.compile(r"kvchat-(\d{8}-\d{6})(-v\d+)?\.db")


def backups(folder: Path, now: float = math.inf) -> list[Path]:
    """The backups of the database in `folder`, newest first; those of a day after `now` (seconds since the epoch) come
    last."""
    try:
        found = [path for path in (folder / FOLDER).iterdir() if _NAME.fullmatch(path.name)]
    except OSError:
        return []
    today = _day_of(now)
    return sorted(found, key=lambda path: (_day(path) <= today, path.name), reverse=True)


def is_due(folder: Path, now: float) -> bool:
    """Whether there is no backup of this day yet."""
    return all(_day(path) != _day_of(now) for path in backups(folder))


def _day(path: Path) -> str:
    """The day on which a backup was made, from its name: a copy of the folder has other times of change."""
    return path.name.removeprefix("kvchat-")[:8]


def _day_of(now: float) -> str:
    return time.strftime("%Y%m%d", time.gmtime(now)) if math.isfinite(now) else "9" * 8


def _surplus(folder: Path, now: float) -> list[Path]:
    """The backups that are not the newest of one of the last days on which one was made."""
    days: set[str] = set()
    surplus = []
    for path in backups(folder, now):
        day = _day(path)
        if day > _day_of(now):
            continue
        if day in days or len(days) == KEEP_DAYS:
            surplus.append(path)
        else:
            days.add(day)
    return surplus


def back_up(database: Path, now: float, mark: str = "") -> Path:
    """Copy the database to its backups and remove those that are not kept; the path of the copy. `now`: seconds since
    the epoch, which name it, with `mark` behind them. Raises StoreError, and leaves no copy then."""
    folder = database.parent / FOLDER
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    target = folder / f"{database.stem}-{stamp}{mark}.db"
    part = target.with_suffix(f".{os.getpid()}.part")
    with store_errors(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        for left in folder.glob("*.part"):
            if now - left.stat().st_mtime > LEFT_SECONDS or left == part:
                left.unlink(missing_ok=True)
        copy(database, part)
        part.replace(target)
        for old in _surplus(database.parent, now):
            old.unlink(missing_ok=True)
    return target


def copy(database: Path, target: Path) -> None:
    """A checked copy of a database that may be in use. Raises sqlite3.Error or OSError, and leaves no copy then."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        source = connect(database)
        try:
            source.execute("VACUUM INTO ?", (str(target),))
        finally:
            source.close()
        _check(target)
        with target.open("rb+") as file:
            os.fsync(file.fileno())
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _check(path: Path) -> None:
    found = connect(path, read_only=True)
    try:
        marked = found.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        if not marked or found.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise StoreError(StoreProblem.UNVERIFIED, path=path)
        found.execute("SELECT count(*) FROM node").fetchone()
    except sqlite3.Error as error:
        raise StoreError(StoreProblem.UNVERIFIED_FOR, path=path, error=error) from error
    finally:
        found.close()
