"""Store every memory, the deleted and the pending ones too, and the history of changes.

An entry changes only by a `Change` whose `before` is what is stored, in one durable transaction, and the pages are
written inside that: what cannot be written is not stored. A crash between the two leaves pages that say more than is
stored; they are taken up like what the user writes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from kvchat.memory.entry import Act, Change, Entry, Kind, Status
from kvchat.prompt.wire import whole_characters
from kvchat.store.file.database import Database
from kvchat.store.rows import ENTRY_FIELDS, Row, columns, from_json, to_json

_KINDS = {kind.value: kind for kind in Kind}
_STATUSES = {status.value: status for status in Status}
_ACTS = {act.value: act for act in Act}
_ENTRY = f"SELECT {columns(ENTRY_FIELDS)} FROM entry"
_PUT_ENTRY = (
    f"INSERT INTO entry({columns(ENTRY_FIELDS)}) VALUES ({', '.join('?' * len(ENTRY_FIELDS))})"
    " ON CONFLICT(id) DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in ENTRY_FIELDS[1:])
)
_CHANGE_FIELDS = ("seq", "act", "before", "after", "at", "session", "why", "undone")
_CHANGE = f"SELECT {columns(_CHANGE_FIELDS)} FROM change"
_ADD_CHANGE = (
    "INSERT INTO change(act, entry, before, after, at, session, why, conversation, cell, written, undone)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 0)"
)


class StaleChange(Exception):  # noqa: N818
    """A change starts from what is no longer stored: the entry was changed meanwhile. Nothing was stored."""

    def __init__(self, change: Change) -> None:
        super().__init__(f"The memory {change.after.id} was changed meanwhile. Look at it again.")
        self.change = change


class MemoryState:
    """The memories as last known, and how they came to be so. Every method may raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def entries(self) -> list[Entry]:
        """All entries, newest first."""
        return [entry_of(row) for row in self._db.rows(f"{_ENTRY} ORDER BY created DESC, seq DESC")]

    def entry(self, id: str) -> Entry | None:
        row = self._db.row(f"{_ENTRY} WHERE id = ?", (whole_characters(id),))
        return entry_of(row) if row else None

    def apply(
        self,
        changes: Sequence[Change],
        *,
        undoes: Sequence[int] = (),
        away: Collection[str] = (),
        write: Callable[[], object] = lambda: None,
    ) -> list[int]:
        """Store the changes, in their order, mark those with the numbers `undoes` as undone, and write the pages by
        `write`, all or nothing; the new numbers. `away`: the ids of entries whose lines are yet to be taken out. Raises
        StaleChange, and what `write` does."""
        with self._db.write(durable=True) as connection:
            seqs = put_changes(connection, changes)
            _mark(connection, "undone", undoes)
            waiting = [seq for seq, change in zip(seqs, changes, strict=True) if change.after.id in away]
            _mark(connection, "written", waiting, 0)
            write()
        return seqs

    def unwritten(self) -> list[Change]:
        """The changes that are not written into the pages yet, oldest first: those of kvchat 0.2 that could not be, and
        lines that were deleted while their pages were away."""
        return _changes_of(self._db.rows(f"{_CHANGE} WHERE written = 0 ORDER BY seq"))

    def written(self, seqs: Sequence[int], write: Callable[[], object] = lambda: None) -> None:
        """Write these by `write`, as `apply` does."""
        with self._db.write(durable=True) as connection:
            _mark(connection, "written", seqs)
            write()

    def changes(
        self, limit: int = 200, *, session: str = "", conversation: str = "", entry: str = "", since: float = 0.0
    ) -> list[Change]:
        """The history, newest first: of one run of kvchat, of what was noted from one conversation (or happened to what
        came from it), of one entry, since then (seconds since the epoch)."""
        given = {"session": session, "conversation": conversation, "entry": entry}
        where = [f"{name} = :{name}" for name, value in given.items() if value]
        rows = self._db.rows(
            f"{_CHANGE} WHERE {' AND '.join([*where, 'at >= :since'])} ORDER BY seq DESC LIMIT :limit",
            {**given, "since": since, "limit": limit},
        )
        return _changes_of(rows)

    def last_session(self) -> str:
        """The run of kvchat in which something was last noted from a conversation; empty: there is none."""
        row = self._db.row(
            "SELECT session FROM change WHERE cell != '' OR act IN (?, ?) ORDER BY seq DESC LIMIT 1",
            (Act.NOTED.value, Act.PROPOSED.value),
        )
        return str(row[0]) if row else ""


def put_changes(
    connection: sqlite3.Connection,
    changes: Iterable[Change],
    *,
    conversation: str = "",
    run: str = "",
) -> list[int]:
    """Store changes inside a transaction; their numbers. `run` is the extraction that they came from, `conversation`
    its conversation. Raises StaleChange, after which the transaction must not be kept."""
    seqs = []
    for change in changes:
        after = values_of(change.after)
        before = values_of(change.before) if change.before else None
        row = connection.execute(f"{_ENTRY} WHERE id = ?", (after[0],)).fetchone()
        if (values_of(entry_of(row)) if row else None) != before:
            raise StaleChange(change)
        connection.execute(_PUT_ENTRY, after)
        connection.execute("UPDATE change SET written = 1 WHERE entry = ? AND written = 0", (after[0],))
        values = (
            change.act.value,
            after[0],
            to_json(before) if before else None,
            to_json(after),
            change.at,
            whole_characters(change.session),
            whole_characters(change.why),
            conversation or whole_characters(change.after.conversation),
            run,
        )
        seqs.append(int(connection.execute(_ADD_CHANGE, values).lastrowid or 0))
    return seqs


def _mark(connection: sqlite3.Connection, column: str, seqs: Sequence[int], value: int = 1) -> None:
    connection.executemany(f"UPDATE change SET {column} = ? WHERE seq = ?", [(value, seq) for seq in seqs])


def values_of(entry: Entry) -> tuple[object, ...]:
    """The values of ENTRY_FIELDS for an entry, as the store can hold them."""
    text = whole_characters
    return (
        text(entry.id),
        entry.kind.value,
        text(entry.text),
        text(entry.page),
        float(entry.created),
        entry.status.value,
        None if entry.confidence is None else float(entry.confidence),
        text(entry.conversation),
        to_json(entry.nodes),
        text(entry.by),
        text(entry.superseded_by),
        int(entry.edited),
    )


def entry_of(row: Row) -> Entry:
    """The entry of a row of ENTRY_FIELDS. One of no known kind is a fact, one in no known state waits for a yes."""
    id, kind, text, page, created, status, confidence, conversation, nodes, by, superseded_by, edited = row
    sources = tuple(map(str, from_json(nodes, list)))
    return Entry(
        id,
        _KINDS.get(kind, Kind.FACT),
        text,
        page,
        float(created),
        _STATUSES.get(status, Status.PENDING),
        None if confidence is None else float(confidence),
        conversation,
        sources,
        by,
        superseded_by,
        bool(edited),
    )


def _changes_of(rows: Iterable[Any]) -> list[Change]:
    """The changes of rows of _CHANGE_FIELDS, but for those that cannot be read."""
    found = []
    for seq, act, before, after, at, session, why, undone in rows:
        try:
            change = Change(
                _ACTS[act], _entry_of_json(before) if before else None, _entry_of_json(after), float(at), session, why
            )
        except (KeyError, TypeError, ValueError, RecursionError):
            continue
        found.append(replace(change, seq=int(seq), undone=bool(undone)))
    return found


def _entry_of_json(text: str) -> Entry:
    values = json.loads(text)
    return entry_of(values)
