"""The table of claims: conversations whose state the user keeps, and trunks. The states are files of their own."""

from __future__ import annotations

from kvchat.prompt.message import Node
from kvchat.reports.kept import Keep
from kvchat.store.conversations import ConversationRows, collect
from kvchat.store.file.database import Database
from kvchat.store.rows import NODE_FIELDS, columns, node_of

_PATHS = """
    WITH RECURSIVE up(id, parent, digest, depth) AS (
        SELECT kept.id, node.parent, node.digest, 0 FROM kept LEFT JOIN conversation ON conversation.id = kept.id
            JOIN node ON node.id = CASE kept.node WHEN '' THEN conversation.head ELSE kept.node END
        UNION ALL SELECT up.id, node.parent, node.digest, up.depth + 1 FROM up JOIN node ON node.id = up.parent)
    SELECT id, digest FROM up ORDER BY id, depth DESC"""
_PUT = (
    "INSERT INTO kept(id, node, name, created) VALUES (?, ?, ?, ?)"
    " ON CONFLICT(id) DO UPDATE SET node = excluded.node, created = excluded.created"
)


class KeptRows:
    """One row for each conversation, and for the name of each trunk, at most."""

    def __init__(self, db: Database, conversations: ConversationRows) -> None:
        self._db = db
        self._conversations = conversations

    def all(self) -> list[Keep]:
        """All of them, the trash included, the oldest first."""
        rows = self._db.rows("SELECT id, node, created, name FROM kept ORDER BY created, seq")
        return [Keep(str(id), str(node), float(created), str(name)) for id, node, created, name in rows]

    def put(self, kept: Keep) -> None:
        """Keep a conversation; what was kept of it no longer is. Nothing happens where it is gone for good."""
        with self._db.write() as connection:
            if connection.execute("SELECT 1 FROM conversation WHERE id = ?", (kept.id,)).fetchone():
                connection.execute(_PUT, (kept.id, kept.node, "", kept.since))

    def put_trunk(self, name: str, id: str, root: Node) -> None:
        """Have a trunk of this name, with this one message; one that had the name is removed."""
        with self._db.write(durable=True) as connection:
            connection.execute("DELETE FROM kept WHERE name = ?", (name,))
            stored = self._conversations.shared_root(connection, root)
            connection.execute(_PUT, (id, stored.id, name, root.created))

    def root(self, trunk: Keep) -> Node | None:
        """The message of a trunk."""
        row = self._db.row(f"SELECT {columns(NODE_FIELDS)} FROM node WHERE id = ?", (trunk.node,))
        return node_of(row) if row else None

    def trunk_at(self, node: str) -> str:
        """The name of the trunk whose message is this node; empty: of none."""
        row = self._db.row("SELECT name FROM kept WHERE node = ? AND name != ''", (node,))
        return str(row[0]) if row else ""

    def remove(self, id: str) -> None:
        with self._db.write() as connection:
            if connection.execute("DELETE FROM kept WHERE id = ? AND name != ''", (id,)).rowcount:
                collect(connection, self._db.fts)
            connection.execute("DELETE FROM kept WHERE id = ?", (id,))

    def paths(self) -> dict[str, tuple[str, ...]]:
        """By the id of each: the digests, in hex, of the messages whose state is kept, root first."""
        found: dict[str, list[str]] = {}
        for id, digest in self._db.rows(_PATHS):
            found.setdefault(str(id), []).append(bytes(digest).hex())
        return {id: tuple(path) for id, path in found.items()}
