"""Opening the database: made private, checked, brought to the newest shape, or moved aside when it is damaged.

A file that fails the check is never written. All of it happens under the write lock, so that of several
kvchats that start at once one does the work.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from kvchat.paths import make_private
from kvchat.store.errors import StoreError, StoreUnavailable, is_damage, result_code, store_errors
from kvchat.store.file import quarantine, schema, wal
from kvchat.store.file.backup import back_up
from kvchat.store.file.database import Database, connect, has_content, has_fts, prepare
from kvchat.store.fulltext import index
from kvchat.store.presence.locks import FolderInUse, WriteLock
from kvchat.text.problems import Damage, StoreProblem, opened_for_reading

NAME = "kvchat.db"
_PAGE_SIZE = 4096
"""What SQLite makes pages of."""
OLDEST_SQLITE = (3, 37, 0)
ALWAYS_CHECKED = 50_000_000
"""Databases smaller than this many bytes are checked at every start, larger ones after an unclean end."""


def in_memory() -> Database:
    """A database that leaves no trace on the disk."""
    _require_sqlite()
    connection = connect(":memory:")
    prepare(connection, None)
    _bring_up_to_date(connection)
    return Database(connection, None, None, None)


def on_disk(folder: Path, now: float) -> tuple[Database, list[str]]:
    """The database in `folder`, made if there is none, and what the user should know. Where its disk cannot be written,
    what is there is opened for reading: each write tries again. Raises StoreError."""
    _require_sqlite()
    try:
        return _for_writing(folder, now)
    except StoreUnavailable as refusal:
        if refusal.problem not in _UNWRITABLE or (connection := _for_reading(folder / NAME)) is None:
            raise
        in_use = FolderInUse(folder)
        in_use.share()
        db = Database(
            connection, folder / NAME, None, in_use, refusal, again=lambda: _for_writing(folder, time.time())[0]
        )
        return db, [opened_for_reading(refusal.sentence)]


_UNWRITABLE = frozenset({StoreProblem.UNUSABLE, StoreProblem.DISK_FULL, StoreProblem.READ_ONLY, StoreProblem.FAILING})
"""Why a file that is there may not open for writing, and still be read."""


def _for_writing(folder: Path, now: float) -> tuple[Database, list[str]]:
    """The same, to be read and written."""
    path = folder / NAME
    with store_errors(path), ExitStack() as undo:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = WriteLock(path.with_name(path.name + ".lock"))
        undo.callback(lock.close)
        in_use = FolderInUse(folder)
        undo.callback(in_use.close)
        with lock.held():
            notices = _made_sound(path, in_use.alone(), now)
            undo.callback(_remove_if_empty, path)
            connection = connect(path)
            undo.callback(connection.close)
            prepare(connection, path)
            version = schema.version_of(connection)
            if 0 < version < schema.newest():
                back_up(path, now, f"-v{version}")
            _bring_up_to_date(connection)
            in_use.share()
        undo.pop_all()
        return Database(connection, path, lock, in_use), notices


def _for_reading(path: Path) -> sqlite3.Connection | None:
    """A connection to a database whose disk takes no writes; one of an older shape is brought up to date in memory.
    None: there is nothing that could be read. Raises StoreError for a newer one."""
    for options, exclusive in _WAYS_TO_READ[: 2 if has_content(path, "-wal") else None]:
        found = None
        try:
            found = connect(path, read_only=True, uri_options=options)
            if exclusive:
                found.execute("PRAGMA locking_mode = EXCLUSIVE")
            if _content_trouble(found, path, thorough=path.stat().st_size < ALWAYS_CHECKED) is not None:
                return None
            prepare(found, None)
            if schema.version_of(found) == schema.newest() and not index.is_due(found, has_fts(found)):
                return found
            memory = connect(":memory:")
            with closing(found):
                found.backup(memory)
            prepare(memory, None)
            _bring_up_to_date(memory)
        except (sqlite3.Error, OSError, UnicodeDecodeError):
            if found is not None:
                found.close()
        else:
            return memory
    return None


_WAYS_TO_READ = (("", False), ("&vfs=unix-none", True), ("&immutable=1", False))
"""Options of a connection, and whether the file is its alone: as it is, where the index of its log is there or can be
made; with that index in memory; and where there is no log."""


def _require_sqlite() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreError(
            StoreProblem.OLD_SQLITE, oldest=".".join(map(str, OLDEST_SQLITE[:2])), version=sqlite3.sqlite_version
        )


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    """One transaction that makes the tables and the index what this version expects."""
    fts = has_fts(connection)
    if schema.version_of(connection) == schema.newest() and not index.is_due(connection, fts):
        return
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        schema.migrate(connection)
        index.ensure(connection, fts)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("PRAGMA synchronous = NORMAL")


def _made_sound(path: Path, alone: bool, now: float) -> list[str]:
    """Leave a database at `path` that can be opened: the one that is there, what was saved of it, or an empty file."""
    log = quarantine.has_log(path)
    if not path.exists():
        _refuse_unless(alone or not log, path, Damage.DELETED)
        notices = [quarantine.set_aside_log(path, now)] if log else []
        notices += quarantine.finish(path) if alone else []
        path.touch(0o600)
        return notices
    if not path.is_file():
        raise StoreUnavailable(StoreProblem.NO_FILE, path=path)
    make_private(path)
    found = wal.read(path, _PAGE_SIZE) if alone and log and _is_known(path) else None
    if found is not None and found.is_stale:
        quarantine.move_log(path, now)
    unclean = alone and log
    trouble = _trouble(path, thorough=path.stat().st_size < ALWAYS_CHECKED or unclean, unclean=unclean)
    if trouble is None:
        return [quarantine.damaged_log(path, now)] if found is not None and found.lost else []
    _refuse_unless(alone, path, trouble)
    if trouble is Damage.DRAFT:
        return [quarantine.set_aside_draft(path, now)]
    return [quarantine.set_aside(path, trouble, now)]


def _is_known(path: Path) -> bool:
    """Whether the file is of a version that this kvchat may write. One that is damaged is."""
    with path.open("rb") as file:
        head = file.read(72)
    version = int.from_bytes(head[60:64], "big")
    return not head.startswith(schema.MAGIC) or version == 0 or schema.FIRST <= version <= schema.newest()


def _refuse_unless(alone: bool, path: Path, damage: str) -> None:
    if not alone:
        raise StoreUnavailable(StoreProblem.BESIDE_OTHERS, path=path, damage=damage)


def _trouble(path: Path, thorough: bool, unclean: bool) -> str | None:
    """What is wrong with the file, in the words of `Damage`; None if nothing is. `unclean`: its log or journal is put
    back first, which may mend the header. Raises what may pass: a lock, a version that is too new, a disk that fails.
    """
    with path.open("rb") as file:
        magic = file.read(len(schema.MAGIC))
    if not magic:
        return Damage.EMPTY
    if magic != schema.MAGIC and not unclean:
        return Damage.HEADER
    try:
        # A connection that may write would write the log back when it closes. Only a rollback journal needs one.
        with closing(connect(path, read_only=not path.with_name(path.name + "-journal").exists())) as found:
            return _content_trouble(found, path, thorough)
    except sqlite3.Error as error:
        if is_damage(error) or result_code(error) == 1:
            return Damage.FOUND.format(error=error) if magic == schema.MAGIC else Damage.HEADER
        raise
    except UnicodeDecodeError:  # SQLite quotes a damaged name in its message
        return Damage.SCHEMA


def _content_trouble(found: sqlite3.Connection, path: Path, thorough: bool) -> str | None:
    tables = {row[0] for row in found.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    mark = found.execute("PRAGMA application_id").fetchone()[0]
    version = schema.version_of(found)
    ours = mark == schema.APPLICATION_ID
    if ours and version > schema.newest():
        raise StoreError(StoreProblem.NEWER, path=path, version=version, known=schema.newest())
    if schema.is_draft(found):
        return Damage.DRAFT
    if not tables and version == 0 and (ours or mark == 0):
        return None  # kvchat ended while it made the file
    if not tables >= schema.TABLES or not ours:
        return Damage.TABLES if tables & schema.TABLES else Damage.FOREIGN
    if thorough and (answer := found.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        return Damage.FOUND.format(error=" ".join(str(answer).split())[:120])
    return None


def _remove_if_empty(path: Path) -> None:
    """Leave nothing of a database that could not be begun: the next opening would take it for a damaged one."""
    with suppress(OSError):
        if path.stat().st_size == 0:
            path.unlink()
            path.with_name(path.name + "-journal").unlink()
