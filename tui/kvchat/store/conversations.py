"""The conversations: their list, their heads, their trees, and what is cleared away with them.

A write changes the row as it is by then, and only the fields of its act. A message is removed only when no
conversation that is left, the trash included, needs it.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Node
from kvchat.prompt.tree import Tree
from kvchat.prompt.wire import whole_characters
from kvchat.sanitize import one_line
from kvchat.store import tips
from kvchat.store.errors import ConversationDeleted, UnknownConversation
from kvchat.store.file.database import Database
from kvchat.store.fulltext import index
from kvchat.store.presence.process_id import is_gone
from kvchat.store.rows import (
    CONVERSATION_FIELDS,
    NODE_FIELDS,
    columns,
    conversation_row,
    conversations_of,
    many_values,
    node_of,
    nodes_of,
    row_of,
    tags_of,
    to_json,
)
from kvchat.text.problems import StoreProblem

Change = Callable[[Conversation], Conversation]
"""What an act makes of a conversation's row as it is when the act is stored."""

PROMPT_IDS = "store.prompt_ids "
"""In front of a conversation's id: the key of the setting with the token ids that a server holds of it."""
_BEGUN = "store.begun "
"""In front of an empty conversation's id: the key of the setting that holds the owner whose window shows it."""
TITLE_ASKED = "title.asked "
"""In front of a conversation's id: the key of the setting that says that a model was asked for its title."""
SYSTEM_TYPED = "typed.system "
"""In front of a conversation's id: the key of the setting with the system prompt that is written and not applied."""
ERASED = "store.erased"
"""The key of the setting that says whether what removed conversations left in the file is overwritten:
`store.leftovers`."""
SKILLS_TO = "skills.to "
"""In front of a conversation's id: the key of the setting that names the last extraction that skills were looked for
in."""
_LIST = f"SELECT {columns(CONVERSATION_FIELDS)} FROM conversation"
_TAGS = "SELECT conversation, name FROM tag"
_PUT = (
    f"INSERT INTO conversation({columns(CONVERSATION_FIELDS)}) VALUES ({', '.join('?' * len(CONVERSATION_FIELDS))})"
    " ON CONFLICT(id) DO NOTHING"
)
_MOVE = """UPDATE conversation SET place = max(CAST(1000 * :time AS INTEGER),
    CASE WHEN :first THEN (SELECT max(place) FROM conversation) + 1 ELSE place END) WHERE id = :id"""
_ADD_NODE = (
    f"INSERT INTO node({columns(NODE_FIELDS)}, conversation, owner)"
    f" VALUES ({', '.join('?' * (len(NODE_FIELDS) + 2))}) ON CONFLICT(id) DO NOTHING"
)
_ANCESTORS = f"""
    WITH RECURSIVE up(id) AS (
        SELECT value FROM json_each(?)
        UNION SELECT node.parent FROM up JOIN node ON node.id = up.id WHERE node.parent IS NOT NULL)
    SELECT {columns(NODE_FIELDS, "node")} FROM up JOIN node ON node.id = up.id"""

MEMBERS = """
    WITH RECURSIVE member(id, parent) AS (
        SELECT id, parent FROM node WHERE conversation = :conversation
        UNION SELECT node.id, node.parent FROM conversation JOIN node ON node.id = head
            WHERE conversation.id = :conversation
        UNION SELECT node.id, node.parent FROM member JOIN node ON node.id = member.parent)"""
"""The messages of a conversation, as `tree` holds them, for a statement that uses the table `member`."""

_BRANCHED = """
    SELECT conversation FROM node WHERE parent IN (
        SELECT parent FROM node WHERE parent IS NOT NULL GROUP BY parent HAVING count(*) > 1)
        GROUP BY parent, conversation HAVING count(*) > 1
    UNION SELECT conversation.id FROM conversation JOIN node ON node.parent = conversation.head WHERE turns > 0"""
"""The conversations with versions of a message, and those that end before their last message."""


ROOTS = 100
"""System messages that are remembered: more conversations are hardly begun and left empty by one kvchat."""


def _unknown(id: str) -> UnknownConversation:
    return UnknownConversation(StoreProblem.UNKNOWN, id=one_line(id, 40))


class ConversationRows:
    """Reads and writes of conversations. System messages seen here are remembered, so that a conversation that
    another kvchat deleted for good while it was empty can still be begun."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._roots: dict[str, Node] = {}

    def all(self, trashed: bool) -> list[Conversation]:
        """Newest first."""
        where = "trashed IS NOT NULL" if trashed else "trashed IS NULL"
        with self._db.reading(), many_values():
            rows = self._db.rows(f"{_LIST} WHERE {where} ORDER BY place DESC, seq DESC")
            return conversations_of(rows, tags_of(self._db.rows(_TAGS)))

    def servers(self) -> list[tuple[str, int]]:
        """The names of the servers that conversations with messages are on, with how many, used last first."""
        return [
            (str(name), int(number))
            for name, number in self._db.rows(
                "SELECT server, count(*) FROM conversation WHERE trashed IS NULL AND turns > 0"
                " GROUP BY server ORDER BY max(place) DESC"
            )
        ]

    def branch_turns(self, id: str) -> int:
        """The questions on the branch that a conversation has in use."""
        return int(
            self._db.rows(
                "WITH RECURSIVE up(id, parent, role) AS ("
                "SELECT node.id, node.parent, node.role FROM node JOIN conversation ON node.id = conversation.head"
                " WHERE conversation.id = ? UNION ALL "
                "SELECT node.id, node.parent, node.role FROM node JOIN up ON node.id = up.parent)"
                " SELECT count(*) FROM up WHERE role = 'user'",
                (id,),
            )[0][0]
        )

    def fewer_turns(self) -> dict[str, int]:
        """As `branch_turns`, of all conversations where that may be fewer than its `turns`."""
        return {str(id): self.branch_turns(str(id)) for (id,) in self._db.rows(_BRANCHED)}

    def tags(self) -> list[tuple[str, int]]:
        """The tags that conversations have, with how many, by name."""
        return [
            (str(name), int(number))
            for name, number in self._db.rows(
                "SELECT name, count(*) FROM tag JOIN conversation ON conversation.id = tag.conversation"
                " WHERE trashed IS NULL GROUP BY name ORDER BY name"
            )
        ]

    def titles(self, ids: Collection[str]) -> dict[str, str]:
        sql = "SELECT id, title FROM conversation WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self._db.rows(sql, (to_json(list(ids)),)))

    def one(self, id: str) -> Conversation:
        """The conversation with this id, or the only one whose id begins with it. Raises UnknownConversation."""
        row = self._db.row(f"{_LIST} WHERE id = ?", (id,))
        if row is None:
            row = self._by_prefix(id.strip().lower())
        return self._with_tags(row)

    def _with_tags(self, row: Sequence[object]) -> Conversation:
        return conversations_of([row], tags_of(self._db.rows(f"{_TAGS} WHERE conversation = ?", (row[0],))))[0]

    def exact(self, id: str) -> Conversation | None:
        """The conversation with just this id."""
        row = self._db.row(f"{_LIST} WHERE id = ?", (id,))
        return self._with_tags(row) if row is not None else None

    def _by_prefix(self, id: str) -> Sequence[object]:
        if not re.fullmatch("[0-9a-f]{4,32}", id):
            raise _unknown(id)
        found = self._db.rows(f"{_LIST} WHERE id >= ? AND id < ? LIMIT 2", (id, id + "g"))
        if len(found) == 1:
            return found[0]  # type: ignore[no-any-return]
        if found:
            raise UnknownConversation(StoreProblem.AMBIGUOUS, id=id)
        raise _unknown(id)

    def create(self, conversation: Conversation, system: Node) -> Conversation:
        """Store a new conversation above `system`, or above the system message that has the same bytes already.
        A head elsewhere in the store (a fork) is kept."""
        with self._db.write(durable=True) as connection:
            root = self.shared_root(connection, system)
            if conversation.head is None or conversation.head == system.id:
                conversation = replace(conversation, head=root.id)
            put(connection, conversation, first=True)
            if conversation.turns == 0:
                self._take(connection, conversation.id)
        self._remember(root)
        return conversation

    def take_empty(self, id: str) -> bool:
        """Have an empty conversation for this kvchat; whether it is empty and no other living one has it."""
        with self._db.write() as connection:
            empty = connection.execute("SELECT 1 FROM conversation WHERE id = ? AND turns = 0", (id,)).fetchone()
            row = connection.execute("SELECT value FROM setting WHERE key = ?", (_BEGUN + id,)).fetchone()
            if empty is None or (row is not None and row[0] != self._db.owner and not is_gone(row[0])):
                return False
            self._take(connection, id)
        return True

    def _take(self, connection: sqlite3.Connection, id: str) -> None:
        connection.execute(
            "INSERT INTO setting VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
            (_BEGUN + id, self._db.owner),
        )

    def begin(self, connection: sqlite3.Connection, id: str) -> None:
        """Record that a conversation has its first message: it is no process's empty one any more."""
        connection.execute("DELETE FROM setting WHERE key = ?", (_BEGUN + id,))

    def shared_root(self, connection: sqlite3.Connection, system: Node) -> Node:
        """Inside a transaction: the stored system message with the bytes of `system`; that one itself where there was
        none."""
        if (found := self.like(system)) is not None:
            return found
        connection.execute(_ADD_NODE, (*row_of(system), None, None))
        return system

    def like(self, system: Node) -> Node | None:
        """The stored system message with the bytes of `system`."""
        row = self._db.row(
            f"SELECT {columns(NODE_FIELDS)} FROM node WHERE id = :id OR (parent IS NULL AND digest = :digest"
            " AND wire = :wire) ORDER BY id = :id DESC, seq LIMIT 1",
            {"id": system.id, "digest": system.digest, "wire": system.wire},
        )
        return node_of(row) if row else None

    def stored(self, connection: sqlite3.Connection, known: Conversation) -> Conversation:
        """Inside a transaction: the row as it is now. One that another kvchat deleted for good while it was
        empty is stored again as it was `known`. Raises ConversationDeleted."""
        row = self.exact(known.id)
        if row is not None:
            return row
        if known.turns:
            raise ConversationDeleted(StoreProblem.DELETED)
        self.keep_root(connection, known.head)
        put(connection, known, first=False)
        return known

    def write(
        self, connection: sqlite3.Connection, row: Conversation, change: Change, shown: str | None = None
    ) -> Conversation:
        """Inside a transaction: store what `change` makes of the row, only the fields that it changes, and give it
        back. `shown`: the head that the window of the act showed; None: this one."""
        changed = change(row)
        if changed.head != row.head:
            self.keep_root(connection, changed.head)
            tips.moved(connection, row.id, row.head, changed.head, row.head if shown is None else shown)
        pairs = zip(CONVERSATION_FIELDS, conversation_row(row), conversation_row(changed), strict=True)
        fields = {name: value for name, before, value in pairs if value != before}
        if fields:
            connection.execute(
                f"UPDATE conversation SET {', '.join(f'{name} = ?' for name in fields)} WHERE id = ?",
                (*fields.values(), row.id),
            )
        _tag(connection, row.id, set(changed.tags) - set(row.tags))
        connection.executemany(
            "DELETE FROM tag WHERE conversation = ? AND name = ?",
            [(row.id, name) for name in set(row.tags) - set(changed.tags)],
        )
        return changed

    def keep_root(self, connection: sqlite3.Connection, id: str | None) -> None:
        root = self._roots.get(id or "")
        if root:
            connection.execute(_ADD_NODE, (*row_of(root), None, None))

    def change(self, known: Conversation, change: Change, shown: str | None) -> Conversation:
        with self._db.write() as connection:
            return self.write(connection, self.stored(connection, known), change, shown)

    def mark(self, id: str) -> tuple[int, int]:
        """How many messages were made in the conversation, and how many of them stream."""
        # Each from an index: no message is read.
        row = self._db.row(
            "SELECT (SELECT count(*) FROM node WHERE conversation = :id),"
            " (SELECT count(*) FROM node WHERE state = 'streaming' AND +conversation = :id)",
            {"id": id},
        )
        return int(row[0]), int(row[1])

    def tree(self, id: str) -> Tree:
        """What was said in the conversation, with everything above it."""
        with self._db.reading(), many_values():
            known = self._db.row("SELECT head FROM conversation WHERE id = ?", (id,))
            if known is None:
                raise _unknown(id)
            own = self._db.rows(f"SELECT {columns(NODE_FIELDS)} FROM node WHERE conversation = ? ORDER BY seq", (id,))
            here = {row[0] for row in own}
            above = {row[1] for row in own if row[1] is not None} | ({known[0]} - {None})
            shared = self._db.rows(_ANCESTORS, (to_json(sorted(above - here)),)) if above - here else []
            nodes = nodes_of([row for row in shared if row[0] not in here] + own)
            tree = Tree(nodes)
        self._remember(*tree.children(None))
        return tree

    def _remember(self, *roots: Node) -> None:
        self._roots.update((root.id, root) for root in roots)
        for id in list(self._roots)[:-ROOTS]:
            del self._roots[id]

    def purge_trash(self, older_than: float) -> bool:
        """Remove for good what was put into the trash before `older_than` (seconds since the epoch); whether there was
        something."""
        gone = "SELECT id FROM conversation WHERE trashed < ?"
        if not self._db.row(f"{gone} LIMIT 1", (older_than,)):
            return False
        from kvchat.store.images import forget, held

        with self._db.write(durable=True) as connection:
            images = held(connection)
            for table, column in (("draft", "conversation"), ("queued", "conversation"), ("kept", "id")):
                connection.execute(f"DELETE FROM {table} WHERE {column} IN ({gone})", (older_than,))
            for key in (_BEGUN, PROMPT_IDS, tips.KEY, TITLE_ASKED, SYSTEM_TYPED, SKILLS_TO):
                connection.execute(
                    f"DELETE FROM setting WHERE key IN (SELECT ? || id FROM ({gone}))", (key, older_than)
                )
            connection.execute("DELETE FROM conversation WHERE trashed < ?", (older_than,))
            collect(connection, self._db.fts)
            forget(connection, images)
            connection.execute("DELETE FROM setting WHERE key = ?", (ERASED,))
        return True


def put(connection: sqlite3.Connection, conversation: Conversation, *, first: bool) -> None:
    """Store a conversation that is not there. `first`: before all others in the list."""
    if connection.execute(_PUT, conversation_row(conversation)).rowcount:
        move(connection, conversation, first=first)
        _tag(connection, conversation.id, conversation.tags)


def move(connection: sqlite3.Connection, row: Conversation, *, first: bool) -> None:
    """Give a conversation its place in the list: that of its time, in milliseconds. `first`: before all others, however
    the clock was set meanwhile; the user has used it."""
    connection.execute(_MOVE, {"time": row.updated, "first": first, "id": row.id})


def _tag(connection: sqlite3.Connection, id: str, tags: Collection[str]) -> None:
    """Put tags on a conversation that does not have them."""
    connection.executemany(
        "INSERT INTO tag(conversation, name) VALUES (?, ?)", [(id, whole_characters(name)) for name in sorted(tags)]
    )


def collect(connection: sqlite3.Connection, fts: bool) -> None:
    """Remove the shared nodes that no head and no conversation's message needs. The caller holds the transaction."""
    shared: dict[str, str | None] = dict(
        connection.execute("SELECT id, parent FROM node WHERE conversation IS NULL").fetchall()
    )
    needed: set[str] = set()
    for (id,) in connection.execute(
        """SELECT id FROM node WHERE conversation IS NULL AND (
               EXISTS (SELECT 1 FROM conversation WHERE head = node.id)
               OR EXISTS (SELECT 1 FROM kept WHERE kept.node = node.id AND kept.name != '')
               OR EXISTS (SELECT 1 FROM node child WHERE child.parent = node.id AND child.conversation NOT NULL))"""
    ):
        step: str | None = id
        while step is not None and step in shared and step not in needed:
            needed.add(step)
            step = shared[step]
    for id in shared.keys() - needed:
        index.remove(connection, fts, id)
        connection.execute("DELETE FROM node WHERE id = ?", (id,))
