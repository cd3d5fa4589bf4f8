"""Conversations that came in from files: stored some at a time, and taken back as one act.

What is stored already is not changed. A conversation that has grown since gets its new messages; its head moves to
them only from where the import before left it. Taking an import back puts into the trash the conversations that it made
and that have no later messages.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Node, Role
from kvchat.prompt.wire import whole_characters
from kvchat.store import tips
from kvchat.store.conversations import ConversationRows, move, put
from kvchat.store.errors import UnknownImport
from kvchat.store.file.database import Database
from kvchat.store.fulltext import index
from kvchat.store.rows import NODE_FIELDS, columns, from_json, row_of, to_json
from kvchat.text.problems import StoreProblem

if TYPE_CHECKING:
    from kvchat.store.images import Image

KEY = "store.import "
"""In front of an import's id: the key of the setting that tells of it. Behind the id and a number: of each part of it,
the conversations that it made, those that grew, and the last message that was there before it and after it."""
_DIGITS = 8

_ADD = (
    f"INSERT INTO node({columns(NODE_FIELDS)}, conversation) VALUES ({', '.join('?' * (len(NODE_FIELDS) + 1))})"
    " ON CONFLICT(id) DO NOTHING"
)
_COVER = "INSERT INTO covered VALUES (?, ?, ?, ?) ON CONFLICT(node) DO NOTHING"
# A fork that came first has stored the messages that it shares with this one.
_CLAIM = """UPDATE node SET conversation = :id WHERE id IN (SELECT value FROM json_each(:nodes))
            AND conversation IN (SELECT id FROM conversation WHERE forked_from = :id)"""


class Arrival(Struct, frozen=True):
    """A conversation that comes in."""

    conversation: Conversation
    """As it is when it is stored."""
    nodes: tuple[Node, ...]
    """Its messages that are not stored yet, each after its parent."""
    before: Conversation | None = None
    """As it was stored; None: it was not."""
    shared: Collection[str] = ()
    """Ids of messages that are this conversation's, though a fork of it may have brought them."""
    marks: Mapping[str, bytes] = field(default_factory=dict)
    """The messages that count as covered by extraction, each with its mark."""
    draft: str = ""
    images: tuple[Image, ...] = ()
    """Those of its messages that are not stored yet."""


class ImportBatch(Struct, frozen=True):
    """One import."""

    id: str
    at: float
    """Seconds since the epoch."""
    conversations: int = 0
    """That it made or that grew."""
    undone: float | None = None
    """When it was taken back."""
    last: int = 0
    """The number of the last message that was stored then: imports are in the order of these."""


class Undone(Struct, frozen=True):
    """What taking an import back did."""

    batch: ImportBatch
    trashed: int = 0
    """Conversations that went into the trash."""
    kept: int = 0
    """Those that have changed since, and so stay as they are."""
    back: int = 0
    """Those that had grown and are back at their earlier head."""
    touched: tuple[str, ...] = ()
    """The ids of all of them."""


class ImportRows:
    """Reads and writes of imports. Every method may raise StoreError."""

    def __init__(self, db: Database, conversations: ConversationRows) -> None:
        self._db = db
        self._conversations = conversations

    def digests(self, ids: Collection[str]) -> dict[str, bytes]:
        """The digests of those of these messages that are stored, in whichever conversation."""
        return dict(
            self._db.rows(
                "SELECT id, digest FROM node WHERE id IN (SELECT value FROM json_each(?))", (to_json(list(ids)),)
            )
        )

    def take_in(self, batch: ImportBatch, part: int, arrivals: Sequence[Arrival]) -> None:
        """Store conversations, all or none, as one part of an import."""
        from kvchat.store import images

        with self._db.write(durable=True) as connection:
            made, grown = list[str](), dict[str, list[str | None]]()
            first = self._last(connection)
            images.put(connection, [image for one in arrivals for image in one.images], batch.at)
            for one in arrivals:
                id, row = one.conversation.id, self._conversations.exact(one.conversation.id)
                nodes, moved = self._store(connection, one)
                if row is None:
                    head = one.conversation.head
                    put(connection, replace(one.conversation, head=moved.get(head, head)), first=False)
                    made.append(id)
                    if one.draft:
                        connection.execute(
                            "INSERT INTO draft VALUES (?, ?) ON CONFLICT DO NOTHING", (id, whole_characters(one.draft))
                        )
                else:
                    changed = self._grown(connection, row, one, nodes)
                    move(connection, changed, first=False)
                    if row.trashed is None:
                        grown[id] = [row.head, changed.head]
                    else:
                        made.append(id)
                if one.shared:
                    connection.execute(_CLAIM, {"id": id, "nodes": to_json(list(one.shared))})
                connection.executemany(_COVER, [(node, batch.id, id, mark) for node, mark in one.marks.items()])
            last = self._last(connection)
            stored = {"made": made, "grown": grown, "first": first, "last": last}
            self._note(connection, f"{batch.id} {part:06}", stored)
            self._note_batch(connection, replace(batch, last=last))

    def _store(self, connection: sqlite3.Connection, one: Arrival) -> tuple[list[Node], dict[str | None, str]]:
        """Store the messages; those that were not there, and the ids that others of the same bytes have."""
        moved: dict[str | None, str] = {}
        stored = []
        for node in one.nodes:
            if node.parent is None:
                root = self._conversations.shared_root(connection, node)
                if root.id != node.id:
                    moved[node.id] = root.id
                continue
            if node.parent in moved:
                node = replace(node, parent=moved[node.parent])
            if connection.execute(_ADD, (*row_of(node), one.conversation.id)).rowcount > 0:
                index.put(connection, self._db.fts, node.id)
                stored.append(node)
        return stored, moved

    def _grown(
        self, connection: sqlite3.Connection, row: Conversation, one: Arrival, nodes: Sequence[Node]
    ) -> Conversation:
        target, before = one.conversation, one.before
        untouched = before is not None and row.head == before.head
        comes_back = before is not None and before.trashed is not None
        questions = sum(node.role is Role.USER for node in nodes)
        return self._conversations.write(
            connection,
            row,
            lambda now: replace(
                now,
                head=target.head if untouched else now.head,
                updated=max(now.updated, target.updated),
                turns=now.turns + questions,
                trashed=None if comes_back else now.trashed,
            ),
        )

    # -- which there were ---------------------------------------------------------------------------------------------

    def all(self) -> list[ImportBatch]:
        """Newest first."""
        rows = self._db.rows("SELECT key, value FROM setting WHERE key GLOB ?", (KEY + "[0-9a-f]" * _DIGITS,))
        found = [_batch(key.removeprefix(KEY), value) for key, value in rows]
        return sorted(found, key=lambda batch: (batch.last, batch.at), reverse=True)

    def undo(self, id: str, now: float) -> Undone:
        """Take an import back; an empty `id`: the last one that is not taken back. Raises UnknownImport."""
        with self._db.write(durable=True) as connection:
            batch = next((one for one in self.all() if one.undone is None and (not id or one.id.startswith(id))), None)
            if batch is None:
                raise UnknownImport(StoreProblem.NO_IMPORT if id else StoreProblem.NO_IMPORTS, id=id[:40])
            parts = connection.execute(
                "SELECT key, value FROM setting WHERE key GLOB ? ORDER BY key DESC", (f"{KEY}{batch.id} *",)
            ).fetchall()
            trashed = kept = back = 0
            touched = list[str]()
            found = [(key, from_json(value, dict)) for key, value in parts]
            own = [(part.get("first", 0), part.get("last", 0)) for _, part in found]
            made_here = {made for _, part in found for made in part.get("made", ())}
            for key, part in found:
                for made in part.get("made", ()):
                    went = self._trash(connection, made, part.get("last", 0), own, now)
                    trashed, kept = trashed + went, kept + (not went)
                for one, (before, after) in part.get("grown", {}).items():
                    if one in made_here:
                        continue
                    went = self._step_back(connection, one, before, after)
                    back, kept = back + went, kept + (not went)
                touched += [*part.get("made", ()), *part.get("grown", {})]
                connection.execute("DELETE FROM setting WHERE key = ?", (key,))
            batch = replace(batch, undone=now)
            self._note_batch(connection, batch)
        return Undone(batch, trashed, kept, back, tuple(touched))

    @staticmethod
    def _trash(connection: sqlite3.Connection, id: str, last: int, own: list[tuple[int, int]], now: float) -> bool:
        """Put a conversation into the trash, unless it was continued: it then has messages after `last` that are not
        this import's `own`, which are those after the first and up to the second number of each pair."""
        since = connection.execute("SELECT seq FROM node WHERE conversation = ? AND seq > ?", (id, last))
        if not all(any(first < seq <= end for first, end in own) for (seq,) in since):
            return False
        trash = "UPDATE conversation SET trashed = ? WHERE id = ? AND trashed IS NULL"
        return connection.execute(trash, (now, id)).rowcount > 0

    @staticmethod
    def _last(connection: sqlite3.Connection) -> int:
        return int(connection.execute("SELECT coalesce(max(seq), 0) FROM node").fetchone()[0])

    @staticmethod
    def _step_back(connection: sqlite3.Connection, id: str, before: str | None, after: str | None) -> bool:
        if before == after:
            return True
        went = (
            connection.execute(
                "UPDATE conversation SET head = ? WHERE id = ? AND head = ?", (before, id, after)
            ).rowcount
            > 0
        )
        if went:
            tips.moved(connection, id, after, before, after)
        return went

    def _note_batch(self, connection: sqlite3.Connection, batch: ImportBatch) -> None:
        self._note(
            connection,
            batch.id,
            {"at": batch.at, "conversations": batch.conversations, "undone": batch.undone, "last": batch.last},
        )

    @staticmethod
    def _note(connection: sqlite3.Connection, key: str, value: object) -> None:
        connection.execute(
            "INSERT INTO setting VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
            (KEY + key, json.dumps(value)),
        )


def _batch(id: str, value: str) -> ImportBatch:
    found = from_json(value, dict)
    numbers = int(found.get("conversations", 0)), found.get("undone"), int(found.get("last", 0))
    return ImportBatch(id, float(found.get("at", 0.0)), *numbers)
