"""The one connection: transactions, locks between threads and processes, and how it is let go.

Every write is one BEGIN IMMEDIATE transaction under both locks. A durable one is on the disk when `write`
ends.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from kvchat.store.errors import StoreUnavailable, store_errors
from kvchat.store.file.schema import version_of
from kvchat.store.presence import process_id as owner
from kvchat.store.presence.locks import FolderInUse, WriteLock, has_wal_reset_fix
from kvchat.text.problems import StoreProblem

BUSY_SECONDS = 5.0
"""How long SQLite waits for another program's lock."""
IN_MEMORY = 256_000_000
"""Bytes: of a file up to this size VACUUM makes its copy in memory, of a larger one in a temporary file."""

_NETWORK = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "davfs",
        "fuse.sshfs",
        "fuse.davfs2",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.glusterfs",
        "vboxsf",
        "prl_fs",
    }
)


def connect(path: Path | str, *, read_only: bool = False, uri_options: str = "") -> sqlite3.Connection:
    """A connection without implicit transactions, for any thread. `uri_options`: more of them, of one that only
    reads."""
    target = f"{Path(path).absolute().as_uri()}?mode=ro{uri_options}" if read_only else str(path)
    return sqlite3.connect(
        target,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        uri=read_only,
    )


def on_network(path: Path, mounts: Path = Path("/proc/mounts")) -> bool:
    """Whether `path` lies on a network file system, where a WAL is not safe. False where that is not known."""
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return False
    target, best, kind = os.fspath(path.resolve()) + "/", "", ""
    for line in lines:
        parts = line.split()
        if len(parts) > 2:
            point = parts[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\").rstrip("/") + "/"
            if target.startswith(point) and len(point) >= len(best):
                best, kind = point, parts[2]
    return kind in _NETWORK


def prepare(connection: sqlite3.Connection, path: Path | None) -> None:
    """The settings of a connection that writes. Temporary tables stay in memory; deleted text is overwritten."""
    for pragma in ("temp_store = MEMORY", "secure_delete = ON", "foreign_keys = ON", "cache_size = -8000"):
        connection.execute(f"PRAGMA {pragma}")
    if path is not None:
        connection.execute(f"PRAGMA journal_mode = {'DELETE' if on_network(path) else 'WAL'}").fetchone()
        connection.execute("PRAGMA journal_size_limit = 16777216")
    _make_durable(connection, False)


def vacuum(path: Path) -> None:
    """Rewrite each page of the database, in a connection of its own: about 20 ms for each megabyte. In a database with
    a log others read meanwhile. The caller keeps others from writing. Raises sqlite3.Error."""
    connection = connect(path)
    try:
        connection.execute("PRAGMA secure_delete = ON")
        if path.stat().st_size <= IN_MEMORY:
            connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("VACUUM")
    finally:
        connection.close()


def _make_durable(connection: sqlite3.Connection, durable: bool) -> None:
    """Have each commit on the disk before it is done. Where there is no log it always is: a power cut may break a
    database whose rollback journal is written with NORMAL, and with FULL the journal's end may come later."""
    has_log = connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if has_log and not durable else 'EXTRA'}")


def has_content(database: Path, suffix: str) -> bool:
    """Whether a database's file of this suffix (`-wal`, `-journal`) has something in it."""
    try:
        return database.with_name(database.name + suffix).stat().st_size > 0
    except OSError:
        return False


def has_fts(connection: sqlite3.Connection) -> bool:
    """Whether this SQLite has full-text search."""
    return bool(connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone())


class Database:
    """An open database. `path` is None when it is in memory."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path | None,
        lock: WriteLock | None,
        in_use: FolderInUse | None,
        refusal: StoreUnavailable | None = None,
        again: Callable[[], Database] | None = None,
    ) -> None:
        """`refusal`: why it can only be read, and `again` opens it for writing, or raises StoreError."""
        self.path = path
        self.refusal = refusal
        self._again = again
        self.owner = owner.claim()
        self._connection: sqlite3.Connection | None = connection
        self._lock = lock
        self._in_use = in_use
        self._threads = threading.RLock()
        self._durable = False
        self._needs_lock = not has_wal_reset_fix()
        self._identity = identity_of(path)
        self._version = version_of(connection)
        """Of its format, as it was opened."""
        self.fts = has_fts(connection)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone."""
        with self._threads, store_errors(self.path):
            yield self._opened()

    def rows(self, sql: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        """All rows. Damaged text, which no check of SQLite finds, comes with replacement characters."""
        with self.reading() as connection:
            try:
                return connection.execute(sql, values).fetchall()
            except sqlite3.OperationalError as error:
                if "decode to UTF-8" not in str(error):
                    raise
            connection.text_factory = readable
            try:
                return connection.execute(sql, values).fetchall()
            finally:
                connection.text_factory = str

    def row(self, sql: str, values: Sequence[object] | Mapping[str, object] = ()) -> Any:
        """The first row, or None."""
        return next(iter(self.rows(sql, values)), None)

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction. `durable`: it survives a power cut once this returns; else it survives a crash of kvchat."""
        with self._threads, store_errors(self.path), self._held():
            connection = self._opened()
            self._still_there()
            if durable is not self._durable:
                _make_durable(connection, durable)
                self._durable = durable
            connection.execute("BEGIN IMMEDIATE")
            try:
                if version_of(connection) != self._version:
                    raise StoreUnavailable(StoreProblem.OUTGROWN, path=self.path)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk has rolled it back already
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise

    def checkpoint(self) -> None:
        """Put the log into the file and empty it: what happens to it after a crash then costs nothing. This waits for
        no other process; what another kvchat is reading stays in the log."""
        if self.path is None or not has_content(self.path, "-wal"):
            return
        with self._threads, store_errors(self.path), self._held():
            connection = self._opened()
            self._still_there()
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                # Not PASSIVE: that leaves its frames in the log, and the next opening puts those in front of a damage
                # over newer pages of the file.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1000)}")

    def rewrite(self) -> None:
        """Rewrite each page, without what removed rows left there. Reads go on meanwhile, writes wait. Does nothing
        where the database is in memory or read-only. Raises StoreError."""
        if self.path is None or self.refusal is not None:
            return
        with store_errors(self.path):
            self._still_there()
            lock = self._lock.another() if self._lock and self._needs_lock else None
            try:
                with lock.held() if lock else nullcontext():
                    vacuum(self.path)
            finally:
                if lock:
                    lock.close()

    def close(self) -> None:
        """Let go of the file; the last kvchat to do so writes the log back into it."""
        with self._threads, store_errors(self.path):
            if self._connection is None:
                return
            connection, self._connection = self._connection, None
            owner.release(self.owner)
            try:
                with self._lock.held() if self._lock else nullcontext():
                    connection.close()
            finally:
                if self._in_use:
                    self._in_use.close()
                if self._lock:
                    self._lock.close()

    def _held(self) -> AbstractContextManager[None]:
        """The lock around a write to a file that can be written. Raises StoreError where it still cannot."""
        if self._again is not None:
            self._take_over(self._again())
        return self._lock.held() if self._lock and self._needs_lock else nullcontext()

    def _take_over(self, writable: Database) -> None:
        """Go on with the same file, opened for writing."""
        self._opened().close()
        if self._in_use:
            self._in_use.close()
        self._connection, self._lock, self._in_use = writable._connection, writable._lock, writable._in_use
        self._identity, self._durable, self._version = writable._identity, False, writable._version
        self.refusal = self._again = None
        owner.release(writable.owner)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreUnavailable(StoreProblem.CLOSED)
        return self._connection

    def _still_there(self) -> None:
        if self._identity is not None and identity_of(self.path) != self._identity:
            raise StoreUnavailable(StoreProblem.REPLACED, path=self.path)


def readable(text: bytes) -> str:
    """Text that may be damaged, with replacement characters."""
    return text.decode("utf-8", "replace")


def identity_of(path: Path | None) -> tuple[int, int] | None:
    """What tells a file from one that took its place; None: it has none. Of one that is gone: zeros."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino
