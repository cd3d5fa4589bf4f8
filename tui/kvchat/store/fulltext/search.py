"""Search over messages and titles: by the full-text index where there is one, else by reading the messages.

A hit names a conversation that can be opened; what is in the trash is not found.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from kvchat.prompt.conversation import SearchHit
from kvchat.prompt.tags import meant
from kvchat.store.conversations import MEMBERS
from kvchat.store.errors import is_damage, result_code
from kvchat.store.file.database import Database
from kvchat.store.fulltext.index import searchable
from kvchat.store.fulltext.query import Query, Word, beginning, parsed
from kvchat.store.rows import to_json

TITLE = "title"
"""The `role` of a hit in a title; its node is the conversation's head, or empty."""
RANKED_WINDOW = 2000
"""bm25 is computed over this many of the newest hits."""
WINDOW = 200
"""Newest-first results are put in order of time within at least this many of the last stored."""

_HOME = "LEFT JOIN conversation ON conversation.id = node.conversation AND conversation.trashed IS NULL"
_FOUND = "SELECT node.id, conversation.id, conversation.title"
_INDEXED = f"""{_FOUND}, 0.0 FROM search CROSS JOIN node ON node.seq = search.rowid {_HOME}
    WHERE search MATCH :match AND {{where}} ORDER BY search.rowid DESC"""
_RANKED = _INDEXED.replace("0.0", "bm25(search)") + " LIMIT :window"
_SCANNED = f"""{_FOUND}, 0.0 FROM node {_HOME}
    WHERE state != 'streaming' AND role IN ('user', 'assistant') AND {{where}} ORDER BY node.seq DESC"""
_WITHIN = f"node.id IN ({MEMBERS} SELECT id FROM member)"
_TAGGED = "(conversation.id IS NULL OR conversation.id IN (SELECT value FROM json_each(:tagged)))"
"""A message whose own conversation is gone or in the trash is looked at one by one."""
_HEIR = """WITH RECURSIVE below(id, conversation) AS (
        SELECT id, conversation FROM node WHERE id = ?
        UNION SELECT node.id, node.conversation FROM below JOIN node ON node.parent = below.id)
    SELECT c.id, c.title FROM below JOIN conversation c ON (c.id = below.conversation OR c.head = below.id)
    WHERE c.trashed IS NULL ORDER BY c.place DESC LIMIT 1"""


class _Found(Struct, frozen=True):
    node: str
    conversation: str
    title: str
    rank: float


class Search:
    def __init__(self, db: Database) -> None:
        self._db = db

    def __call__(self, text: str, limit: int, ranked: bool, conversation: str | None) -> list[SearchHit]:
        whole, query = parsed(text, whole=True), parsed(text)
        if not (query.words or query.tags) or limit < 1:
            return []
        hits = dict[tuple[str, str], SearchHit]()
        with self._db.reading() as connection:
            # A word that is there whole comes before longer ones that begin so.
            for one in (whole, query) if self._db.fts and whole.match != query.match else (query,):
                if len(hits) < limit:
                    for hit in self._found(connection, one, limit, ranked, conversation):
                        hits.setdefault((hit.conversation, hit.node), hit)
        return list(hits.values())[:limit]

    def _found(
        self, connection: sqlite3.Connection, query: Query, limit: int, ranked: bool, conversation: str | None
    ) -> list[SearchHit]:
        tagged = self._tagged(connection, query) if query.tags else None
        hits = self._messages(connection, query, limit, ranked, conversation, tagged) if query.words else []
        if conversation is None:
            hits += self._titles(connection, query, {hit.conversation for hit in hits}, tagged)
        if not ranked:
            hits.sort(key=lambda hit: hit.created, reverse=True)
        return hits

    @staticmethod
    def _tagged(connection: sqlite3.Connection, query: Query) -> frozenset[str]:
        """The conversations that have all tags that are asked for."""
        known = [name for (name,) in connection.execute("SELECT DISTINCT name FROM tag")]
        found: list[frozenset[str]] = []
        for term in query.tags:
            rows = connection.execute(
                "SELECT conversation FROM tag WHERE name IN (SELECT value FROM json_each(?))",
                (to_json(meant(term, known)),),
            )
            found.append(frozenset(id for (id,) in rows))
        return frozenset.intersection(*found)

    def _messages(
        self,
        connection: sqlite3.Connection,
        query: Query,
        limit: int,
        ranked: bool,
        conversation: str | None,
        tagged: frozenset[str] | None,
    ) -> list[SearchHit]:
        by_index = self._db.fts and bool(query.match)
        try:
            found = list(self._candidates(connection, query, limit, ranked, conversation, tagged, by_index))
        except sqlite3.Error as error:
            if not by_index or not (is_damage(error) or result_code(error) == 1):
                raise
            # The index is damaged.
            found = list(self._candidates(connection, query, limit, False, conversation, tagged, False))
        found.sort(key=lambda one: one.rank)
        return [self._hit(query, one) for one in (found[:limit] if ranked else found)]

    def _candidates(
        self,
        connection: sqlite3.Connection,
        query: Query,
        limit: int,
        ranked: bool,
        conversation: str | None,
        tagged: frozenset[str] | None,
        by_index: bool,
    ) -> Iterator[_Found]:
        ranked = ranked and by_index
        values: dict[str, object] = {"match": query.match, "window": RANKED_WINDOW, "conversation": conversation}
        literal = [word for word in query.words if word.literal or not by_index]
        where = [_like(word, f"like{i}", values) for i, word in enumerate(literal)]
        if conversation is not None:
            where.append(_WITHIN)
        if tagged is not None:
            where.append(_TAGGED)
            values["tagged"] = to_json(tagged)
        sql = _RANKED if ranked else _INDEXED if by_index else _SCANNED
        only = None
        if conversation is not None:
            only = connection.execute("SELECT id, title FROM conversation WHERE id = ?", (conversation,)).fetchone()
        count = 0
        for node, id, title, rank in connection.execute(sql.format(where=" AND ".join(where) or "1"), values):
            home = only or ((id, title) if id else connection.execute(_HEIR, (node,)).fetchone())
            if home is None or (tagged is not None and home[0] not in tagged):
                continue
            yield _Found(node, home[0], home[1], rank)
            count += 1
            if not ranked and count >= max(limit, WINDOW):
                return

    def _hit(self, query: Query, found: _Found) -> SearchHit:
        role, text, blocks, created = self._db.row(
            "SELECT role, text, blocks, created FROM node WHERE id = ?", (found.node,)
        )
        snippet = query.snippet(text)
        if snippet is None and blocks:
            snippet = query.snippet(searchable(role, text, blocks) or "")
        return SearchHit(found.conversation, found.node, found.title, role, snippet or beginning(text), created)

    def _titles(
        self, connection: sqlite3.Connection, query: Query, known: set[str], tagged: frozenset[str] | None
    ) -> Iterator[SearchHit]:
        """Conversations found by their title alone, or by their tags."""
        values: dict[str, object] = {}
        # A quick sieve: LIKE knows neither accents nor the case of other letters than ASCII.
        where = [
            f"({_like(word, f'like{i}', values, ('title',))} OR title GLOB '*[^ -~]*')"
            for i, word in enumerate(query.words)
            if word.text.isascii() and word.text.isalnum()
        ]
        rows: list[Any] = connection.execute(
            "SELECT id, head, title, updated FROM conversation WHERE trashed IS NULL AND turns > 0 AND "
            + (" AND ".join(where) or "1"),
            values,
        ).fetchall()
        for id, head, title, updated in rows:
            if id not in known and (tagged is None or id in tagged) and query.fits(title):
                yield SearchHit(id, head or "", title, TITLE, query.snippet(title) or beginning(title), updated)


def _like(
    word: Word, name: str, values: dict[str, object], columns: tuple[str, ...] = ("node.text", "node.blocks")
) -> str:
    """A condition that one of the columns holds the word as it is typed."""
    text = word.text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    values[name] = f"%{text}%"
    return "(" + " OR ".join(f"{column} LIKE :{name} ESCAPE '\\'" for column in columns) + ")"
