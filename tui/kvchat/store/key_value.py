"""Small things kept by name: drafts, saved system prompts, settings of the program itself.

Setting a thing to nothing removes it.
"""

from __future__ import annotations

import sqlite3

from kvchat.prompt.conversation import SavedPrompt
from kvchat.prompt.wire import whole_characters
from kvchat.store.file.database import Database

WRITTEN = "store.written"
"""The key of the setting that holds where a draft was written last: the number of the last message of all then, which
tells what came later whatever the clock says, and the conversation."""
_WRITTEN = (
    "INSERT INTO setting VALUES (?, (SELECT coalesce(max(seq), 0) FROM node) || ' ' || ?)"
    " ON CONFLICT DO UPDATE SET value = excluded.value"
)
_WRITTEN_LAST = (
    "SELECT draft.conversation FROM setting JOIN draft"
    " ON value = (SELECT coalesce(max(seq), 0) FROM node) || ' ' || draft.conversation WHERE key = ?"
)


class LibraryRows:
    def __init__(self, db: Database) -> None:
        self._db = db

    def drafts(self) -> dict[str, str]:
        """Unsent text by conversation id."""
        return dict(self._db.rows("SELECT conversation, text FROM draft"))

    def draft(self, conversation: str) -> str:
        row = self._db.row("SELECT text FROM draft WHERE conversation = ?", (conversation,))
        return str(row[0]) if row else ""

    def set_draft(self, conversation: str, text: str) -> None:
        with self._db.write() as connection:
            put_draft(connection, conversation, text)
            if text:
                connection.execute(_WRITTEN, (WRITTEN, conversation))

    def written_last(self) -> str:
        """The conversation in which something was written after the last message of all, and is not sent; empty:
        none."""
        row = self._db.row(_WRITTEN_LAST, (WRITTEN,))
        return str(row[0]) if row else ""

    def prompts(self) -> list[SavedPrompt]:
        """By name."""
        found = [SavedPrompt(name, text) for name, text in self._db.rows("SELECT name, text FROM prompt")]
        return sorted(found, key=lambda prompt: (prompt.name.casefold(), prompt.name))

    def save_prompt(self, prompt: SavedPrompt, now: float) -> None:
        with self._db.write(durable=True) as connection:
            connection.execute(
                "INSERT INTO prompt VALUES (?, ?, ?)"
                " ON CONFLICT DO UPDATE SET text = excluded.text, saved = excluded.saved",
                (whole_characters(prompt.name), whole_characters(prompt.text), now),
            )

    def delete_prompt(self, name: str) -> None:
        with self._db.write(durable=True) as connection:
            connection.execute("DELETE FROM prompt WHERE name = ?", (whole_characters(name),))

    def setting(self, key: str) -> str | None:
        row = self._db.row("SELECT value FROM setting WHERE key = ?", (whole_characters(key),))
        return str(row[0]) if row else None

    def set_setting(self, key: str, value: str | None) -> None:
        with self._db.write() as connection:
            if value is None:
                connection.execute("DELETE FROM setting WHERE key = ?", (whole_characters(key),))
            else:
                connection.execute(
                    "INSERT INTO setting VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
                    (whole_characters(key), whole_characters(value)),
                )


def put_draft(connection: sqlite3.Connection, conversation: str, text: str) -> None:
    """Inside a transaction: have this as the draft of a conversation."""
    if text:
        connection.execute(
            "INSERT INTO draft VALUES (?, ?) ON CONFLICT DO UPDATE SET text = excluded.text",
            (conversation, whole_characters(text)),
        )
    else:
        connection.execute("DELETE FROM draft WHERE conversation = ?", (conversation,))
