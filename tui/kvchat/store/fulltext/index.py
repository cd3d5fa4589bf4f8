"""The full-text index over messages, kept in step with them inside their own transactions.

It is derived: when it is missing, outdated or was skipped, it is rebuilt from the messages.

The index keeps no copy of the text (a contentless FTS5 table), so a removal hands in the text once more.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from typing import Any

from kvchat.patterns import compiled_later
from kvchat.prompt.context import IMAGE, NOTE, TIME
from kvchat.store.rows import blocks_of

VERSION = "2"
"""Raised when `indexed` or the table changes; the index is then rebuilt."""
STATE = "store.index"
"""The key of the setting that holds the version of the index; empty while messages may be missing from it."""

UNSPACED = (
    "\u0e01-\u0e4e\u0e80-\u0ecf\u1000-\u103f\u1050-\u109f\u1780-\u17d3"
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
"""Characters of scripts that are written without spaces, or with other words than are looked for: Thai, Lao, Burmese,
Khmer, Chinese, Japanese and Korean; as in a set of a pattern."""
_RUN = compiled_later(f"[{UNSPACED}]+")
_NUMBER = compiled_later(r"\d(?<=[^\W\d_].)\d*+(?![^\W_])")
"""The digits that a word ends in. The pattern begins with a digit, not with what precedes it: that is quick to find."""

_TEXT = "SELECT seq, role, text, blocks FROM node WHERE id = ? AND state != 'streaming'"


def indexed(text: str) -> str:
    """`text` as it goes into the full-text index: runs without spaces in pairs of characters, and behind `v1` its
    number, so that `1.2.3` finds `v1.2.3`."""
    text = _NUMBER.sub(r"\g<0> \g<0>", unicodedata.normalize("NFC", text).replace("\x00", " "))
    return text if text.isascii() else _RUN.sub(_parted, text)


def _parted(found: re.Match[str]) -> str:
    run = bare(found[0])
    return f" {pairs(run)} {run[-1:]} "


def bare(run: str) -> str:
    """A run of an unspaced script without the marks over and under its letters, at which the index would end a word."""
    return "".join(one for one in unicodedata.normalize("NFKC", run) if unicodedata.category(one)[0] != "M")


def pairs(run: str) -> str:
    """Its neighbouring characters two by two: `abc` is `ab bc`."""
    return " ".join(run[i : i + 2] for i in range(len(run) - 1))


def searchable(role: str, text: str, blocks: str | None) -> str | None:
    """What a search finds of a message: its text and what was pasted or quoted in front of it. None: nothing."""
    if role not in ("user", "assistant"):
        return None
    quoted = (
        [
            block.source if block.kind == IMAGE else block.text
            for block in blocks_of(blocks)
            if block.kind not in (TIME, NOTE)
        ]
        if blocks
        else []
    )
    return "\n".join([text, *quoted])


def _document(row: Any) -> tuple[int, str] | None:
    text = searchable(*row[1:]) if row else None
    return (row[0], indexed(text)) if text else None


def put(connection: sqlite3.Connection, fts: bool, id: str) -> None:
    """Index a settled message that is not indexed yet."""
    if fts and (found := _document(connection.execute(_TEXT, (id,)).fetchone())):
        connection.execute("INSERT INTO search(rowid, text) VALUES (?, ?)", found)


def remove(connection: sqlite3.Connection, fts: bool, id: str) -> None:
    """Take a settled message out of the index, before it is changed or deleted."""
    if fts and (found := _document(connection.execute(_TEXT, (id,)).fetchone())):
        connection.execute("INSERT INTO search(search, rowid, text) VALUES ('delete', ?, ?)", found)


def ensure(connection: sqlite3.Connection, fts: bool) -> None:
    """Make the index if it is not there or not whole. The caller holds the transaction."""
    state = connection.execute("SELECT value FROM setting WHERE key = ?", (STATE,)).fetchone()
    if not fts:
        connection.execute("UPDATE setting SET value = '' WHERE key = ?", (STATE,))
        return
    if state and state[0] == VERSION:
        return
    connection.execute("DROP TABLE IF EXISTS search")
    connection.execute(
        "CREATE VIRTUAL TABLE search USING fts5(text, content = '', tokenize = 'unicode61 remove_diacritics 2')"
    )
    rows = connection.execute("SELECT seq, role, text, blocks FROM node WHERE state != 'streaming' ORDER BY seq")
    connection.executemany("INSERT INTO search(rowid, text) VALUES (?, ?)", filter(None, map(_document, rows)))
    connection.execute(
        "INSERT INTO setting VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value", (STATE, VERSION)
    )


def is_due(connection: sqlite3.Connection, fts: bool) -> bool:
    """Whether `ensure` has work to do."""
    state = connection.execute("SELECT value FROM setting WHERE key = ?", (STATE,)).fetchone()
    return (not state or state[0] != VERSION) if fts else bool(state and state[0])
