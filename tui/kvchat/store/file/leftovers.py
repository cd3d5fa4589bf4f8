"""What removed text leaves in a database file, and how it is overwritten.

`secure_delete` fills removed rows with zeros, but not all that was made of them: a full-text index keeps the words of
removed texts until its segments are merged (FTS5 can do better from SQLite 3.42 on only), and a page whose rows moved
to another one keeps their bytes behind its last row. VACUUM rewrites each page.

A removal notes in its own transaction that there is something to overwrite, so that a crash before that loses nothing.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from kvchat.store.file.database import connect

IN_MEMORY = 256_000_000
"""Bytes: of a file up to this size VACUUM makes its copy in memory, of a larger one in a temporary file."""


def merge(connection: sqlite3.Connection, table: str, pages: int) -> bool:
    """Merge at least `pages` pages of a full-text table inside the caller's transaction, 0.5 ms each; whether more is
    to be merged. Without removed words there is one segment at the end."""
    before = connection.total_changes
    connection.execute(f"INSERT INTO {table}({table}, rank) VALUES ('merge', ?)", (-pages,))
    # https://www.sqlite.org/fts5.html, "The 'merge' Command": a call that changes less than two rows did nothing.
    return connection.total_changes - before >= 2


def rewrite(path: Path) -> None:
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
