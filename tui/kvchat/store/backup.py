"""Backups: whole, checked copies of the database, private, the newest seven kept.

The rule: a copy gets its name only after it was read back without an error.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from kvchat.store.database import connect
from kvchat.store.errors import StoreError, told
from kvchat.store.schema import APPLICATION_ID

FOLDER = "backups"
KEEP = 7
EVERY_SECONDS = 24 * 3600.0


def backups(folder: Path) -> list[Path]:
    """The backups of the database in `folder`, newest first."""
    try:
        found = [path for path in (folder / FOLDER).iterdir() if path.suffix == ".db"]
    except OSError:
        return []
    return sorted(found, key=lambda path: (path.stat().st_mtime, path.name), reverse=True)


def is_due(folder: Path, now: float) -> bool:
    """Whether the newest backup is older than a day, or the clock went backwards since."""
    newest = next(iter(backups(folder)), None)
    return newest is None or not 0 <= now - newest.stat().st_mtime < EVERY_SECONDS


def back_up(database: Path, now: float, mark: str = "") -> Path:
    """Copy the database to its backups and remove those beyond KEEP. Raises StoreError when it cannot be done."""
    folder = database.parent / FOLDER
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    target = folder / f"{database.stem}-{stamp}{mark}.db"
    part = target.with_suffix(f".{os.getpid()}.part")
    with told(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        for left in folder.glob("*.part"):
            if now - left.stat().st_mtime > EVERY_SECONDS or left == part:
                left.unlink(missing_ok=True)
        copy(database, part)
        os.utime(part, (now, now))
        part.replace(target)
        for old in backups(database.parent)[KEEP:]:
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
            raise StoreError(f"The backup {path} could not be verified and was removed.")
        found.execute("SELECT count(*) FROM node").fetchone()
    except sqlite3.Error as error:
        raise StoreError(f"The backup {path} could not be verified and was removed ({error}).") from error
    finally:
        found.close()
