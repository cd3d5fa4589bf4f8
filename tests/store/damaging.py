"""Looking at databases that a test has damaged, before and after they are opened."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

from kvchat.store import Store
from kvchat.store.file import schema


def everything(folder: Path) -> tuple[dict, dict]:
    """All conversations and all messages by id."""
    store = Store.open(folder)
    conversations = {c.id: c for c in store.conversations()}
    nodes = {n.id: n for c in conversations for n in store.tree(c)}
    store.close()
    return conversations, nodes


def check_sound(folder: Path) -> None:
    connection = sqlite3.connect(folder / "kvchat.db")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


def quarantined(folder: Path) -> list[Path]:
    return sorted(p for p in (folder / "quarantine").rglob("*") if p.is_file())


def open_damaged(path: Path) -> tuple[Store, bytes]:
    """Open a damaged database: it must be moved aside byte for byte and be told of."""
    before = path.read_bytes()
    store = Store.open(path.parent)
    moved = path.parent / "quarantine"
    (copy,) = moved.rglob("kvchat.db")
    assert copy.read_bytes() == before
    (notice,) = store.notices
    assert str(path) in notice and str(copy.parent) in notice
    return store, before


def break_index(path: Path) -> None:
    """Damage what no row depends on: a check finds it, and every row can still be read."""
    _overwrite_root(path, "side_request_created")


def break_table(path: Path, table: str) -> None:
    """Damage a table so that none of its rows can be read."""
    _overwrite_root(path, table)


def _overwrite_root(path: Path, name: str) -> None:
    with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    data = path.read_bytes()
    path.write_bytes(data[: (page - 1) * 4096] + random.Random(6).randbytes(4096) + data[page * 4096 :])


def rows_of_tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of kvchat's tables, but for the state of the search index."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall()
            for name in sorted(schema.TABLES)
            if name != "setting"
        }
