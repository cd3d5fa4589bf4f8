"""The ends of branches that a window still uses while the conversation's head is on another one.

An act leaves the branch that its window shows. If the head was on a different branch, another window uses that one: its
end is kept here until that window leaves it too, so that nothing that was written there is lost.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection

from kvchat.store.file.database import Database
from kvchat.store.rows import from_json

KEY = "store.tips "
"""In front of the conversation's id: the key of the setting that holds them, a JSON list of ids."""

_ABOVE = """
    WITH RECURSIVE up(id, parent) AS (
        SELECT id, parent FROM node WHERE id = ?
        UNION SELECT node.id, node.parent FROM up JOIN node ON node.id = up.parent)
    SELECT id FROM up"""


def is_above(connection: sqlite3.Connection, upper: str, lower: str | None) -> bool:
    """Whether the branch that ends at `lower` goes through `upper`, another message."""
    return lower != upper and upper in _branch(connection, lower)


def of(connection: sqlite3.Connection, conversation: str) -> list[str]:
    """The ends that are kept of a conversation, oldest first."""
    row = connection.execute("SELECT value FROM setting WHERE key = ?", (KEY + conversation,)).fetchone()
    return _listed(row[0]) if row else []


def of_all(db: Database) -> dict[str, list[str]]:
    """The ends that are kept, by their conversations."""
    rows = db.rows("SELECT key, value FROM setting WHERE key GLOB ?", (f"{KEY}*",))
    return {key.removeprefix(KEY): _listed(value) for key, value in rows}


def _listed(value: str) -> list[str]:
    return [str(id) for id in from_json(value, list)]


def moved(
    connection: sqlite3.Connection, conversation: str, before: str | None, head: str | None, shown: str | None
) -> None:
    """The head went from `before` to `head` by an act in a window that showed the branch to `shown`."""
    known = of(connection, conversation)
    if before == shown and not known:
        return
    in_use: Collection[str] = _branch(connection, head)
    tips = dict.fromkeys([*known, *([before] if before is not None else [])])
    kept = [id for id in tips if id != shown and id not in in_use]
    if kept:
        connection.execute(
            "INSERT INTO setting VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
            (KEY + conversation, json.dumps(kept)),
        )
    elif known:
        connection.execute("DELETE FROM setting WHERE key = ?", (KEY + conversation,))


def _branch(connection: sqlite3.Connection, end: str | None) -> frozenset[str]:
    """The ids of the messages of a branch."""
    return frozenset(row[0] for row in connection.execute(_ABOVE, (end,)))
