"""llm: its database `logs.db`. Older versions keep a row for each prompt and response; since 0.32 there is also a tree
of messages, in which a thread names its end.

A conversation of the older tables that was continued since is a thread of the same id. The two forms share no ids of
messages, so texts identify them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

from kvchat.prompt.message import Role
from kvchat.transfer.importing.thread import (
    DatabaseFormat,
    ImportedMessage,
    Loss,
    Picture,
    Thread,
    dict_of,
    joined,
    placeholder,
    seconds_of,
    text_of,
)

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "tool": Role.SYSTEM}
_BRANCH = """
    WITH RECURSIVE up(hash) AS (
        SELECT tip_message_hash FROM threads WHERE id = :thread
        UNION SELECT tip_message_hash FROM turns WHERE thread_id = :thread
        UNION SELECT messages.parent_hash FROM up JOIN messages ON messages.hash = up.hash
            WHERE messages.parent_hash IS NOT NULL)
    SELECT messages.hash, parent_hash, role FROM up JOIN messages ON messages.hash = up.hash"""


def _read(db: sqlite3.Connection) -> Iterator[Thread]:
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    names = {row[1] for row in db.execute("PRAGMA table_info(responses)")}
    has_threads = {"threads", "turns", "messages", "parts"} <= tables
    older = " WHERE id NOT IN (SELECT id FROM threads WHERE tip_message_hash IS NOT NULL)" if has_threads else ""
    for id, name in db.execute(f"SELECT id, name FROM conversations{older} ORDER BY id").fetchall():
        yield _conversation(db, str(id), text_of(name), tables, names)
    if has_threads:
        for id, name, created in db.execute(
            "SELECT id, name, datetime_utc FROM threads WHERE tip_message_hash IS NOT NULL ORDER BY id"
        ).fetchall():
            yield _thread(db, str(id), text_of(name), seconds_of(created), "part_fragments" in tables)


def _conversation(db: sqlite3.Connection, id: str, name: str, tables: set[str], names: set[str]) -> Thread:
    thread = Thread("llm", id, name, own_ids=False)
    reasoning = "reasoning" if "reasoning" in names else "''"
    rows = db.execute(
        f"SELECT id, prompt, system, response, model, datetime_utc, {reasoning} FROM responses"
        " WHERE conversation_id = ? ORDER BY datetime_utc, id",
        (id,),
    ).fetchall()
    before: str | None = None
    for row, prompt, system, response, model, time, thoughts in rows:
        at = seconds_of(time)
        if system and before is None:
            thread.system = text_of(system)
        files = _fragments(db, row) if "prompt_fragments" in tables else []
        lost, pictures = _attachments(db, row, thread) if "prompt_attachments" in tables else ([], [])
        question = ImportedMessage(
            f"{row}.q",
            before,
            Role.USER,
            joined(text_of(prompt), *lost),
            at,
            files=tuple(files),
            pictures=tuple(pictures),
        )
        answer = ImportedMessage(
            f"{row}.a", question.id, Role.ASSISTANT, text_of(response), at, text_of(model), text_of(thoughts)
        )
        thread.messages += [question, answer]
        before = answer.id
    thread.head = before
    return thread


def _fragments(db: sqlite3.Connection, row: object) -> list[tuple[str, str]]:
    return [
        (text_of(source), text_of(content))
        for source, content in db.execute(
            "SELECT source, content FROM prompt_fragments JOIN fragments ON fragments.id = fragment_id"
            ' WHERE response_id = ? ORDER BY "order"',
            (row,),
        )
        if content
    ]


def _attachments(db: sqlite3.Connection, row: object, thread: Thread) -> tuple[list[str], list[Picture]]:
    """Placeholders for the attachments that are left out, and the images: those whose octets the database has."""
    lost, pictures = list[str](), list[Picture]()
    for kind, path, octets in db.execute(
        "SELECT type, path, content FROM prompt_attachments JOIN attachments ON attachments.id = attachment_id"
        ' WHERE response_id = ? ORDER BY "order"',
        (row,),
    ).fetchall():
        if text_of(kind).startswith("image/") and isinstance(octets, bytes) and octets:
            pictures.append(Picture(text_of(path).rpartition("/")[2], octets))
        else:
            lost.append(_left_out(text_of(kind), text_of(path), thread))
    return lost, pictures


def _left_out(kind: str, path: str, thread: Thread) -> str:
    is_image = kind.startswith("image/")
    thread.lost(Loss.IMAGES if is_image else Loss.FILES)
    return placeholder("image not imported" if is_image else "file not imported", path.rpartition("/")[2])


def _thread(db: sqlite3.Connection, id: str, name: str, created: float | None, fragments: bool) -> Thread:
    head = db.execute("SELECT tip_message_hash FROM threads WHERE id = ?", (id,)).fetchone()[0]
    thread = Thread("llm", id, name, head=head, created=created, own_ids=False)
    turns = {
        tip: (seconds_of(time), text_of(model))
        for tip, time, model in db.execute(
            "SELECT tip_message_hash, datetime_utc, model FROM turns WHERE thread_id = ?", (id,)
        )
    }
    for hash, parent, role in db.execute(_BRANCH, {"thread": id}).fetchall():
        found = _ROLES.get(text_of(role))
        if found is None:
            thread.lost(Loss.BROKEN)
            found = Role.SYSTEM
        texts, thoughts = _parts(db, hash, thread, fragments)
        at, model = turns.get(hash, (None, ""))
        texts = [] if role == "tool" else texts
        thread.messages.append(
            ImportedMessage(
                hash, parent, found, joined(*texts), at, model, joined(*thoughts) if found is Role.ASSISTANT else ""
            )
        )
    return thread


def _parts(db: sqlite3.Connection, hash: str, thread: Thread, fragments: bool) -> tuple[list[str], list[str]]:
    texts, thoughts = list[str](), list[str]()
    for id, kind, tool, text, payload in db.execute(
        "SELECT id, type, tool_name, text, payload FROM parts WHERE message_hash = ? ORDER BY position", (hash,)
    ).fetchall():
        if not text and fragments and kind in ("text", "reasoning"):
            text = "".join(
                text_of(row[0])
                for row in db.execute(
                    "SELECT content FROM part_fragments JOIN fragments ON fragments.id = fragment_id"
                    ' WHERE part_id = ? ORDER BY "order"',
                    (id,),
                )
            )
        match kind:
            case "text":
                texts.append(text_of(text))
            case "reasoning":
                thoughts.append(text_of(text))
            case "tool_call":
                thread.lost(Loss.TOOL_CALLS)
                texts.append(placeholder("tool call", text_of(tool)))
            case "tool_result":
                thread.lost(Loss.TOOL_RESULTS)
            case "attachment":
                texts.append(_left_out(_type_of(payload), "", thread))
            case _:
                thread.lost(Loss.OTHER)
    return texts, thoughts


def _type_of(payload: object) -> str:
    try:
        found = dict_of(json.loads(text_of(payload) or "{}"))
    except (ValueError, RecursionError):
        return ""
    return text_of(found.get("type")) or text_of(dict_of(found.get("attachment")).get("type"))


FORMAT = DatabaseFormat("llm", frozenset({"conversations", "responses"}), _read, "SELECT count(*) FROM conversations")
