"""What is saved of a damaged database: the newest backup that is whole, and over it the rows that SQLite still returns.

A table that can be read to its end is taken as it is; of one that cannot, the rows of the backup stay where none come.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from kvchat.prompt import mending
from kvchat.prompt import message as messages
from kvchat.prompt.conversation import NEW_TITLE, title_of
from kvchat.prompt.message import Node, Role, State
from kvchat.prompt.tools import ToolCall
from kvchat.store.conversations import collect
from kvchat.store.errors import StoreError
from kvchat.store.file import schema
from kvchat.store.file.backup import backups, copy
from kvchat.store.file.database import connect, has_fts, readable
from kvchat.store.fulltext import index
from kvchat.store.rows import NODE_FIELDS, columns, node_of, row_of
from kvchat.values import decode, encode

_MOST_FAULTS = 20_000
"""Ranges of row numbers that are tried in vain before the rest of a table is given up."""
_LAST_ROW = 1 << 31
"""Where the search ends when the last row number of a table cannot be read."""
_ID = re.compile("[0-9a-f]{32}")
_TYPES: dict[str, type | tuple[type, ...]] = {"TEXT": str, "INTEGER": int, "REAL": (int, float), "BLOB": bytes}

_CHANGING = ("parent", "digest", "ids", "calls", "state")
_MENDED = f"UPDATE node SET {', '.join(f'{name} = ?' for name in _CHANGING)} WHERE id = ?"

_FAULTS = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged file raises; the second, where SQLite quotes a damaged name in its message."""

Row = tuple[object, ...]


class _SentFunction(Struct):
    name: str
    arguments: str


class _SentCall(Struct):
    id: str
    function: _SentFunction


class Saved(Struct, frozen=True):
    conversations: int
    messages: int
    backup: Path | None
    """What it was built on; None: there is no backup that is whole."""
    whole: bool | None
    """Whether every row could be read; None: none could."""


class _Table(Struct, frozen=True):
    name: str
    columns: tuple[str, ...]
    types: tuple[type | tuple[type, ...], ...]
    has_rowid: bool

    def is_sound(self, row: Row) -> bool:
        """Whether these can be the values of such a row: no check of SQLite finds a value of another type."""
        if not all(value is None or isinstance(value, kind) for value, kind in zip(row, self.types, strict=True)):
            return False
        named = dict(zip(self.columns, row, strict=True))
        match self.name:
            case "node":
                return bool(_ID.fullmatch(str(named["id"]))) and _is_message(named["wire"], named["role"])
            case "conversation":
                return bool(_ID.fullmatch(str(named["id"])))
        return True


def salvage(damaged: Path, fresh: Path, now: float) -> Saved:
    """Make the database `fresh` from `damaged` and its backups; those from after `now`, seconds since the epoch, are
    tried last. Raises sqlite3.Error and OSError for `fresh`."""
    backup = next((path for path in backups(damaged.parent, now) if _is_copied(path, fresh)), None)
    if backup is None:
        fresh.touch(0o600)
    with closing(connect(fresh)) as connection, closing(_opened(damaged)) as old:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        schema.migrate(connection)
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        tables = [_take_over(old, connection, table) for table in _tables(old)]
        for _, statement in triggers:
            connection.execute(statement)
        connection.execute("DELETE FROM setting WHERE key = ?", (index.STATE,))
        _mend(connection, all(tables))
        collect(connection, False)
        index.ensure(connection, has_fts(connection))
        connection.execute("COMMIT")
        conversations, saved = connection.execute(
            "SELECT (SELECT count(*) FROM conversation), (SELECT count(*) FROM node WHERE role != 'system')"
        ).fetchone()
        return Saved(conversations, saved, backup, all(tables) if tables else None)


def _is_copied(backup: Path, fresh: Path) -> bool:
    """Whether `fresh` is a checked copy of this backup now."""
    try:
        copy(backup, fresh)
        with closing(connect(fresh, read_only=True)) as found:
            if schema.is_known(found):
                return True
    except (sqlite3.Error, StoreError):
        pass
    fresh.unlink(missing_ok=True)
    return False


def _opened(damaged: Path) -> sqlite3.Connection:
    """The damaged file with its log, to be read; without, where SQLite refuses that."""
    for options in ("", "&immutable=1"):
        found = connect(damaged, read_only=True, uri_options=options)
        with suppress(*_FAULTS):
            if schema.is_known(found):
                found.text_factory = readable
                return found
        found.close()
    return connect(":memory:")  # nothing of ours can be read


def _tables(old: sqlite3.Connection) -> Iterator[_Table]:
    """The tables of kvchat in the damaged file."""
    with suppress(*_FAULTS):
        found = old.execute("SELECT name, wr FROM pragma_table_list WHERE schema = 'main'").fetchall()
        for name, without_rowid in found:
            if name in schema.TABLES:
                described = old.execute("SELECT name, type FROM pragma_table_info(?)", (name,)).fetchall()
                columns, kinds = zip(*described, strict=True)
                yield _Table(name, columns, tuple(_TYPES[kind] for kind in kinds), not without_rowid)


def _take_over(old: sqlite3.Connection, fresh: sqlite3.Connection, table: _Table) -> bool:
    """Put the rows of a table over those of the backup, or in their place where all can be read; whether they can."""
    fresh.execute("SAVEPOINT taken_over")
    fresh.execute(f"DELETE FROM {table.name}")
    if not (whole := _copy(old, fresh, table)):
        fresh.execute("ROLLBACK TO taken_over")
        _copy(old, fresh, table)
    fresh.execute("RELEASE taken_over")
    return whole


def _copy(old: sqlite3.Connection, fresh: sqlite3.Connection, table: _Table) -> bool:
    marks = ", ".join("?" * len(table.columns))
    put = f"INSERT OR REPLACE INTO {table.name}({columns(table.columns)}) VALUES ({marks})"
    whole = True
    for row in _rows(old, table):
        if row is not None and table.is_sound(row):
            with suppress(sqlite3.IntegrityError):  # a value is NULL that may not be
                fresh.execute(put, row)
                continue
        whole = False
    return whole


def _rows(old: sqlite3.Connection, table: _Table) -> Iterator[Row | None]:
    """The rows of a table as far as they can be read; None where one cannot."""
    select = f"SELECT {columns(table.columns)} FROM {table.name} NOT INDEXED"
    if not table.has_rowid:
        try:
            yield from old.execute(select)
        except _FAULTS:
            yield None
            with suppress(*_FAULTS):  # from the other end, up to the damage
                yield from old.execute(f"{select} ORDER BY 1 DESC")
        return
    ranges = [(1, _last_row(old, table.name))]
    faults = 0
    while ranges and faults < _MOST_FAULTS:
        low, high = ranges.pop()
        read = low
        try:
            for rowid, *row in old.execute(
                f"{select.replace('SELECT', 'SELECT rowid,')} WHERE rowid BETWEEN ? AND ? ORDER BY rowid", (low, high)
            ):
                read = rowid + 1
                yield tuple(row)
        except _FAULTS:
            faults += 1
            if read > low:
                ranges.append((read, high))
            elif low < high:
                ranges += [((low + high) // 2 + 1, high), (low, (low + high) // 2)]
            yield None


def _last_row(old: sqlite3.Connection, name: str) -> int:
    with suppress(*_FAULTS):
        return int(old.execute(f"SELECT coalesce(max(rowid), 0) FROM {name}").fetchone()[0])
    return _LAST_ROW


def _is_message(wire: object, role: object) -> bool:
    try:
        found = json.loads(wire if isinstance(wire, bytes) else b"")
    except (ValueError, RecursionError):
        return False
    if not isinstance(found, dict) or found.get("role") != role or not isinstance(found.get("content"), (str, list)):
        return False
    if role == Role.TOOL:
        return isinstance(found.get("tool_call_id"), str) and isinstance(found.get("name"), str)
    return "tool_calls" not in found or _are_calls(found["tool_calls"])


def _are_calls(found: object) -> bool:
    """Whether these are calls that a server takes back."""
    try:
        calls = decode(encode(found), tuple[_SentCall, ...])
    except (ValueError, TypeError, RecursionError):
        return False
    return not any(ToolCall(call.id, call.function.name, call.function.arguments).fault for call in calls)


def _mend(connection: sqlite3.Connection, whole: bool) -> None:
    """Make the rows refer to each other again. `whole`: all rows could be read."""
    for table in ("delta", "request", "covered", "in_episode"):
        connection.execute(f"DELETE FROM {table} WHERE node NOT IN (SELECT id FROM node)")
    _mend_tree(connection, whole)
    _restore_conversations(connection)
    connection.execute("DELETE FROM tag WHERE conversation NOT IN (SELECT id FROM conversation)")
    connection.execute("DELETE FROM kept WHERE name = '' AND id NOT IN (SELECT id FROM conversation)")
    connection.execute("DELETE FROM kept WHERE name != '' AND node NOT IN (SELECT id FROM node)")


def _mend_tree(connection: sqlite3.Connection, whole: bool) -> None:
    """Put branches without a beginning under a system message, and in between what a history needs to be sent; compute
    every digest again. `whole`: no message was lost."""
    above: dict[str, str | None] = dict(connection.execute("SELECT id, parent FROM node").fetchall())
    system = {row[0] for row in connection.execute("SELECT id FROM node WHERE role = 'system'")}
    lost = [id for id, parent in above.items() if parent not in above and not (parent is None and id in system)]
    below: dict[str | None, list[str]] = {}
    for id, parent in above.items():
        below.setdefault(parent, []).append(id)

    def load(id: str) -> Node:
        return node_of(connection.execute(f"SELECT {columns(NODE_FIELDS)} FROM node WHERE id = ?", (id,)).fetchone())

    def children(of: Node) -> list[Node]:
        # One that is not there any more was reached before: a damaged row has made a loop.
        return [load(id) for id in below.get(of.id, ()) if id in above]

    ends: dict[str, str] = {}

    def chain(root: Node) -> None:
        for before, after in mending.mended(root, children, ends=not whole):
            if before.id != after.id:
                _insert(connection, after, like=before.id)
                if after.parent == ends.get(before.id, before.id):
                    ends[before.id] = after.id
                continue
            above.pop(after.id, None)
            if after.state is State.STREAMING and below.get(after.id):
                after = replace(after, state=State.INTERRUPTED)
            if after != before:
                row = dict(zip(NODE_FIELDS, row_of(after), strict=True))
                connection.execute(_MENDED, [row[name] for name in (*_CHANGING, "id")])

    for id in [id for id in below.get(None, ()) if id in system]:
        chain(load(id))
    if above:
        stand_in = messages.node(None, messages.system_message(""), 0.0)
        _insert(connection, stand_in)
    while above:  # first those whose parent is lost, then any loop that a damaged row has made
        below[stand_in.id] = [id for id in lost if id in above] or [next(iter(above))]
        chain(stand_in)
    connection.executemany("UPDATE conversation SET head = ? WHERE head = ?", [(end, id) for id, end in ends.items()])


def _insert(connection: sqlite3.Connection, node: Node, *, like: str = "") -> None:
    """Store a message, in the conversation of the message `like`."""
    marks = ", ".join("?" * len(NODE_FIELDS))
    connection.execute(
        f"INSERT INTO node({columns(NODE_FIELDS)}, conversation)"
        f" VALUES ({marks}, (SELECT conversation FROM node WHERE id = ?))",
        (*row_of(node), like),
    )


def _restore_conversations(connection: sqlite3.Connection) -> None:
    """Give messages whose conversation is lost a conversation, and conversations whose head is lost another."""
    lost = connection.execute(
        """SELECT conversation, min(created), max(created), sum(role = 'user') FROM node
           WHERE conversation IS NOT NULL AND conversation NOT IN (SELECT id FROM conversation)
           GROUP BY conversation"""
    ).fetchall()
    for id, created, updated, turns in lost:
        first = connection.execute(
            "SELECT text FROM node WHERE conversation = ? AND role = 'user' ORDER BY seq LIMIT 1", (id,)
        ).fetchone()
        connection.execute(
            "INSERT INTO conversation(id, created, updated, place, title, turns, model, unread)"
            " VALUES (?1, ?2, ?3, CAST(1000 * ?3 AS INTEGER), ?4, ?5, '', 0)",
            (id, created, updated, title_of(first[0]) if first else NEW_TITLE, turns),
        )
    headless = connection.execute(
        "SELECT id FROM conversation WHERE head IS NULL OR head NOT IN (SELECT id FROM node)"
    ).fetchall()
    for (id,) in headless:
        newest = connection.execute(
            "SELECT id FROM node WHERE conversation = ? ORDER BY seq DESC LIMIT 1", (id,)
        ).fetchone()
        connection.execute("UPDATE conversation SET head = ? WHERE id = ?", (newest[0] if newest else None, id))
