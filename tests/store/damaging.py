"""Looking at databases that a test has damaged, before and after they are opened."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

from kvchat.store import Store
from kvchat.store.file.salvage import Pages


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


def free_pages(path: Path) -> set[int]:
    """The pages that hold nothing, but for the trunks of their list."""
    data = path.read_bytes()
    free: set[int] = set()
    trunk = int.from_bytes(data[32:36], "big")
    while trunk:
        words = struct.unpack(">1024I", data[(trunk - 1) * 4096 : trunk * 4096])
        free.update(words[2 : 2 + words[1]])
        trunk = words[0]
    return free


def rows_on_pages(path: Path) -> dict[int, set[str]]:
    """The ids of messages and conversations on each page, overflow pages included."""
    pages = Pages(path)
    found: dict[int, set[str]] = {}
    touched: list[int] = []
    read = pages.page

    def page(number: int) -> bytes:
        touched.append(number)
        return read(number)

    pages.page = page  # type: ignore[method-assign]
    for number in range(1, pages.count + 1):
        data = read(number)
        start = 100 if number == 1 else 0
        if data[start] != 13:
            continue
        touched.clear()
        for row in pages._cells(data, start):
            if len(row.values) in (18, 19):
                for one in {number, *touched}:
                    found.setdefault(one, set()).add(str(row.values[1]))
            touched.clear()
    return found
