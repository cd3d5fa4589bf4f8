"""The shape of the database, and how one of an earlier version becomes it.

A change of the shape is one more numbered function at the end of MIGRATIONS; those before it never change.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

MAGIC = b"SQLite format 3\x00"
"""How every SQLite file begins."""
APPLICATION_ID = 0x6B766368
"""`kvch`: marks a SQLite file as kvchat's."""
FIRST = 102
"""The version of the shape below. Databases from before 0.2 have a smaller one; nothing reads them."""

_SHAPE = """
-- Conversations are heads in a tree of immutable nodes.
CREATE TABLE conversation(
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    head TEXT REFERENCES node(id) DEFERRABLE INITIALLY DEFERRED,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    -- Of the list: `store.conversations.move`.
    place INTEGER NOT NULL DEFAULT 0,
    title TEXT NOT NULL,
    turns INTEGER NOT NULL,
    model TEXT NOT NULL,
    -- The server chosen for it, and whether its system message goes into the first question.
    server TEXT NOT NULL DEFAULT '',
    system_in_user INTEGER NOT NULL DEFAULT 0,
    parameters TEXT,
    template_options TEXT,
    forked_from TEXT,
    unread INTEGER NOT NULL,
    trashed REAL,
    context_used INTEGER,
    memory INTEGER NOT NULL DEFAULT 1,
    -- The folders of documents that it searches, and whether it does by itself.
    collections TEXT NOT NULL DEFAULT '',
    retrieval TEXT NOT NULL DEFAULT 'off');
CREATE INDEX conversation_place ON conversation(place);
CREATE INDEX conversation_head ON conversation(head);

-- `conversation`: the one a message was made in; NULL for what is shared: system messages, and ancestors of a fork
-- whose origin is gone. `ids`: the token ids of answers whose prompts went as such. `pasted`: where in a question
-- something was pasted. `calls`: those that an answer makes, or the one that a result is of. `tools`: of a system
-- message, those of its conversations.
CREATE TABLE node(
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
    owner TEXT,
    ids BLOB,
    pasted TEXT,
    calls TEXT,
    tools BLOB);
CREATE INDEX node_conversation ON node(conversation);
CREATE INDEX node_parent ON node(parent);
CREATE INDEX node_root ON node(digest) WHERE parent IS NULL;
CREATE INDEX node_streaming ON node(owner) WHERE state = 'streaming';
CREATE INDEX node_figures ON node(created) WHERE figures IS NOT NULL;
CREATE INDEX node_image ON node(conversation) WHERE instr(blocks, '["image",') > 0;

CREATE TABLE delta(
    node TEXT NOT NULL REFERENCES node(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    seq INTEGER NOT NULL,
    text BLOB NOT NULL,
    reasoning BLOB NOT NULL,
    reasoning_field TEXT NOT NULL,
    PRIMARY KEY(node, seq)) WITHOUT ROWID;

CREATE TABLE request(
    node TEXT PRIMARY KEY REFERENCES node(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    body_sha256 TEXT NOT NULL,
    server TEXT NOT NULL,
    kind TEXT NOT NULL,
    build TEXT NOT NULL,
    model TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX request_server ON request(server, model);

CREATE TABLE draft(conversation TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE prompt(name TEXT PRIMARY KEY, text TEXT NOT NULL, saved REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE setting(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- Nothing was removed yet that would have to be overwritten: `store.leftovers`.
INSERT INTO setting VALUES ('store.erased', 'done');

-- A favourite and the archive are tags.
CREATE TABLE tag(
    seq INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL REFERENCES conversation(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    name TEXT NOT NULL);
CREATE INDEX tag_conversation ON tag(conversation);

-- Messages that wait for the answer before them. As with drafts, no row refers to another: what is saved of a damaged
-- file is saved in any order.
CREATE TABLE queued(
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    conversation TEXT NOT NULL,
    text TEXT NOT NULL,
    more TEXT NOT NULL,
    created REAL NOT NULL,
    place REAL NOT NULL);
CREATE INDEX queued_conversation ON queued(conversation);

-- Each image once, as the URL that goes to a server and under that URL's SHA-256. What refers to it are the blocks of
-- messages, which `node_image` finds.
CREATE TABLE image(
    seq INTEGER PRIMARY KEY,
    sha256 TEXT NOT NULL UNIQUE,
    url BLOB NOT NULL,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    kept REAL NOT NULL);

-- Whose state the user keeps, and up to which message; empty: the last. With a name it is a trunk, whose message is the
-- node; without one it is the conversation of this id.
CREATE TABLE kept(
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    node TEXT NOT NULL,
    name TEXT NOT NULL,
    created REAL NOT NULL);

-- Documents: the folders that are indexed.
CREATE TABLE collection(
    seq INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE COLLATE NOCASE,
    root TEXT NOT NULL,
    created REAL NOT NULL,
    indexed REAL);

-- What requests without an answer cost.
CREATE TABLE warmup(
    seq INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL,
    created REAL NOT NULL,
    server TEXT NOT NULL,
    model TEXT NOT NULL,
    cached INTEGER NOT NULL,
    evaluated INTEGER NOT NULL,
    seconds REAL NOT NULL);

CREATE TABLE side_request(
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
    seconds REAL NOT NULL);
CREATE INDEX side_request_created ON side_request(created);

CREATE TABLE job(
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
    PRIMARY KEY(kind, subject)) WITHOUT ROWID;

-- Memory: extractions and episodes, the messages they cover (`mark` is what a message and its copies have in common),
-- the memories, and what was done to them.
CREATE TABLE cell(
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    conversation TEXT NOT NULL,
    created REAL NOT NULL,
    kind TEXT NOT NULL,
    model TEXT NOT NULL,
    session TEXT NOT NULL,
    noted INTEGER NOT NULL,
    refused TEXT NOT NULL);
CREATE INDEX cell_conversation ON cell(conversation);

CREATE TABLE covered(
    node TEXT PRIMARY KEY REFERENCES node(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    cell TEXT NOT NULL,
    conversation TEXT NOT NULL,
    mark BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX covered_mark ON covered(mark);

CREATE TABLE in_episode(
    seq INTEGER PRIMARY KEY,
    node TEXT NOT NULL UNIQUE REFERENCES node(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    cell TEXT NOT NULL,
    mark BLOB NOT NULL);
CREATE INDEX in_episode_mark ON in_episode(mark);

CREATE TABLE entry(
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
    edited INTEGER NOT NULL);

CREATE TABLE change(
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
    undone INTEGER NOT NULL);
CREATE INDEX change_entry ON change(entry);
CREATE INDEX change_session ON change(session);
CREATE INDEX change_conversation ON change(conversation);
CREATE INDEX change_unwritten ON change(written) WHERE written = 0;

-- A conversation that is gone for good takes its waiting work and its refused texts with it.
CREATE TRIGGER conversation_gone AFTER DELETE ON conversation BEGIN
    DELETE FROM job WHERE subject = old.id;
    UPDATE cell SET refused = '[]' WHERE conversation = old.id;
END;
"""

MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = []
"""MIGRATIONS[n] turns version FIRST + n into the next. Each runs inside the one transaction of an upgrade."""

TABLES = frozenset(part.partition("(")[0] for part in _SHAPE.split("\nCREATE TABLE ")[1:])
"""The tables of the first shape."""


def newest() -> int:
    """The version that this kvchat makes."""
    return FIRST + len(MIGRATIONS)


def version_of(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def is_draft(db: sqlite3.Connection) -> bool:
    """Whether it is a database of kvchat from before 0.2. Raises sqlite3.Error."""
    mark = db.execute("PRAGMA application_id").fetchone()[0]
    return mark == APPLICATION_ID and 0 < version_of(db) < FIRST


def is_known(db: sqlite3.Connection) -> bool:
    """Whether it is a database of kvchat, of a version that is read here. Raises sqlite3.Error."""
    mark = db.execute("PRAGMA application_id").fetchone()[0]
    return mark == APPLICATION_ID and FIRST <= version_of(db) <= newest()


def migrate(db: sqlite3.Connection) -> None:
    """Bring the database to the newest version. The caller holds the transaction."""
    version = version_of(db)
    if not version:
        for statement in _statements():
            db.execute(statement)
    for step in MIGRATIONS[max(0, version - FIRST) :]:
        step(db)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {newest()}")


def _statements() -> list[str]:
    """Those of the shape, one by one: `executescript` would end the transaction."""
    found, begun = [], ""
    for line in _SHAPE.splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun):
            found.append(begun)
            begun = ""
    return found
