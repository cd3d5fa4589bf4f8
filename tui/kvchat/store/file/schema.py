"""The shape of the database, and how an older one becomes it.

The rule: a change of the shape is one more numbered function at the end of MIGRATIONS; those before it never change.

`salvage` tells the rows of tables apart when the schema itself is lost: by the number of their values, or by what they
are.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence

from kvchat.prompt.context import FILE, IMAGE, ContextBlock
from kvchat.prompt.drafts import PASTE, Draft, Spans, chips_of, edited, given, labelled, span_rows

MAGIC = b"SQLite format 3\x00"
"""How every SQLite file begins."""
APPLICATION_ID = 0x6B766368
"""`kvch`: marks a SQLite file as kvchat's."""

MEMORY_SINCE = "store.memory_since"
"""The key of the setting with the `node.seq` of the last message that was there before memory came."""


def _first(db: sqlite3.Connection) -> None:
    """Conversations are heads in a tree of immutable nodes. `node.conversation` is the conversation a message was
    made in, NULL for what is shared: system messages, and ancestors of a fork whose origin is gone."""
    for statement in (
        """CREATE TABLE conversation(
            seq INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            head TEXT REFERENCES node(id) DEFERRABLE INITIALLY DEFERRED,
            created REAL NOT NULL,
            updated REAL NOT NULL,
            title TEXT NOT NULL,
            turns INTEGER NOT NULL,
            model TEXT NOT NULL,
            parameters TEXT,
            template_options TEXT,
            forked_from TEXT,
            unread INTEGER NOT NULL,
            trashed REAL,
            context_used INTEGER)""",
        "CREATE INDEX conversation_updated ON conversation(updated)",
        "CREATE INDEX conversation_head ON conversation(head)",
        """CREATE TABLE node(
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            conversation TEXT REFERENCES conversation(id) ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED,
            parent TEXT REFERENCES node(id) DEFERRABLE INITIALLY DEFERRED,
            role TEXT NOT NULL,
            text TEXT NOT NULL,
            blocks TEXT,
            reasoning TEXT NOT NULL,
            reasoning_field TEXT NOT NULL,
            wire BLOB NOT NULL,
            digest BLOB NOT NULL,
            created REAL NOT NULL,
            state TEXT NOT NULL,
            model TEXT NOT NULL,
            figures TEXT,
            note TEXT NOT NULL,
            owner TEXT)""",
        "CREATE INDEX node_conversation ON node(conversation)",
        "CREATE INDEX node_parent ON node(parent)",
        "CREATE INDEX node_root ON node(digest) WHERE parent IS NULL",
        "CREATE INDEX node_streaming ON node(owner) WHERE state = 'streaming'",
        "CREATE INDEX node_figures ON node(created) WHERE figures IS NOT NULL",
        """CREATE TABLE delta(
            node TEXT NOT NULL REFERENCES node(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
            seq INTEGER NOT NULL,
            text BLOB NOT NULL,
            reasoning BLOB NOT NULL,
            reasoning_field TEXT NOT NULL,
            PRIMARY KEY(node, seq)) WITHOUT ROWID""",
        """CREATE TABLE request(
            node TEXT PRIMARY KEY REFERENCES node(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
            body_sha256 TEXT NOT NULL,
            server TEXT NOT NULL,
            kind TEXT NOT NULL,
            build TEXT NOT NULL,
            model TEXT NOT NULL) WITHOUT ROWID""",
        "CREATE INDEX request_server ON request(server, model)",
        "CREATE TABLE draft(conversation TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE prompt(name TEXT PRIMARY KEY, text TEXT NOT NULL, saved REAL NOT NULL) WITHOUT ROWID",
        "CREATE TABLE setting(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    ):
        db.execute(statement)


def _warmup(db: sqlite3.Connection) -> None:
    """What was read ahead, so that it is counted in a line of its own."""
    db.execute("""CREATE TABLE warmup(
        seq INTEGER PRIMARY KEY,
        conversation TEXT NOT NULL,
        created REAL NOT NULL,
        server TEXT NOT NULL,
        model TEXT NOT NULL,
        cached INTEGER NOT NULL,
        evaluated INTEGER NOT NULL,
        seconds REAL NOT NULL)""")


def _server_of_conversation(db: sqlite3.Connection) -> None:
    """The server chosen for a conversation, and where its system message goes. Every row is written anew: `salvage`
    knows a table by the number of values in a row."""
    db.execute("ALTER TABLE conversation ADD COLUMN server TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE conversation ADD COLUMN system_in_user INTEGER NOT NULL DEFAULT 0")
    db.execute("UPDATE conversation SET server = '', system_in_user = 0")


def _memory(db: sqlite3.Connection) -> None:
    """What memory knows beside its files, the work that waits, and what background requests cost.

    `covered.mark` is what a message and its copies have in common. Every row of `conversation` is written anew, as
    before. An index over two texts would look like `setting` to `salvage`.
    """
    db.execute("ALTER TABLE conversation ADD COLUMN memory INTEGER NOT NULL DEFAULT 1")
    db.execute("UPDATE conversation SET memory = 1")
    for statement in (
        """CREATE TABLE job(
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            due REAL NOT NULL,
            attempts INTEGER NOT NULL,
            state TEXT NOT NULL,
            why TEXT NOT NULL,
            created REAL NOT NULL,
            owner TEXT,
            again REAL,
            not_before REAL NOT NULL,
            PRIMARY KEY(kind, subject)) WITHOUT ROWID""",
        """CREATE TABLE side_request(
            seq INTEGER PRIMARY KEY,
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            created REAL NOT NULL,
            server TEXT NOT NULL,
            model TEXT NOT NULL,
            outcome TEXT NOT NULL,
            prompt_tokens INTEGER,
            cached_tokens INTEGER,
            predicted_tokens INTEGER,
            seconds REAL NOT NULL)""",
        "CREATE INDEX side_request_created ON side_request(created)",
        """CREATE TABLE cell(
            seq INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            conversation TEXT NOT NULL,
            created REAL NOT NULL,
            kind TEXT NOT NULL,
            model TEXT NOT NULL,
            session TEXT NOT NULL,
            noted INTEGER NOT NULL,
            refused TEXT NOT NULL)""",
        "CREATE INDEX cell_conversation ON cell(conversation)",
        """CREATE TABLE covered(
            node TEXT PRIMARY KEY REFERENCES node(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
            cell TEXT NOT NULL,
            conversation TEXT NOT NULL,
            mark BLOB NOT NULL) WITHOUT ROWID""",
        "CREATE INDEX covered_mark ON covered(mark)",
        """CREATE TABLE entry(
            seq INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            kind TEXT NOT NULL,
            text TEXT NOT NULL,
            page TEXT NOT NULL,
            created REAL NOT NULL,
            status TEXT NOT NULL,
            confidence REAL,
            conversation TEXT NOT NULL,
            nodes TEXT NOT NULL,
            author TEXT NOT NULL,
            superseded_by TEXT NOT NULL,
            edited INTEGER NOT NULL)""",
        """CREATE TABLE change(
            seq INTEGER PRIMARY KEY,
            act TEXT NOT NULL,
            entry TEXT NOT NULL,
            before TEXT,
            after TEXT NOT NULL,
            at REAL NOT NULL,
            session TEXT NOT NULL,
            why TEXT NOT NULL,
            conversation TEXT NOT NULL,
            cell TEXT NOT NULL,
            written INTEGER NOT NULL,
            undone INTEGER NOT NULL)""",
        "CREATE INDEX change_entry ON change(entry)",
        "CREATE INDEX change_session ON change(session)",
        "CREATE INDEX change_conversation ON change(conversation)",
        "CREATE INDEX change_unwritten ON change(written) WHERE written = 0",
        # A conversation that is gone for good takes its waiting work and its refused texts with it.
        """CREATE TRIGGER conversation_gone AFTER DELETE ON conversation BEGIN
            DELETE FROM job WHERE subject = old.id;
            UPDATE cell SET refused = '[]' WHERE conversation = old.id;
        END""",
    ):
        db.execute(statement)
    db.execute("INSERT INTO setting SELECT ?, coalesce(max(seq), 0) FROM node", (MEMORY_SINCE,))


def _documents(db: sqlite3.Connection) -> None:
    """The folders that are indexed, and which of them a conversation searches, and whether it does by itself. Every
    row of `conversation` is written anew, as before."""
    db.execute("ALTER TABLE conversation ADD COLUMN collections TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE conversation ADD COLUMN searching TEXT NOT NULL DEFAULT 'off'")
    db.execute("UPDATE conversation SET collections = '', searching = 'off'")
    db.execute("""CREATE TABLE collection(
        seq INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE COLLATE NOCASE,
        root TEXT NOT NULL,
        created REAL NOT NULL,
        indexed REAL)""")


def _kinds(db: sqlite3.Connection) -> None:
    """What was stored as a sentence is a kind from now on: why a job waits, the cause of wasted tokens, what was seen
    of it and what helps. The figures of old answers stay as they are, and are read as they are."""
    for kind, sentence in (
        ("most", "the most messages that may wait"),
        ("enough", "enough new messages"),
        ("left", "the conversation was left"),
        ("rests", "the conversation rests"),
        ("asked", "you asked for it"),
        ("new_memories", "new memories"),
    ):
        db.execute("UPDATE job SET why = ? WHERE why = ?", (kind, sentence))


def _retrieval(db: sqlite3.Connection) -> None:
    """The column has the name that the rest of kvchat uses."""
    db.execute("ALTER TABLE conversation RENAME COLUMN searching TO retrieval")


def _tags(db: sqlite3.Connection) -> None:
    """The tags of conversations; a favourite and the archive are two of them. Each stands once by conversation: a key
    over two texts would look like `prompt` to `salvage`, so the write sees to it."""
    db.execute("""CREATE TABLE tag(
        seq INTEGER PRIMARY KEY,
        conversation TEXT NOT NULL REFERENCES conversation(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
        name TEXT NOT NULL)""")
    db.execute("CREATE INDEX tag_conversation ON tag(conversation)")


def _queue(db: sqlite3.Connection) -> None:
    """The messages that wait in conversations for the answer before them. As with drafts, no row refers to another:
    what is saved of a damaged file is saved in any order."""
    db.execute("""CREATE TABLE queued(
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        conversation TEXT NOT NULL,
        text TEXT NOT NULL,
        more TEXT NOT NULL,
        created REAL NOT NULL,
        place REAL NOT NULL)""")
    db.execute("CREATE INDEX queued_conversation ON queued(conversation)")


def _images(db: sqlite3.Connection) -> None:
    """The images that messages carry, each once, as the URL that goes to a server and under that URL's SHA-256. No row
    refers to another: what refers to an image are the blocks of messages, which the index finds."""
    db.execute("""CREATE TABLE image(
        seq INTEGER PRIMARY KEY,
        sha256 TEXT NOT NULL UNIQUE,
        url BLOB NOT NULL,
        width INTEGER NOT NULL,
        height INTEGER NOT NULL,
        kept REAL NOT NULL)""")
    db.execute("CREATE INDEX node_image ON node(conversation) WHERE instr(blocks, '[\"image\",') > 0")


def _kept(db: sqlite3.Connection) -> None:
    """The conversations whose state the person keeps, and up to which message; empty: the last."""
    db.execute("""CREATE TABLE kept(
        seq INTEGER PRIMARY KEY,
        conversation TEXT NOT NULL UNIQUE REFERENCES conversation(id)
            ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
        node TEXT NOT NULL,
        created REAL NOT NULL)""")


def _episodes(db: sqlite3.Connection) -> None:
    """Which messages belong to an episode, each to one, in the order of its messages; an episode is a row of `cell`.
    `mark` as in `covered`."""
    db.execute("""CREATE TABLE in_episode(
        seq INTEGER PRIMARY KEY,
        node TEXT NOT NULL UNIQUE REFERENCES node(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
        cell TEXT NOT NULL,
        mark BLOB NOT NULL)""")
    db.execute("CREATE INDEX in_episode_mark ON in_episode(mark)")


def _token_ids(db: sqlite3.Connection) -> None:
    """The token ids of answers whose prompts went as such. Rows without them stay as they are: `salvage` knows both."""
    db.execute("ALTER TABLE node ADD COLUMN ids BLOB")


def _spans(db: sqlite3.Connection) -> None:
    """Drafts and waiting messages tell by spans of the text what was pasted, attached and typed; before by labels, and
    by the number of each `@` that was typed."""
    for id, stored in db.execute("SELECT conversation, text FROM draft WHERE instr(text, char(30))").fetchall():
        text, _, rest = stored.partition("\x1e")
        try:
            more = json.loads(rest)
            listed, typed = (more["chips"], more["typed"]) if isinstance(more, dict) else (more, [])
            blocks = []
            for source, body, *of_file in listed:
                kind = PASTE if not of_file else IMAGE if IMAGE in of_file[2:] else FILE
                blocks.append(ContextBlock(kind, source, body, *of_file[:1]))
            draft = Draft(text, _spans_by_number(text, blocks, typed)).encoded()
        except (ValueError, TypeError, KeyError, IndexError):
            continue  # it is read as a text
        db.execute("UPDATE draft SET text = ? WHERE conversation = ?", (draft, id))
    for id, text, stored in db.execute("SELECT id, text, more FROM queued").fetchall():
        try:
            more = json.loads(stored)
            blocks = [ContextBlock(*block) for block in more["blocks"]]
            typed = more.pop("typed")
            numbers = range(text.count("@")) if typed is None else typed
            more["spans"] = span_rows(_spans_by_number(text, blocks, numbers), blocks)
        except (ValueError, TypeError, KeyError):
            continue
        db.execute("UPDATE queued SET more = ? WHERE id = ?", (json.dumps(more, ensure_ascii=False), id))


def _spans_by_number(text: str, blocks: Sequence[ContextBlock], typed: Iterable[int]) -> Spans:
    spans = given(text, labelled(text, chips_of(text, blocks).get))
    signs = [at for at, character in enumerate(text) if character == "@"]
    for number in typed:
        spans = edited(spans, signs[number], signs[number] + 1, 1)
    return spans


def _places(db: sqlite3.Connection) -> None:
    """The place of a conversation in the list (`store.conversations.move`), every row written anew, as before; and
    where in a question something was pasted."""
    db.execute("ALTER TABLE conversation ADD COLUMN place INTEGER NOT NULL DEFAULT 0")
    db.execute(
        "UPDATE conversation SET place = CAST(1000 * min(updated, CAST(strftime('%s', 'now') AS REAL)) AS INTEGER)"
    )
    db.execute("CREATE INDEX conversation_place ON conversation(place)")
    db.execute("DROP INDEX conversation_updated")
    db.execute("ALTER TABLE node ADD COLUMN pasted TEXT")


MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = [
    _first,
    _warmup,
    _server_of_conversation,
    _memory,
    _documents,
    _kinds,
    _retrieval,
    _tags,
    _queue,
    _images,
    _kept,
    _episodes,
    _token_ids,
    _spans,
    _places,
]
"""MIGRATIONS[n] turns version n into version n + 1. Each runs inside the one transaction of an upgrade."""

_NEW_TABLES = (
    {"conversation", "node", "delta", "request", "draft", "prompt", "setting"},
    {"warmup"},
    set[str](),
    {"job", "side_request", "cell", "covered", "entry", "change"},
    {"collection"},
    set[str](),
    set[str](),
    {"tag"},
    {"queued"},
    {"image"},
    {"kept"},
    {"in_episode"},
    set[str](),
    set[str](),
    set[str](),
)
"""The tables that MIGRATIONS[n] makes."""
TABLES = frozenset[str]().union(*_NEW_TABLES)


def tables_of(version: int) -> frozenset[str]:
    """The tables that a database of this version has."""
    return frozenset[str]().union(*_NEW_TABLES[: max(1, version)])


def version_of(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def migrate(db: sqlite3.Connection) -> None:
    """Bring the database to the newest version. The caller holds the transaction."""
    for step in MIGRATIONS[version_of(db) :]:
        step(db)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
