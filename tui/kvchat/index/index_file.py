"""The index's file: its tables, how it is opened, who may write it, and what happens when it cannot be used.

The file is disposable. A damaged or outdated one is thrown away and rebuilt; where even that fails, the index lives in
memory. A database that is not an index is never touched. One that is in use is no damage: after a wait that the caller
chose it raises an error of its own.

The journal is a rollback journal, not a WAL: then the file can be replaced while another kvchat has it open. A lock
file next to it prevents that in the middle of a write.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from kvchat import paths
from kvchat.index.scoping import Within
from kvchat.index.tokenizer import PREPARED, TOKENIZE
from kvchat.index.vector_search import ScopedVectors
from kvchat.store.errors import StoreDamaged, StoreError, StoreUnavailable, is_damage, result_code, store_errors
from kvchat.store.file.database import connect, has_fts, identity_of
from kvchat.store.presence.locks import locked_within, unlock
from kvchat.text.problems import StoreProblem

_CODES = (5, 6)
"""SQLite's BUSY and LOCKED."""


class IndexBusyError(StoreUnavailable):
    """Another program holds the file for longer than the caller waits."""

    def __init__(self) -> None:
        super().__init__(StoreProblem.INDEX_BUSY)


@contextmanager
def index_errors(path: Path | None) -> Iterator[None]:
    """Raise errors of SQLite and the file system as the store's own, a StoreError, and those of a file in use as
    IndexBusyError."""
    try:
        with store_errors(path):
            yield
    except StoreUnavailable as error:
        cause = error.__cause__
        if isinstance(cause, sqlite3.Error) and result_code(cause) in _CODES:
            raise IndexBusyError from cause
        raise


class FileLock:
    """The lock file. Held by one process at a time; threads are kept apart by the caller."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """Hold the lock. Raises IndexBusyError where another process keeps it for so long."""
        if not locked_within(self._fd, seconds):
            raise IndexBusyError
        try:
            yield
        finally:
            unlock(self._fd)

    def close(self) -> None:
        os.close(self._fd)


VERSION = 3
"""Raised when the tables change; older files are then rebuilt."""
_APPLICATION_ID = 0x6B766978
READ_MS, WRITE_MS = 1000, 3000
"""How long SQLite waits for another program's lock: a search no longer than a user would, a write longer than a disk
takes for a batch of documents."""
PATIENCE_S = 30.0
"""How long indexing waits for another kvchat to finish a write."""
_CHECKED = 32_000_000
"""Files smaller than this many bytes are checked when they are opened."""

_TABLES = f"""
CREATE TABLE doc(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, stamp TEXT NOT NULL, date REAL);
CREATE TABLE chunk(id INTEGER PRIMARY KEY AUTOINCREMENT, doc INTEGER NOT NULL, at INTEGER NOT NULL, key TEXT NOT NULL);
CREATE INDEX chunk_of ON chunk(doc, key);
CREATE TABLE body(id INTEGER PRIMARY KEY, head TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE vector(chunk INTEGER PRIMARY KEY, scale REAL NOT NULL, data BLOB NOT NULL);
CREATE TABLE state(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO state VALUES ('prepared', {PREPARED});
"""
_FTS = f"""
CREATE VIRTUAL TABLE words USING fts5(place, head, text, content = '', {TOKENIZE});
CREATE VIRTUAL TABLE terms USING fts5vocab(words, 'row');
"""

log = logging.getLogger(__name__)


class _OutdatedError(Exception):
    """The file is an older kvchat's index, or that of a Python without full-text search."""


class Tables:
    """An open index: a connection that reads and one that writes, so that neither waits for the other in this
    process; in memory, one for both."""

    def __init__(self, path: Path | None) -> None:
        """Opens or makes it. Raises StoreError, or _OutdatedError."""
        self.path = path
        self.held: dict[Within, ScopedVectors] = {}
        """The vectors of the scopes that were searched last."""
        self.is_stand_in = False
        """Whether it is in memory only because its file is in use."""
        self._lock: FileLock | None = None
        with index_errors(path), ExitStack() as undo:
            if path:
                paths.folder(path.parent)
                self._lock = FileLock(_sibling(path, ".lock"))
                undo.callback(self._lock.close)
            is_new = path is None or not path.is_file() or path.stat().st_size == 0
            with self._locked(WRITE_MS / 1000) if is_new else contextlib.nullcontext():
                if path:
                    _make_private(path)
                self._identity = identity_of(path)
                self._writer = self._reader = _connected(path, READ_MS)
                undo.callback(self._writer.close)
                self.fts = has_fts(self._writer)
                self._prepare(is_new)
                self._writing = self._reading = threading.RLock()
                if path:
                    self._reader, self._reading = _connected(path, READ_MS), threading.RLock()
                    undo.callback(self._reader.close)
                    self._reader.execute("PRAGMA query_only = ON")
                    self._writer.execute(f"PRAGMA busy_timeout = {WRITE_MS}")
                self._still_there()
            undo.pop_all()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One unchanging view, for this thread alone. Raises StoreError."""
        with self._reading, index_errors(self.path):
            self._still_there()
            with _transaction(self._reader, "BEGIN"):
                yield self._reader

    @contextmanager
    def writing(self, patience: float | None = None) -> Iterator[sqlite3.Connection]:
        """One transaction, after at most `patience` seconds in which others write. Raises StoreError, with nothing
        changed; IndexBusyError where the file is in use for longer."""
        with self._writing, index_errors(self.path), self._locked(PATIENCE_S if patience is None else patience):
            self._still_there()
            with _transaction(self._writer, "BEGIN IMMEDIATE"):
                yield self._writer

    def _locked(self, seconds: float) -> AbstractContextManager[None]:
        return self._lock.held(seconds) if self._lock else contextlib.nullcontext()

    def close(self) -> None:
        with self._writing, self._reading, contextlib.suppress(sqlite3.Error, OSError):
            self._reader.close()
            self._writer.close()
            lock, self._lock = self._lock, None
            if lock:
                lock.close()

    def _prepare(self, may_make: bool) -> None:
        """Settings, and tables where there are none and it `may_make` them. Nothing is written to a file that has
        them, so that opening one waits for no lock."""
        writer = self._writer
        tables = writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        mark = writer.execute("PRAGMA application_id").fetchone()[0]
        version = writer.execute("PRAGMA user_version").fetchone()[0]
        if tables and mark != _APPLICATION_ID:
            raise StoreUnavailable(StoreProblem.NO_INDEX, path=self.path)
        if version // 2 > VERSION:
            raise StoreUnavailable(StoreProblem.NEWER_INDEX, path=self.path)
        if tables and version != self._version:
            raise _OutdatedError(f"{self.path} is outdated.")
        # What is written stays in the cache until it is committed: readers wait only while a transaction's pages are
        # written to the file, and a cache too small for them would write, and make readers wait, from its middle on.
        for pragma in (
            "temp_store = MEMORY",
            "secure_delete = ON",
            "cache_size = -48000",
            "synchronous = NORMAL",
            "journal_mode = TRUNCATE",
        ):
            writer.execute(f"PRAGMA {pragma}").fetchall()
        if not tables:
            if not may_make:
                raise _OutdatedError(f"{self.path} has no tables.")
            with _transaction(writer, "BEGIN IMMEDIATE"):
                for statement in (_TABLES + (_FTS if self.fts else "")).split(";"):
                    writer.execute(statement)
                writer.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                writer.execute(f"PRAGMA user_version = {self._version}")
        elif (
            self.path
            and self.path.stat().st_size < _CHECKED
            and (answer := writer.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok"
        ):
            raise StoreDamaged(StoreProblem.INDEX_DAMAGED, path=self.path, error=answer)

    @property
    def _version(self) -> int:
        return 2 * VERSION + self.fts

    def _still_there(self) -> None:
        if identity_of(self.path) != self._identity:
            raise StoreUnavailable(StoreProblem.INDEX_REPLACED, path=self.path)


def open_tables(path: Path | None, *, rebuild: bool = False) -> Tables:
    """The index at `path`; one in memory where that cannot be used. `rebuild`: remove an existing file first."""
    try:
        return Tables(None) if path is None else _in_file(path, rebuild)
    except (_OutdatedError, StoreError, OSError, ValueError, paths.PathError) as error:
        log.warning("the search index is held in memory: %s", error.__cause__ or error)
        held = Tables(None)
        held.is_stand_in = isinstance(error, IndexBusyError)
        return held


def _in_file(path: Path, rebuild: bool) -> Tables:
    if not rebuild:
        try:
            return Tables(path)
        except (_OutdatedError, StoreDamaged) as error:
            log.info("the search index is rebuilt: %s", error.__cause__ or error)
    _throw_away(path)
    return Tables(path)


def _throw_away(path: Path) -> None:
    """Remove the file and its journal, unless it is somebody else's database."""
    with index_errors(path):
        lock = FileLock(_sibling(path, ".lock"))
        try:
            with lock.held(WRITE_MS / 1000):
                if _is_foreign(path):
                    raise StoreUnavailable(StoreProblem.NO_INDEX, path=path)
                for name in ("", "-journal", "-wal", "-shm"):
                    _sibling(path, name).unlink(missing_ok=True)
        finally:
            lock.close()


def _is_foreign(path: Path) -> bool:
    """Whether the file is a sound database of something else."""
    if not path.is_file():
        return path.exists()
    found = _connected(path, READ_MS)
    try:
        tables = found.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        return bool(tables) and found.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if isinstance(error, sqlite3.Error) and result_code(error) in (5, 6):
            raise
        return isinstance(error, sqlite3.Error) and not is_damage(error) and result_code(error) != 1
    finally:
        found.close()


def _connected(path: Path | None, wait_ms: int) -> sqlite3.Connection:
    connection = connect(path or ":memory:")
    connection.execute(f"PRAGMA busy_timeout = {wait_ms}")
    return connection


def _make_private(path: Path) -> None:
    if not path.exists():
        path.touch(0o600)
    if not path.is_file():
        raise StoreUnavailable(StoreProblem.INDEX_NO_FILE, path=path)
    paths.make_private(path)


def _sibling(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise
