"""What can be read of a damaged database, row by row into a new one: through SQLite where that goes, else from the
pages of the file, where the schema or a tree above them is lost.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kvchat.prompt import message as messages
from kvchat.prompt.conversation import NEW_TITLE, title_of
from kvchat.prompt.message import Role
from kvchat.store.conversations import collect
from kvchat.store.file import schema, wal
from kvchat.store.file.database import connect, has_fts
from kvchat.store.file.schema import MAGIC
from kvchat.store.fulltext import index
from kvchat.store.rows import (
    CONVERSATION_FIELDS,
    ENTRY_FIELDS,
    NODE_FIELDS,
    columns,
    conversations_of,
    node_of,
    row_of,
)

_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR = 13, 10, 2
_INT_SIZES = (0, 1, 2, 3, 4, 6, 8)

Value = None | int | float | str | bytes


@dataclass(frozen=True, slots=True)
class RawRow:
    rowid: int | None
    """None for a row of an index or of a WITHOUT ROWID table."""
    values: tuple[Value, ...]


class Pages:
    """The pages of a database, the log's newer ones in front."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            empty = not file.seek(0, os.SEEK_END)
            self._data = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.size = 4096
        self.usable = self.size
        if self._data[:16] == MAGIC:
            size = int.from_bytes(self._data[16:18], "big")
            size = 65536 if size == 1 else size
            if 512 <= size <= 65536 and size & (size - 1) == 0:
                self.size = size
                self.usable = max(480, size - self._data[20])
        self.unreadable = 0
        """Cells whose row could not be decoded."""
        log = wal.read(path, self.size)
        self._newer = {} if log is None else log.pages
        self.count = max([len(self._data) // self.size, *self._newer])

    def close(self) -> None:
        if isinstance(self._data, mmap.mmap):
            self._data.close()

    def page(self, number: int) -> bytes:
        """The page with this number, from 1. Raises ValueError if there is none."""
        if not 1 <= number <= self.count:
            raise ValueError("no such page")
        return self._newer.get(number) or self._data[(number - 1) * self.size : number * self.size]

    def rows(self) -> Iterator[RawRow]:
        """Every row that can be decoded, in no order; one may come twice."""
        for number in range(1, self.count + 1):
            page = self.page(number)
            start = 100 if number == 1 else 0
            if len(page) == self.size and page[start] in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR):
                yield from self._cells(page, start)

    def _cells(self, page: bytes, start: int) -> Iterator[RawRow]:
        kind = page[start]
        first = start + (12 if kind == _INDEX_INTERIOR else 8)
        count = min(int.from_bytes(page[start + 3 : start + 5], "big"), (self.size - first) // 2)
        for i in range(count):
            at = int.from_bytes(page[first + 2 * i : first + 2 * i + 2], "big")
            try:
                yield self._cell(page, kind, at + (4 if kind == _INDEX_INTERIOR else 0))
            except (ValueError, IndexError, struct.error):
                self.unreadable += kind == _TABLE_LEAF

    def _cell(self, page: bytes, kind: int, at: int) -> RawRow:
        length, at = _varint(page, at)
        rowid: int | None = None
        most = (self.usable - 12) * 64 // 255 - 23
        if kind == _TABLE_LEAF:
            rowid, at = _varint(page, at)
            most = self.usable - 35
        if length > len(self._data) + len(self._newer) * self.size:
            raise ValueError("a row longer than the file")
        local = length
        if length > most:
            least = (self.usable - 12) * 32 // 255 - 23
            local = least + (length - least) % (self.usable - 4)
            local = local if local <= most else least
        payload = page[at : at + local]
        if length > local:
            payload += self._overflow(int.from_bytes(page[at + local : at + local + 4], "big"), length - local)
        return RawRow(rowid, tuple(_record(payload)))

    def _overflow(self, number: int, length: int) -> bytes:
        parts = []
        while length > 0:
            page = self.page(number)
            part = page[4 : min(self.usable, 4 + length)]
            if not part:
                raise ValueError("a row that goes on nowhere")
            parts.append(part)
            length -= len(part)
            number = int.from_bytes(page[:4], "big")
        return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(8):
        byte = data[at + i]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + i + 1
    return value << 8 | data[at + 8], at + 9


def _record(data: bytes) -> Iterator[Value]:
    end, at = _varint(data, 0)
    body = end
    while at < end:
        kind, at = _varint(data, at)
        size = _INT_SIZES[kind] if kind <= 6 else 8 if kind == 7 else 0 if kind < 12 else (kind - 12) // 2
        raw = data[body : body + size]
        if len(raw) != size or kind in (10, 11):
            raise ValueError("a row that is cut")
        body += size
        if kind == 0:
            yield None
        elif kind <= 6:
            yield int.from_bytes(raw, "big", signed=True)
        elif kind == 7:
            yield struct.unpack(">d", raw)[0]
        elif kind < 12:
            yield kind - 8
        else:
            yield raw.decode("utf-8", "replace") if kind % 2 else raw
    if body != len(data):
        raise ValueError("a row that is longer than it says")


_NODE = (
    "conversation",
    "parent",
    "role",
    "text",
    "blocks",
    "reasoning",
    "reasoning_field",
    "wire",
    "digest",
    "created",
    "state",
    "model",
    "figures",
    "note",
    "owner",
    "ids",
    "pasted",
)
_ID = re.compile("[0-9a-f]{32}")
_CONVERSATION = (*CONVERSATION_FIELDS, "place")
_LATER = ("", 0, 1, "", "off", None)
"""What rows of an older shape lack."""
_REAL = ("created", "updated", "trashed")
_SHAPES = {
    (3, True): ("tag", "itt"),
    (4, True): ("kept", "ittr"),
    (5, True): ("collection", "ittrR"),
    (6, True): ("image", "itbiir"),
    (7, True): ("queued", "ittttrr"),
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
            "SELECT (SELECT count(*) FROM conversation), (SELECT count(*) FROM node WHERE role != 'system')"
        ).fetchone()
        chosen = connection.execute("SELECT 1 FROM entry UNION ALL SELECT 1 FROM collection LIMIT 1").fetchone()
        if not conversations and not chosen:  # another program's file: what looked like ours was not
            for table in ("draft", "prompt", "setting", "queued", "cell", "side_request", "change", "job"):
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
            case 17 | 18 | 19, int() if isinstance(values[9], bytes):  # wire bytes; without and with ids, pastes
                _save_node(connection, row.rowid, (*values[1:], None, None)[:18])
            case 14 | 16 | 17 | 19 | 20, int():  # without and with its server, with memory, documents, its place
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
            case 4, int() if isinstance(values[3], bytes):  # its last value is no time
                _save_plain(connection, "in_episode", "ittb", row)
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
        case "queued":
            return all(_ID.fullmatch(str(value)) for value in values[1:3])
        case "image":
            return hashlib.sha256(values[2] if isinstance(values[2], bytes) else b"").hexdigest() == values[1]
        case "tag":
            return bool(_ID.fullmatch(str(values[1])))
        case "kept":
            return all(_ID.fullmatch(str(value)) for value in (values[1], values[2] or values[1]))
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
    return {
        name: float(value) if name in _REAL and isinstance(value, int) else value
        for name, value in zip(names, values, strict=True)
    }


def _save_node(connection: sqlite3.Connection, seq: int, values: Sequence[Value]) -> None:
    found = _real(("id", *_NODE), values)
    node = node_of([found[name] for name in NODE_FIELDS])
    texts = [node.id, node.text, node.message.reasoning, node.model, found["note"]]
    whole = (
        found["role"] in tuple(Role)
        and _texts(texts)
        and isinstance(node.wire, bytes)
        and isinstance(node.digest, bytes)
        and isinstance(node.created, float)
    )
    if not whole or not _ID.fullmatch(node.id):
        raise ValueError("not a message")
    if not _is_message(node.wire, node.role):
        found["wire"] = node.message.wire()
    # Of two copies the settled one counts.
    connection.execute(
        f"INSERT INTO node(seq, {columns(tuple(found))}) VALUES ({', '.join('?' * (len(found) + 1))})"
        " ON CONFLICT(id) DO UPDATE SET "
        + ", ".join(f"{name} = excluded.{name}" for name in found if name != "id")
        + " WHERE state = 'streaming'",
        (seq, *found.values()),
    )


def _is_message(wire: bytes, role: str) -> bool:
    try:
        found = json.loads(wire)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("role") == role and isinstance(found.get("content"), (str, list))


def _save_conversation(connection: sqlite3.Connection, seq: int, values: Sequence[Value]) -> None:
    found = _real(_CONVERSATION, [*values, *_LATER[len(_LATER) - len(_CONVERSATION) + len(values) :]])
    conversation = conversations_of([list(found.values())[:-1]], {})[0]
    whole = _texts(
        [found[name] for name in ("id", "title", "model", "server", "collections", "retrieval")]
    ) and isinstance(conversation.updated, float)
    if not whole or not _ID.fullmatch(conversation.id):
        raise ValueError("not a conversation")
    if not isinstance(found["place"], int):
        found["place"] = int(1000 * conversation.updated)
    connection.execute(
        f"INSERT INTO conversation(seq, {columns(_CONVERSATION)})"
        f" VALUES ({', '.join('?' * (len(found) + 1))})"
        " ON CONFLICT(id) DO UPDATE SET "
        + ", ".join(f"{name} = excluded.{name}" for name in found if name != "id")
        + " WHERE excluded.updated > updated",
        (seq, *found.values()),
    )


def _mend(connection: sqlite3.Connection) -> int:
    """Make the saved rows refer to each other again; how many were found missing."""
    for table in ("delta", "request", "covered", "in_episode"):
        connection.execute(f"DELETE FROM {table} WHERE node NOT IN (SELECT id FROM node)")
    connection.execute(_ENTRIES_OF_CHANGES)
    missing = _mend_tree(connection)
    missing += _restore_conversations(connection)
    for table in ("tag", "kept"):
        connection.execute(f"DELETE FROM {table} WHERE conversation NOT IN (SELECT id FROM conversation)")
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
            f"INSERT INTO node({columns(NODE_FIELDS)}) VALUES ({', '.join('?' * len(NODE_FIELDS))})", row_of(stand_in)
        )
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
           GROUP BY conversation"""
    ).fetchall()
    for id, created, updated, turns in lost:
        first = connection.execute(
            "SELECT text FROM node WHERE conversation = ? AND role = 'user' ORDER BY seq LIMIT 1", (id,)
        ).fetchone()
        connection.execute(
            "INSERT INTO conversation(id, created, updated, title, turns, model, unread) VALUES (?, ?, ?, ?, ?, '', 0)",
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
    return len(lost) + len(headless)
