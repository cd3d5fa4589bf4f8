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

VERSION = "3"
"""Raised when `indexed` or the table changes."""
BEFORE = "2"
"""The version that is brought up to date in steps, at rest; what has an older one is rebuilt."""
STATE = "store.index"
"""The key of the setting that holds the version of the index, and behind a space, up to which message it has the form
of BEFORE; empty while messages may be missing from it."""

UNSPACED = (
    "\u0e01-\u0e4e\u0e80-\u0ecf\u1000-\u103f\u1050-\u109f\u1780-\u17d3"
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
"""Characters of scripts that are written without spaces, or with other words than are looked for: Thai, Lao, Burmese,
Khmer, Chinese, Japanese and Korean; as in a set of a pattern."""
_RUN = compiled_later(f"[{UNSPACED}]+")
INVISIBLE = "\u00ad\u034f\u200b\u2060-\u2064\ufeff"
"""Characters inside of words that are not seen or searched for, as in a set of a pattern: soft hyphens, zero-width
spaces, joiners. Not those that part words in Persian or join them in Indian scripts."""
_INVISIBLE = compiled_later(f"[{INVISIBLE}](?:(?<=\u00ad)\\r?\\n[ \\t]*+)?")
"""A soft hyphen goes with the line's end behind it. It begins with a set, not with a choice: that is quick to find."""
_HYPHEN, _BREAK = "[-\u2010\u00ad]", "\\r?\\n[ \\t]*+"
LINE_END = f"{_HYPHEN}{_BREAK}"
"""Where a line's end cuts a word, as a pattern."""
_CUT = compiled_later(f"{_HYPHEN}(?<=[^\\W\\d_].){_BREAK}([^\\W\\d_]++)")
"""It begins with a hyphen, not with what precedes that, as the next one with a digit: that is quick to find."""
_LAST_LETTERS = compiled_later(r"[^\W\d_]+\Z")
_LONGEST = 60
"""Letters of a word that are looked at in front of a line's end."""
_NUMBER = compiled_later(r"\d(?<=[^\W\d_].)\d*+(?![^\W_])")
"""The digits that a word ends in."""

_TEXT = "SELECT seq, role, text, blocks FROM node WHERE id = ? AND state != 'streaming'"


def indexed(text: str) -> str:
    """`text` as it goes into the full-text index: without what is invisible in words, behind both parts of a word that
    a line's end cuts the whole, runs without spaces in pairs of characters, and behind `v1` its number, so that
    `1.2.3` finds `v1.2.3`."""
    text = visible(text)
    return as_before(_CUT.sub(_whole, text) if "\n" in text else text)


def as_before(text: str) -> str:
    """`indexed` as BEFORE had it."""
    text = _NUMBER.sub(r"\g<0> \g<0>", unicodedata.normalize("NFC", text).replace("\x00", " "))
    return text if text.isascii() else _RUN.sub(_parted, text)


def visible(text: str) -> str:
    """`text` without what is invisible in its words."""
    return text if text.isascii() else _INVISIBLE.sub("", text)


def _whole(found: re.Match[str]) -> str:
    """A cut word, and behind its parts the whole; what goes on with a capital was written with a hyphen."""
    if found[1][0].isupper():
        return found[0]
    at = found.start()
    first = _LAST_LETTERS.search(found.string, max(0, at - _LONGEST), at)
    return f"{found[0]} {first[0] if first else ''}{found[1]}"


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


def _document(row: Any, old: int = 0) -> tuple[int, str] | None:
    """What is indexed of a message; up to the message of this number as BEFORE had it."""
    text = searchable(*row[1:]) if row else None
    return (row[0], as_before(text) if row[0] <= old else indexed(text)) if text else None


def put(connection: sqlite3.Connection, fts: bool, id: str) -> None:
    """Index a settled message that is not indexed yet."""
    if fts and (found := _document(connection.execute(_TEXT, (id,)).fetchone(), _old(connection))):
        connection.execute("INSERT INTO search(rowid, text) VALUES (?, ?)", found)


def remove(connection: sqlite3.Connection, fts: bool, id: str) -> None:
    """Take a settled message out of the index, before it is changed or deleted."""
    if fts and (found := _document(connection.execute(_TEXT, (id,)).fetchone(), _old(connection))):
        connection.execute(_DELETE, found)


_DELETE = "INSERT INTO search(search, rowid, text) VALUES ('delete', ?, ?)"


def _state(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT value FROM setting WHERE key = ?", (STATE,)).fetchone()
    return str(row[0]) if row else ""


def _old(connection: sqlite3.Connection) -> int:
    """The number of the last message that the index has as BEFORE had it; 0: none."""
    version, _, old = _state(connection).partition(" ")
    return int(old) if version == VERSION and old else 0


def is_renewed(connection: sqlite3.Connection) -> bool:
    """Whether `renew` has work to do."""
    return bool(_old(connection))


def _put_state(connection: sqlite3.Connection, state: str) -> None:
    connection.execute(
        "INSERT INTO setting VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value", (STATE, state)
    )


def ensure(connection: sqlite3.Connection, fts: bool) -> None:
    """Make the index if it is not there or not whole; one of BEFORE is left to `renew`. The caller holds the
    transaction."""
    if not fts:
        connection.execute("UPDATE setting SET value = '' WHERE key = ?", (STATE,))
        return
    version = _state(connection).partition(" ")[0]
    if version == VERSION:
        return
    if version == BEFORE:
        last = connection.execute("SELECT coalesce(max(seq), 0) FROM node").fetchone()[0]
        _put_state(connection, f"{VERSION} {last}")
        return
    connection.execute("DROP TABLE IF EXISTS search")
    connection.execute(
        "CREATE VIRTUAL TABLE search USING fts5(text, content = '', tokenize = 'unicode61 remove_diacritics 2')"
    )
    rows = connection.execute("SELECT seq, role, text, blocks FROM node WHERE state != 'streaming' ORDER BY seq")
    connection.executemany("INSERT INTO search(rowid, text) VALUES (?, ?)", filter(None, map(_document, rows)))
    _put_state(connection, VERSION)


def is_due(connection: sqlite3.Connection, fts: bool) -> bool:
    """Whether `ensure` has work to do."""
    state = _state(connection)
    return state.partition(" ")[0] != VERSION if fts else bool(state)


_CODES = (0xAD, 0x34F, 0x200B, 0x2010, *range(0x2060, 0x2065), 0xFEFF)
_NEW = " OR ".join(
    f"instr({column}, {one}) > 0"
    for column, ends in (("text", ("'-' || char(10)", "'-' || char(13)")), ("blocks", ("'-\\n'", "'-\\r'")))
    for one in (*(f"char({code})" for code in _CODES), *ends)
)
_RENEWED = (
    "SELECT seq, role, text, blocks FROM node"
    f" WHERE seq <= ? AND state != 'streaming' AND ({_NEW}) ORDER BY seq DESC LIMIT ?"
)


def renew(connection: sqlite3.Connection, fts: bool, most: int) -> bool:
    """Bring at most `most` messages of an index of BEFORE up to date, of which the form is another now; whether there
    may be more. The caller holds the transaction."""
    old = _old(connection) if fts else 0
    if not old:
        return False
    rows = connection.execute(_RENEWED, (old, most)).fetchall()
    for row in rows:
        was, now = _document(row, row[0]), _document(row)
        if was is not None and now is not None and was != now:
            connection.execute(_DELETE, was)
            connection.execute("INSERT INTO search(rowid, text) VALUES (?, ?)", now)
    left = rows[-1][0] - 1 if len(rows) == most else 0
    _put_state(connection, f"{VERSION} {left}" if left else VERSION)
    return bool(left)
