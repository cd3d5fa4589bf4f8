"""Messages that extraction passes over: they count as covered, though no extraction has read them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from kvchat.store.file.database import Database
from kvchat.store.rows import to_json


def mark(role: str, created: float, text: str) -> bytes:
    """What a message and its copies have in common. A summary in front of one changes its bytes, but not its text."""
    return hashlib.sha256(f"{role}\0{created!r}\0{text}".encode("utf-8", "surrogatepass")).digest()


def pass_over(database: Database, conversation: str, nodes: Sequence[str]) -> None:
    """Cover those of these messages that are final and not covered yet. Raises StoreError."""
    with database.write() as connection:
        rows = connection.execute(
            "SELECT id, role, created, text FROM node WHERE id IN (SELECT value FROM json_each(?))"
            " AND role IN ('user', 'assistant') AND state != 'streaming'",
            (to_json(list(nodes)),),
        ).fetchall()
        connection.executemany(
            "INSERT OR IGNORE INTO covered SELECT id, '', coalesce(conversation, ?), ? FROM node WHERE id = ?",
            [(conversation, mark(role, float(created), text), id) for id, role, created, text in rows],
        )


def is_passed_over(database: Database, nodes: Sequence[str]) -> bool:
    """Whether extraction passes over every question among these messages; so it is where there is none. Raises
    StoreError."""
    read = database.row(
        "SELECT 1 FROM node LEFT JOIN covered ON covered.node = node.id"
        " WHERE node.id IN (SELECT value FROM json_each(?)) AND role = 'user' AND cell IS NOT '' LIMIT 1",
        (to_json(list(nodes)),),
    )
    return read is None
