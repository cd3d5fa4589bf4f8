"""The queue: messages that wait in their conversations for the answer before them.

A message leaves the queue in the very transaction that stores it as a question (`take`), or by the user's
wish. So of two kvchats only one sends it.
"""

from __future__ import annotations

import sqlite3

from msgspec import Struct

from kvchat.prompt.wire import whole_characters
from kvchat.store.errors import NotQueued
from kvchat.store.file.database import Database
from kvchat.store.key_value import put_draft
from kvchat.text.problems import StoreProblem


class QueuedRow(Struct, frozen=True):
    """A message in the queue of a conversation."""

    id: str
    """32 hexadecimal digits."""
    conversation: str
    text: str
    more: str
    """What else belongs to it, as JSON."""
    created: float
    """Seconds since the epoch."""
    place: float | None = None
    """Those of a conversation are sent from the smallest on; None, before it is stored: behind the others."""


class QueueRows:
    """The queues of all conversations. Every method may raise StoreError."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def of(self, conversation: str) -> list[QueuedRow]:
        """The messages that wait in a conversation, in the order in which they are sent."""
        rows = self._db.rows(
            "SELECT id, conversation, text, more, created, place FROM queued WHERE conversation = ?"
            " ORDER BY place, seq",
            (conversation,),
        )
        return [QueuedRow(*row) for row in rows]

    def conversations(self) -> list[str]:
        """The ids of those in which something waits."""
        return [row[0] for row in self._db.rows("SELECT DISTINCT conversation FROM queued")]

    def put(self, row: QueuedRow) -> None:
        """One more message, at its place. One that is stored already stays as it is."""
        with self._db.write(durable=True) as connection:
            connection.execute(
                "INSERT INTO queued(id, conversation, text, more, created, place) VALUES (:id, :conversation, :text,"
                " :more, :created, coalesce(:place,"
                " (SELECT max(place) + 1 FROM queued WHERE conversation = :conversation), 0.0))"
                " ON CONFLICT DO NOTHING",
                {
                    "id": row.id,
                    "conversation": row.conversation,
                    "text": whole_characters(row.text),
                    "more": row.more,
                    "created": row.created,
                    "place": row.place,
                },
            )

    def drop(self, id: str, draft: str | None = None) -> bool:
        """Take a message out of the queue, and have this as its conversation's draft (None: that stays); whether it was
        there."""
        with self._db.write(durable=True) as connection:
            gone = connection.execute("DELETE FROM queued WHERE id = ? RETURNING conversation", (id,)).fetchall()
            for (conversation,) in gone if draft is not None else ():
                put_draft(connection, conversation, draft or "")
            return bool(gone)

    def move(self, id: str, step: int) -> None:
        """Have a message change places with the one `step` (1 or -1) after it; at the ends nothing happens."""
        with self._db.write() as connection:
            rows = connection.execute(
                "SELECT id FROM queued WHERE conversation = (SELECT conversation FROM queued WHERE id = ?)"
                " ORDER BY place, seq",
                (id,),
            ).fetchall()
            ids = [row[0] for row in rows]
            at = ids.index(id) if id in ids else -1
            if at >= 0 and 0 <= at + step < len(ids):
                ids[at], ids[at + step] = ids[at + step], ids[at]
                connection.executemany(
                    "UPDATE queued SET place = ? WHERE id = ?", [(float(place), one) for place, one in enumerate(ids)]
                )


def take(connection: sqlite3.Connection, id: str) -> None:
    """Inside the transaction that stores a message as a question: take it out of the queue. Raises NotQueued."""
    if not connection.execute("DELETE FROM queued WHERE id = ?", (id,)).rowcount:
        raise NotQueued(StoreProblem.NOT_QUEUED)
