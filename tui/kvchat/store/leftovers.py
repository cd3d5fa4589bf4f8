"""Overwriting what removed conversations left in the database: in steps, in spare time, by any kvchat.

`secure_delete` fills removed rows with zeros, but not all that was made of them: a full-text index keeps the words of
removed texts until its segments are merged (FTS5 can do better from SQLite 3.42 on only), and a page whose rows moved
to another one keeps their bytes behind its last row. VACUUM rewrites each page.

A removal notes in its own transaction that there is something to overwrite, so that a crash before that loses nothing.
"""

from __future__ import annotations

import sqlite3
import time

from kvchat.prompt.message import new_id
from kvchat.store.conversations import ERASED
from kvchat.store.file.database import Database
from kvchat.store.fulltext import index

DONE = "done"
"""The value of `ERASED` when nothing is left. A removal takes the value away; so a store of before has none."""
PAGES = 128
"""Of the full-text index merged in one transaction: 60 ms."""
RENEWED, RENEWING_S = 50, 1.0
"""Messages of the full-text index that are brought up to date in one transaction, and for how long in one rest."""
AGAIN_S = 3600.0
"""So long after a try that failed, as on a full disk, there is no other."""


def _merge(connection: sqlite3.Connection, table: str, pages: int) -> bool:
    """Merge at least `pages` pages of a full-text table inside the caller's transaction, 0.5 ms each; whether more is
    to be merged. Without removed words there is one segment at the end."""
    before = connection.total_changes
    connection.execute(f"INSERT INTO {table}({table}, rank) VALUES ('merge', ?)", (-pages,))
    # https://www.sqlite.org/fts5.html, "The 'merge' Command": a call that changes less than two rows did nothing.
    return connection.total_changes - before >= 2


class Leftovers:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._not_before = 0.0

    def merge_some(self) -> bool:
        """Merge a part of the full-text index, and all of a small one; whether more is to be merged."""
        if not self._db.fts:
            return False
        with self._db.write() as connection:
            return _merge(connection, "search", PAGES)

    def renew_index(self) -> None:
        """Bring a full-text index that an earlier kvchat made up to date, for a second; the rest of it waits for the
        next rest. Raises StoreError."""
        with self._db.reading() as connection:
            if not index.is_renewed(connection):
                return
        end = time.monotonic() + RENEWING_S
        more = self._db.refusal is None
        while more and time.monotonic() < end:
            with self._db.write() as connection:
                more = index.renew(connection, self._db.fts, RENEWED)

    def overwrite(self) -> None:
        """Overwrite what is left, if something is: 30 ms for each megabyte. Raises StoreError."""
        if self._db.refusal is not None or time.monotonic() < self._not_before or self._is_done():
            return
        self._not_before = time.monotonic() + AGAIN_S
        begun = new_id()
        with self._db.write() as connection:
            connection.execute(
                "INSERT INTO setting VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
                (ERASED, begun),
            )
        while self.merge_some():
            pass
        self._db.rewrite()
        with self._db.write() as connection:  # unless something was removed meanwhile
            connection.execute("UPDATE setting SET value = ? WHERE key = ? AND value = ?", (DONE, ERASED, begun))
        self._not_before = 0.0

    def _is_done(self) -> bool:
        row = self._db.row("SELECT value FROM setting WHERE key = ?", (ERASED,))
        return row is not None and row[0] == DONE
