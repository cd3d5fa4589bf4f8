"""What can be read of a damaged database, row by row into a new one.

The rule: the damaged file is only read. A message keeps its wire bytes; they are made anew, from its text, only where
they are no longer a message. Digests are computed again along the tree, so that they are true of what was saved. A
branch whose beginning is lost stands under a default system message.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kvchat.prompt import message as messages
from kvchat.prompt.conversation import NEW_TITLE, title_of
from kvchat.prompt.message import Role
from kvchat.store import index, schema
from kvchat.store.conversations import collect
from kvchat.store.database import connect, has_fts
from kvchat.store.pages import Pages, RawRow, Value
from kvchat.store.rows import (
    CONVERSATION_FIELDS,
    ENTRY_FIELDS,
    NODE_FIELDS,
    columns,
    conversations_of,
    node_of,
    row_of,
)

_NODE = ("conversation", "parent", "role", "text", "blocks", "reasoning", "reasoning_field", "wire", "digest",
         "created", "state", "model", "figures", "note", "owner")
_ID = re.compile("[0-9a-f]{32}")
_LATER = ("", 0, 1, "", "off")
"""What rows of an older shape lack."""
_REAL = ("created", "updated", "trashed")
_SHAPES = {
    (5, True): ("collection", "ittrR"),
    (9, True): ("cell", "ittrtttit"),
    (11, True): ("side_request", "ittrtttIIIr"),
    (12, True): ("change", "ittTtrttttii"),
    (13, True): ("entry", "ittttrtRtttti"),
    (4, False): ("covered", "tttb"),
    (10, False): ("job", "ttrittrTRr"),
}
"""The table of a row by the number of its values and whether it has a row number, and what each value is: a text, an
integer, a real, bytes. Capital: or nothing."""
_KINDS: dict[str, type | tuple[type, ...]] = {"t": str, "i": int, "r": (int, float), "b": bytes}
_ENTRY_ID = re.compile("[0-9a-z]{9}")
_COLLECTION = re.compile(r"[\w.-]{1,40}")
_SINCE = """INSERT INTO setting SELECT ?, coalesce(
    (SELECT min(seq) - 1 FROM node JOIN covered ON covered.node = node.id), max(seq), 0) FROM node WHERE true
    ON CONFLICT DO NOTHING"""
"""Where it is lost: memory came before the first message that was gone through, else it comes now."""
_ENTRIES_OF_CHANGES = f"""INSERT INTO entry({columns(ENTRY_FIELDS)}) SELECT
    {", ".join(f"json_extract(after, '$[{number}]')" for number in range(len(ENTRY_FIELDS)))}
    FROM change WHERE seq IN (SELECT max(seq) FROM change GROUP BY entry) AND json_valid(after)
    ON CONFLICT DO NOTHING"""
"""The entries whose own row is lost, as the history has them."""


@dataclass(frozen=True, slots=True)
class Saved:
    conversations: int
    messages: int
    lost: int
    """Rows known to be missing; there may be more."""


def salvage(damaged: Path, fresh: Path) -> Saved:
    """Make the database `fresh` from the rows of `damaged`. Raises sqlite3.Error and OSError for `fresh`."""
    fresh.touch(0o600, exist_ok=False)
    connection = connect(fresh)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        schema.migrate(connection)
        connection.execute("DELETE FROM setting")
        with closing(Pages(damaged)) as pages:
            for row in pages.rows():
                _save(connection, row)
        lost = pages.unreadable + _mend(connection)
        collect(connection, False)
        conversations, saved = connection.execute(
            "SELECT (SELECT count(*) FROM conversation), (SELECT count(*) FROM node WHERE role != 'system')").fetchone()
        chosen = connection.execute("SELECT 1 FROM entry UNION ALL SELECT 1 FROM collection LIMIT 1").fetchone()
        if not conversations and not chosen:  # another program's file: what looked like ours was not
            for table in ("draft", "prompt", "setting", "cell", "side_request", "change", "job"):
                connection.execute(f"DELETE FROM {table}")
        connection.execute(_SINCE, (schema.MEMORY_SINCE,))
        index.ensure(connection, has_fts(connection))
        connection.execute("COMMIT")
        return Saved(conversations, saved, lost)
    finally:
        connection.close()


def _save(connection: sqlite3.Connection, row: RawRow) -> None:
    """Store a row in the table that its shape belongs to, if it belongs to one."""
    values = row.values
    try:
        match len(values), row.rowid:
            case 17, int() if isinstance(values[9], bytes):  # wire bytes
                _save_node(connection, row.rowid, values[1:])
            case 14 | 16 | 17 | 19, int():  # before and with the server of a conversation, with memory, documents
                _save_conversation(connection, row.rowid, values[1:])
            case 6, None if _texts(values):
                connection.execute("INSERT INTO request VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", values)
            case 5, None if isinstance(values[1], int) and isinstance(values[2], bytes):
                connection.execute("INSERT INTO delta VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", values)
            case 3, None if _texts(values[:2]) and isinstance(values[2], (int, float)):
                connection.execute("INSERT INTO prompt VALUES (?, ?, ?) ON CONFLICT DO NOTHING", values)
            case 2, None if _texts(values):
                table = "draft" if _ID.fullmatch(str(values[0])) else "setting"
                if values[0] != index.STATE:
                    connection.execute(f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT DO NOTHING", values)
            case count, rowid if shape := _SHAPES.get((count, rowid is not None)):
                _save_plain(connection, *shape, row)
    except (KeyError, TypeError, ValueError, sqlite3.IntegrityError):
        pass  # not a row of ours, or not whole


def _save_plain(connection: sqlite3.Connection, table: str, kinds: str, row: RawRow) -> None:
    """Store a row that nothing has to be mended in. Of two copies any is as good."""
    if row.rowid is not None and row.values[0] is not None:  # a row number that has a name is stored as NULL
        raise ValueError("not such a row")
    values = row.values if row.rowid is None else (row.rowid, *row.values[1:])
    if not all(map(_is_a, values, kinds)) or not _is_ours(table, values):
        raise ValueError("not such a row")
    connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))}) ON CONFLICT DO NOTHING", values)


def _is_ours(table: str, values: Sequence[Value]) -> bool:
    """Whether the values can be such a row of kvchat, and not of another program that keeps rows of this shape."""
    match table:
        case "entry":
            return bool(_ENTRY_ID.fullmatch(str(values[1])))
        case "collection":
            return bool(_COLLECTION.fullmatch(str(values[1]))) and Path(str(values[2])).is_absolute()
    return True


def _is_a(value: Value, kind: str) -> bool:
    return isinstance(value, _KINDS[kind.lower()]) or (value is None and kind.isupper())


def _texts(values: Sequence[Value]) -> bool:
    return all(isinstance(value, str) for value in values)


def _real(names: Sequence[str], values: Sequence[Value]) -> dict[str, Value]:
    """The values by name; SQLite stores a REAL without a fraction as an integer."""
    return {name: float(value) if name in _REAL and isinstance(value, int) else value
            for name, value in zip(names, values, strict=True)}


def _save_node(connection: sqlite3.Connection, seq: int, values: Sequence[Value]) -> None:
    found = _real(("id", *_NODE), values)
    node = node_of([found[name] for name in NODE_FIELDS])
    texts = [node.id, node.text, node.message.reasoning, node.model, node.note]
    whole = (found["role"] in tuple(Role) and _texts(texts)
             and isinstance(node.wire, bytes) and isinstance(node.digest, bytes) and isinstance(node.created, float))
    if not whole or not _ID.fullmatch(node.id):
        raise ValueError("not a message")
    if not _is_message(node.wire, node.role):
        found["wire"] = node.message.wire()
    # Of two copies the settled one counts.
    connection.execute(
        f"INSERT INTO node(seq, {columns(tuple(found))}) VALUES ({', '.join('?' * (len(found) + 1))})"
        " ON CONFLICT(id) DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in found if name != "id")
        + " WHERE state = 'streaming'", (seq, *found.values()))


def _is_message(wire: bytes, role: str) -> bool:
    try:
        found = json.loads(wire)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("role") == role and isinstance(found.get("content"), str)


def _save_conversation(connection: sqlite3.Connection, seq: int, values: Sequence[Value]) -> None:
    found = _real(CONVERSATION_FIELDS, [*values, *_LATER[len(values) - len(CONVERSATION_FIELDS):]]
                  if len(values) < len(CONVERSATION_FIELDS) else values)
    conversation = conversations_of([list(found.values())])[0]
    whole = (_texts([found[name] for name in ("id", "title", "model", "server", "collections", "searching")])
             and isinstance(conversation.updated, float))
    if not whole or not _ID.fullmatch(conversation.id):
        raise ValueError("not a conversation")
    connection.execute(
        f"INSERT INTO conversation(seq, {columns(CONVERSATION_FIELDS)})"
        f" VALUES ({', '.join('?' * (len(found) + 1))})"
        " ON CONFLICT(id) DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in found if name != "id")
        + " WHERE excluded.updated > updated", (seq, *found.values()))


def _mend(connection: sqlite3.Connection) -> int:
    """Make the saved rows refer to each other again; how many were found missing."""
    for table in ("delta", "request", "covered"):
        connection.execute(f"DELETE FROM {table} WHERE node NOT IN (SELECT id FROM node)")
    connection.execute(_ENTRIES_OF_CHANGES)
    missing = _mend_tree(connection)
    missing += _restore_conversations(connection)
    return missing


def _mend_tree(connection: sqlite3.Connection) -> int:
    """Put branches without a beginning under a system message, and compute every digest again."""
    above: dict[str, str | None] = dict(connection.execute("SELECT id, parent FROM node").fetchall())
    system = {row[0] for row in connection.execute("SELECT id FROM node WHERE role = 'system'")}
    missing = {parent for parent in above.values() if parent is not None and parent not in above}
    lost = [id for id, parent in above.items() if parent not in above and not (parent is None and id in system)]
    stand_in = messages.node(None, messages.system_message(""), 0.0)
    below: dict[str | None, list[str]] = {}
    for id, parent in above.items():
        below.setdefault(parent, []).append(id)

    def chain(roots: list[str], digest: bytes) -> None:
        todo = [(root, digest) for root in roots]
        while todo:
            id, parent_digest = todo.pop()
            if id not in above:  # done before: a loop
                continue
            del above[id]
            wire = connection.execute("SELECT wire FROM node WHERE id = ?", (id,)).fetchone()[0]
            own = messages.chained(parent_digest, wire)
            connection.execute("UPDATE node SET digest = ? WHERE id = ? AND digest != ?", (own, id, own))
            todo += [(child, own) for child in below.get(id, ())]

    chain([id for id in below.get(None, ()) if id in system], b"")
    if above:
        connection.execute(
            f"INSERT INTO node({columns(NODE_FIELDS)}) VALUES ({', '.join('?' * len(NODE_FIELDS))})", row_of(stand_in))
    while above:  # first those whose parent is lost, then any loop that a damaged row has made
        roots = [id for id in lost if id in above] or [next(iter(above))]
        connection.executemany("UPDATE node SET parent = ? WHERE id = ?", [(stand_in.id, id) for id in roots])
        chain(roots, stand_in.digest)
    return len(missing)


def _restore_conversations(connection: sqlite3.Connection) -> int:
    """Give messages whose conversation is lost a conversation, and conversations whose head is lost another."""
    lost = connection.execute(
        """SELECT conversation, min(created), max(created), sum(role = 'user') FROM node
           WHERE conversation IS NOT NULL AND conversation NOT IN (SELECT id FROM conversation)
           GROUP BY conversation""").fetchall()
    for id, created, updated, turns in lost:
        first = connection.execute(
            "SELECT text FROM node WHERE conversation = ? AND role = 'user' ORDER BY seq LIMIT 1", (id,)).fetchone()
        connection.execute(
            "INSERT INTO conversation(id, created, updated, title, turns, model, unread) VALUES (?, ?, ?, ?, ?, '', 0)",
            (id, created, updated, title_of(first[0]) if first else NEW_TITLE, turns))
    headless = connection.execute(
        "SELECT id FROM conversation WHERE head IS NULL OR head NOT IN (SELECT id FROM node)").fetchall()
    for (id,) in headless:
        newest = connection.execute(
            "SELECT id FROM node WHERE conversation = ? ORDER BY created DESC, seq DESC LIMIT 1", (id,)).fetchone()
        connection.execute("UPDATE conversation SET head = ? WHERE id = ?", (newest[0] if newest else None, id))
    return len(lost) + len(headless)
