"""The conversations whose state the person keeps. What is saved of them is not here but beside the database."""

from __future__ import annotations

from kvchat.cache.kept import Kept
from kvchat.store.file.database import Database

_PATHS = """
    WITH RECURSIVE up(conversation, parent, digest, depth) AS (
        SELECT kept.conversation, node.parent, node.digest, 0 FROM kept
            JOIN conversation ON conversation.id = kept.conversation
            JOIN node ON node.id = CASE kept.node WHEN '' THEN conversation.head ELSE kept.node END
        UNION ALL SELECT up.conversation, node.parent, node.digest, up.depth + 1
            FROM up JOIN node ON node.id = up.parent)
    SELECT conversation, digest FROM up ORDER BY conversation, depth DESC"""


class KeptRows:
    """One row for each conversation, at most."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def all(self) -> list[Kept]:
        """All of them, the trash included, the oldest first."""
        rows = self._db.rows("SELECT conversation, node, created FROM kept ORDER BY created, seq")
        return [Kept(str(conversation), str(node), float(created)) for conversation, node, created in rows]

    def put(self, kept: Kept) -> None:
        """Keep it; what was kept of the same conversation no longer is. Nothing happens where that is gone for good."""
        with self._db.write() as connection:
            connection.execute(
                "INSERT INTO kept(conversation, node, created) SELECT id, ?, ? FROM conversation WHERE id = ?"
                " ON CONFLICT(conversation) DO UPDATE SET node = excluded.node, created = excluded.created",
                (kept.node, kept.since, kept.conversation),
            )

    def remove(self, conversation: str) -> None:
        with self._db.write() as connection:
            connection.execute("DELETE FROM kept WHERE conversation = ?", (conversation,))

    def paths(self) -> dict[str, tuple[str, ...]]:
        """By conversation: the digests, in hex, of the messages whose state is kept, root first."""
        found: dict[str, list[str]] = {}
        for conversation, digest in self._db.rows(_PATHS):
            found.setdefault(str(conversation), []).append(bytes(digest).hex())
        return {conversation: tuple(path) for conversation, path in found.items()}
