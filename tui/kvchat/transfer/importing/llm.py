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
from kvchat.prompt.tools import ToolCall
from kvchat.transfer.importing.thread import (
    DatabaseFormat,
    ImportedMessage,
    Loss,
    Picture,
    Steps,
    Thread,
    call_of,
    dict_of,
    joined,
    placeholder,
    result_of,
    seconds_of,
    text_of,
)

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "tool": Role.TOOL}
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
        asked = [question, *_given(db, row, question, tables)]
        answer = ImportedMessage(
            f"{row}.a",
            asked[-1].id,
            Role.ASSISTANT,
            text_of(response),
            at,
            text_of(model),
            text_of(thoughts),
            calls=tuple(_called(db, row)) if "tool_calls" in tables else (),
        )
        thread.messages += [*asked, answer]
        before = answer.id
    thread.head = before
    return thread


def _called(db: sqlite3.Connection, row: object) -> Iterator[ToolCall]:
    """The calls of a response."""
    for id, name, arguments in db.execute(
        "SELECT tool_call_id, name, arguments FROM tool_calls WHERE response_id = ? ORDER BY id", (row,)
    ):
        yield call_of(id, name, arguments)


def _given(
    db: sqlite3.Connection, row: object, question: ImportedMessage, tables: set[str]
) -> Iterator[ImportedMessage]:
    """The results of calls that a prompt, mostly without a text, hands over."""
    rows = (
        db.execute("SELECT tool_call_id, name, output FROM tool_results WHERE response_id = ? ORDER BY id", (row,))
        if "tool_results" in tables
        else ()
    )
    before = question.id
    for number, (id, name, output) in enumerate(rows):
        given = ImportedMessage(
            f"{row}.t{number}", before, Role.TOOL, text_of(output), question.created, calls=(result_of(id, name),)
        )
        before = given.id
        yield given


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
        at, model = turns.get(hash, (None, ""))
        role = Role.ASSISTANT if found is Role.TOOL else found
        steps = _parts(db, hash, thread, fragments, thinks=role is Role.ASSISTANT)
        thread.messages += steps.messages(ImportedMessage(hash, parent, role, "", at, model))
    return thread


def _parts(db: sqlite3.Connection, hash: str, thread: Thread, fragments: bool, *, thinks: bool) -> Steps:
    steps = Steps()
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
                steps.says(text_of(text))
            case "reasoning" if thinks:
                steps.thinks(text_of(text))
            case "reasoning":
                pass
            case "tool_call":
                about = _payload(payload)
                steps.calls(call_of(about.get("tool_call_id"), tool or about.get("name"), about.get("arguments")))
            case "tool_result":
                about = _payload(payload)
                given = result_of(about.get("tool_call_id"), tool or about.get("name"))
                steps.gives(given, text_of(text) or text_of(about.get("output")))
            case "attachment":
                steps.says(_left_out(_type_of(payload), "", thread))
            case _:
                thread.lost(Loss.OTHER)
    return steps


def _payload(payload: object) -> dict[str, object]:
    try:
        return dict_of(json.loads(text_of(payload) or "{}"))
    except (ValueError, RecursionError):
        return {}


def _type_of(payload: object) -> str:
    found = _payload(payload)
    return text_of(found.get("type")) or text_of(dict_of(found.get("attachment")).get("type"))


FORMAT = DatabaseFormat("llm", frozenset({"conversations", "responses"}), _read, "SELECT count(*) FROM conversations")
