"""oterm: its database `store.db`. One branch for each chat; there are no times."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

from kvchat.prompt.message import Role
from kvchat.transfer.importing.thread import (
    DatabaseFormat,
    ImportedMessage,
    Picture,
    Thread,
    list_of,
    octets_of,
    text_of,
)

_ROLES = {"user": Role.USER, "me": Role.USER, "system": Role.SYSTEM}


def _read(db: sqlite3.Connection) -> Iterator[Thread]:
    names = {row[1] for row in db.execute("PRAGMA table_info(message)")}
    who = "role" if "role" in names else "author"
    images = "images" if "images" in names else "'[]'"
    for chat, name, model, system in db.execute("SELECT id, name, model, system FROM chat ORDER BY id").fetchall():
        thread = Thread("oterm", "", text_of(name), system=text_of(system), own_ids=False)
        before: str | None = None
        for id, author, text, pictures in db.execute(
            f"SELECT id, {who}, text, {images} FROM message WHERE chat_id = ? ORDER BY id", (chat,)
        ):
            role = _ROLES.get(text_of(author), Role.ASSISTANT)
            taken = tuple(_pictures(pictures)) if role is Role.USER else ()
            thread.messages.append(
                ImportedMessage(
                    str(id),
                    before,
                    role,
                    text_of(text),
                    None,
                    text_of(model) if role is Role.ASSISTANT else "",
                    pictures=taken,
                )
            )
            before = str(id)
        thread.head = before
        # Every database has its own numbers of chats.
        thread.id = f"{chat}\n{thread.messages[0].text if thread.messages else ''}"
        yield thread


def _pictures(listed: object) -> Iterator[Picture]:
    """A message's images: a list of texts in base64."""
    try:
        found = json.loads(text_of(listed) or "[]")
    except (ValueError, RecursionError):
        return
    yield from (Picture(data=octets_of(text_of(one))) for one in list_of(found))


FORMAT = DatabaseFormat("oterm", frozenset({"chat", "message"}), _read, "SELECT count(*) FROM chat")
