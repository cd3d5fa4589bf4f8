"""Messages: added, streamed, settled; the evidence of what was sent for them; what an ended kvchat left streaming.

A node's bytes are written once, when it is settled. Until then its text is in rows of another table, one per delta.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from kvchat.figures.accounting import TurnFigures, WarmupTotals
from kvchat.figures.speed import SpeedSample
from kvchat.figures.stats import Answered
from kvchat.prompt.conversation import Conversation, SentRequest
from kvchat.prompt.message import Message, Node, NoteKind, Role, State, chained, has_end_only, settled
from kvchat.prompt.tools import INTERRUPTED, NOT_CARRIED_OUT
from kvchat.prompt.wire import whole_characters
from kvchat.store import tips
from kvchat.store.conversations import Change, ConversationRows, move
from kvchat.store.errors import ConversationDeleted, HeadMoved
from kvchat.store.file.database import Database
from kvchat.store.fulltext import index
from kvchat.store.presence.process_id import is_gone
from kvchat.store.queue import take
from kvchat.store.rows import NODE_FIELDS, columns, figures_of, node_of, row_of
from kvchat.text.problems import StoreProblem
from kvchat.values import said

LOOKED_THROUGH = 5_000
"""Messages among which the last answer of a model is looked for."""
_ADD = (
    f"INSERT INTO node({columns(NODE_FIELDS)}, conversation, owner)"
    f" VALUES ({', '.join('?' * (len(NODE_FIELDS) + 2))}) ON CONFLICT(id) DO NOTHING"
)
_FINAL = tuple(name for name in NODE_FIELDS if name not in ("id", "parent", "role", "created"))
# An answer that another kvchat believed abandoned is still its owner's to settle while no message follows it.
_OPEN = """(state = 'streaming' OR (state = 'interrupted' AND owner IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM node child WHERE child.parent = node.id)))"""
_SETTLE = f"UPDATE node SET {', '.join(f'{name} = ?' for name in _FINAL)}, owner = ? WHERE id = ?"

_SPEEDS = """SELECT figures FROM request JOIN node ON node.id = request.node
             WHERE server = ? AND request.model = ? AND figures IS NOT NULL ORDER BY created DESC"""
# All answers of a server that is always in use would be sorted for its last few: those are among the last of all.
_SPEEDS_OF_LATE = """SELECT figures FROM (SELECT id, figures, created FROM node WHERE figures IS NOT NULL
                     ORDER BY created DESC LIMIT 1000) late CROSS JOIN request ON request.node = late.id
                     WHERE server = ? AND model = ? ORDER BY created DESC"""


class MessageRows:
    def __init__(self, db: Database, conversations: ConversationRows) -> None:
        self._db = db
        self._conversations = conversations
        self._sequence: dict[str, int] = {}

    def add(
        self,
        known: Conversation,
        nodes: Sequence[Node],
        change: Change,
        *,
        shown: str | None,
        whole: bool,
        late: bool,
        queued: str,
    ) -> Conversation:
        with self._db.write(durable=True) as connection:
            row = self._conversations.stored(connection, known)
            if not late:
                self._check(connection, row, nodes, shown if whole else None)
            added = False
            for node in nodes:
                self._conversations.keep_root(connection, node.parent)
                added = self._insert(connection, node, row.id) or added
            if not added:
                return row  # it had been stored, though the disk said otherwise
            if queued:
                take(connection, queued)
            self._conversations.begin(connection, row.id)
            row = self._conversations.write(connection, row, change, shown)
            move(connection, row, first=True)
            return row

    def _check(self, connection: sqlite3.Connection, row: Conversation, nodes: Sequence[Node], end: str | None) -> None:
        """Raise a Conflict that forbids adding the nodes. `end`: where their branch must still end."""
        if row.trashed is not None:
            raise ConversationDeleted(StoreProblem.IN_TRASH)
        first = nodes[0]
        parent = connection.execute("SELECT state, digest FROM node WHERE id = ?", (first.parent,)).fetchone()
        if parent is not None and (parent[0] == State.STREAMING or chained(parent[1], first.wire) != first.digest):
            raise HeadMoved(StoreProblem.REPLY_DIFFERS)
        if end is not None and tips.is_above(connection, end, row.head):
            raise HeadMoved(StoreProblem.GONE_ON)

    def _insert(self, connection: sqlite3.Connection, node: Node, conversation: str | None) -> bool:
        owner = self._db.owner if node.state is State.STREAMING else None
        added = connection.execute(_ADD, (*row_of(node), conversation, owner)).rowcount > 0
        if added:
            index.put(connection, self._db.fts, node.id)
        return added

    def append(self, node: str, text: str, reasoning: str, reasoning_field: str) -> None:
        # A failed commit may have been kept: the same number again replaces it by the retry, which holds its text.
        number = self._sequence.get(node, 0)
        with self._db.write() as connection:
            connection.execute(
                "INSERT INTO delta SELECT id, ?, ?, ?, ? FROM node WHERE id = ? AND state = 'streaming'"
                " ON CONFLICT(node, seq) DO UPDATE SET text = excluded.text, reasoning = excluded.reasoning",
                (number, _delta(text), _delta(reasoning), whole_characters(reasoning_field), node),
            )
        self._sequence[node] = number + 1

    def begin_call(self, node: str) -> None:
        with self._db.write(durable=True) as connection:
            connection.execute("UPDATE node SET note = '' WHERE id = ? AND state = 'streaming'", (node,))

    def settle(self, node: Node, known: Conversation | None, change: Change | None) -> Conversation | None:
        row: Conversation | None = None
        with self._db.write(durable=True) as connection:
            if known is not None:
                row = self._conversations.stored(connection, known)
            self._settle(connection, node, row.id if row else None, owner=None)
            if row is not None and change is not None:
                row = self._conversations.write(connection, row, change)
                move(connection, row, first=True)
        self._sequence.pop(node.id, None)
        return row

    def _settle(self, connection: sqlite3.Connection, node: Node, conversation: str | None, owner: str | None) -> None:
        found = connection.execute(f"SELECT {_OPEN} FROM node WHERE id = ?", (node.id,)).fetchone()
        if found is None:
            self._insert(connection, node, conversation)
        elif found[0]:
            index.remove(connection, self._db.fts, node.id)
            final = dict(zip(NODE_FIELDS, row_of(node), strict=True))
            connection.execute(_SETTLE, (*(final[name] for name in _FINAL), owner, node.id))
            connection.execute("DELETE FROM delta WHERE node = ?", (node.id,))
            index.put(connection, self._db.fts, node.id)

    def drop(self, node: str) -> None:
        with self._db.write(durable=True) as connection:
            found = connection.execute(
                """SELECT parent FROM node WHERE id = ? AND role = 'assistant'
                   AND (text = '' OR EXISTS (SELECT 1 FROM node twin WHERE twin.parent = node.parent
                        AND twin.digest = node.digest AND twin.id != node.id AND twin.state != 'streaming'))
                   AND NOT EXISTS (SELECT 1 FROM node child WHERE child.parent = node.id)""",
                (node,),
            ).fetchone()
            if found:
                index.remove(connection, self._db.fts, node)
                connection.execute("UPDATE conversation SET head = ? WHERE head = ?", (found[0], node))
                connection.execute("DELETE FROM node WHERE id = ?", (node,))
        self._sequence.pop(node, None)

    def is_streaming(self, node: str, owner: bool) -> bool:
        row = self._db.row("SELECT state, owner FROM node WHERE id = ?", (node,))
        if row is None or row[0] != State.STREAMING:
            return False
        if owner and is_gone(row[1]):
            self.recover()
            return False
        return True

    def recover(self) -> int:
        """Settle the answers whose kvchat ended while they streamed; how many there were."""
        # The plus keeps SQLite from walking the index over all parents instead of the one over what streams.
        abandoned = "SELECT id, owner FROM node WHERE state = 'streaming' AND +parent IS NOT NULL"
        if not any(is_gone(owner) for _, owner in self._db.rows(abandoned)):
            return 0
        count = 0
        with self._db.write(durable=True) as connection:
            for id, owner in connection.execute(abandoned).fetchall():
                if is_gone(owner):
                    final = self._interrupted(connection, id)
                    self._settle(connection, final, None, owner)
                    count += 1
        return count

    def _interrupted(self, connection: sqlite3.Connection, id: str) -> Node:
        def load(id: str) -> Node:
            sql = f"SELECT {columns(NODE_FIELDS)} FROM node WHERE id = ?"
            return node_of(connection.execute(sql, (id,)).fetchone())

        streaming = load(id)
        deltas = connection.execute(
            "SELECT text, reasoning, reasoning_field FROM delta WHERE node = ? ORDER BY seq", (id,)
        ).fetchall()
        begun = streaming.message
        field = deltas[-1][2] if deltas else begun.reasoning_field
        if has_end_only(field) and not has_end_only(begun.reasoning_field):
            # What was text before the end of the thought is stored again as reasoning.
            begun, deltas = Message(begun.role, ""), [row for row in deltas if has_end_only(row[2])]
        waited = streaming.note is not None and streaming.note.is_a(NoteKind.CALL_WAITS)
        text = begun.text + _joined(row[0] for row in deltas)
        if begun.role is Role.TOOL:
            text = NOT_CARRIED_OUT if waited else INTERRUPTED
        reasoning = begun.reasoning + _joined(row[1] for row in deltas)
        return settled(
            streaming,
            load(streaming.parent or ""),
            text,
            reasoning,
            State.INTERRUPTED,
            reasoning_field=field,
            note=said(NoteKind.KVCHAT_ENDED),
        )

    def last_reasoning_field(self, model: str) -> str:
        row = self._db.row(
            "SELECT reasoning_field FROM node WHERE seq > (SELECT max(seq) FROM node) - ? AND model = ?"
            " AND role = 'assistant' AND state != 'streaming' ORDER BY seq DESC LIMIT 1",
            (LOOKED_THROUGH, model),
        )
        return row[0] if row is not None else ""

    def record_request(self, node: str, body_sha256: str, server: str, kind: str, build: str, model: str) -> None:
        with self._db.write() as connection:
            connection.execute(
                "INSERT INTO request SELECT id, ?, ?, ?, ?, ? FROM node WHERE id = ? ON CONFLICT(node) DO UPDATE SET"
                " body_sha256 = excluded.body_sha256, server = excluded.server, kind = excluded.kind,"
                " build = excluded.build, model = excluded.model",
                (body_sha256, *map(whole_characters, (server, kind, build, model)), node),
            )

    def request_of(self, node: str) -> SentRequest | None:
        row = self._db.row("SELECT body_sha256, server, kind, build, model FROM request WHERE node = ?", (node,))
        return SentRequest(*row) if row else None

    def record_warmup(self, conversation: str, created: float, server: str, model: str, read: SpeedSample) -> None:
        with self._db.write() as connection:
            connection.execute(
                "INSERT INTO warmup(conversation, created, server, model, cached, evaluated, seconds)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    conversation,
                    created,
                    whole_characters(server),
                    whole_characters(model),
                    read.start,
                    read.end - read.start,
                    read.seconds,
                ),
            )

    def warmups(self, since: float, conversation: str | None) -> WarmupTotals:
        row = self._db.row(
            "SELECT count(*), coalesce(sum(evaluated), 0), coalesce(sum(seconds), 0) FROM warmup"
            " WHERE created >= ? AND (? IS NULL OR conversation = ?)",
            (since, conversation, conversation),
        )
        return WarmupTotals(int(row[0]), int(row[1]), float(row[2]))

    def warmup_samples(self, server: str, model: str, limit: int) -> list[SpeedSample]:
        rows = self._db.rows(
            "SELECT cached, evaluated, seconds FROM warmup WHERE server = ? AND model = ? ORDER BY seq DESC LIMIT ?",
            (server, model, limit),
        )
        return [SpeedSample(int(row[0]), int(row[0]) + int(row[1]), float(row[2])) for row in rows]

    def answers(self, since: float) -> list[Answered]:
        rows = self._db.rows(
            """SELECT created, coalesce(server, ''), coalesce(request.model, ''), calls IS NOT NULL, figures
               FROM node LEFT JOIN request ON request.node = node.id
               WHERE figures IS NOT NULL AND created >= ? ORDER BY created""",
            (since,),
        )
        found = figures_of(row[4] for row in rows)
        return [
            Answered(float(row[0]), (row[1], row[2]), figures, bool(row[3]))
            for row, figures in zip(rows, found, strict=True)
            if figures
        ]

    def speed_samples(self, server: str, model: str, limit: int) -> list[TurnFigures]:
        wanted = (server, model, limit)
        rows = self._db.rows(f"{_SPEEDS_OF_LATE} LIMIT ?", wanted)
        if len(rows) < limit:
            rows = self._db.rows(f"{_SPEEDS} LIMIT ?", wanted)
        return [found for found in figures_of(row[0] for row in rows) if found]


def _delta(text: str) -> bytes:
    """Bytes, because a delta may end between the two halves of a surrogate pair."""
    return text.encode("utf-8", "surrogatepass")


def _joined(deltas: Iterable[bytes]) -> str:
    return b"".join(deltas).decode("utf-8", "surrogatepass")
