"""Find the chunks for the words of a query: by the full-text table, or by reading all of them where SQLite has none.

Any of the words will do; rarer ones and those in headings count more (BM25). Chunks of equal score come in the order of
their names, so that a rebuilt index answers alike.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

from msgspec import Struct

from kvchat.index import content
from kvchat.index.scoping import Within
from kvchat.index.tokenizer import TOKENIZE, IndexWord, prepared, readable, stems
from kvchat.store.file.database import connect

HEAD_WEIGHT = 3.0
"""How much more a word in the head of a chunk counts than one in its text."""
_K1, _B = 1.2, 0.75
"""The constants of BM25, as FTS5 has them."""
_NAMED = " CROSS JOIN chunk ON chunk.id = words.rowid CROSS JOIN doc ON doc.id = chunk.doc"


class Ranked(Struct, frozen=True):
    """A chunk that was found."""

    score: float
    """Higher is better."""
    name: content.Name
    id: int


def in_order(connection: sqlite3.Connection, scores: Iterable[tuple[int, float]]) -> list[Ranked]:
    """Chunks by their scores, the best first. What is gone meanwhile is left out."""
    scores = list(scores)
    names = content.names(connection, [id for id, _ in scores])
    found = [Ranked(score, names[id], id) for id, score in scores if id in names]
    return sorted(found, key=lambda one: (-one.score, one.name))


def by_words(
    connection: sqlite3.Connection, fts: bool, words: Sequence[IndexWord], within: Within, pool: int, needed: int
) -> list[Ranked]:
    """The best chunks that hold one of the words: at most `pool`, and at least `needed` where there are that many. The
    whole index decides what is rare and what is long."""
    if not words:
        return []
    if not fts:
        return in_order(connection, _scanned(connection, words, within).items())[:pool]
    found = _indexed(connection, words, within, pool + 1)
    if len(found) > pool:
        last = found[pool][1]  # of those as good as this one, the table has picked some by their ids
        better = [one for one in found if one[1] > last]
        found = (
            better
            if len(better) >= needed
            else [one for one in _indexed(connection, words, within, -1) if one[1] >= last]
        )
    return in_order(connection, found)[:pool]


def _indexed(
    connection: sqlite3.Connection, words: Sequence[IndexWord], within: Within, limit: int
) -> list[tuple[int, float]]:
    """The ids of chunks and their BM25, the best first; at most `limit`, all for -1."""
    tables, condition, values = _holding(words, within)
    return connection.execute(
        f"SELECT words.rowid, -bm25(words, 0.0, {HEAD_WEIGHT}, 1.0) AS score {tables} "
        f"WHERE {condition} ORDER BY score DESC LIMIT ?",
        (*values, limit),
    ).fetchall()


def frequencies(
    connection: sqlite3.Connection, fts: bool, sought: Sequence[Sequence[IndexWord]], within: Within, most: int
) -> list[int]:
    """How many chunks hold one of the words, for each lot of words; counted up to `most`, so that a word that is
    everywhere costs no more than another."""
    if not fts:
        texts = [Counter(stems(readable(f"{head} {text}"))) for _, head, text in content.texts(connection, within)]
        return [min(most, sum(any(_times(word, there) for word in words) for there in texts)) for words in sought]
    counts = []
    for words in sought:
        tables, condition, values = _holding(words, within)
        counts.append(
            connection.execute(
                f"SELECT count(*) FROM (SELECT 1 {tables} WHERE {condition} LIMIT ?)", (*values, most)
            ).fetchone()[0]
            if words
            else 0
        )
    return counts


def _holding(words: Sequence[IndexWord], within: Within) -> tuple[str, str, tuple[object, ...]]:
    """FROM, the condition that a chunk of the scope holds one of the words, and its values."""
    match = " OR ".join(word.match for word in words)
    where, values = within.condition
    if (tokens := within.tokens) is not None:
        match = f"(place : ({tokens})) AND ({match})"
        where, values = within.dated
    return f"FROM words{_NAMED if values else ''}", f"words MATCH ? AND {where}", (match, *values)


def matched(fts: bool, words: Sequence[IndexWord], found: Mapping[int, content.Chunk]) -> Counter[int]:
    """How many of the words stand in each chunk. They are put into a table of their own for it: a few texts are read
    sooner than all the places of a common word."""
    counts: Counter[int] = Counter()
    if not fts:
        for id, chunk in found.items():
            there = Counter(stems(readable(f"{chunk.head} {chunk.text}")))
            counts[id] = sum(1 for word in words if _times(word, there))
        return counts
    with closing(connect(":memory:")) as counter:
        counter.execute(f"CREATE VIRTUAL TABLE words USING fts5(head, text, content = '', {TOKENIZE})")
        counter.executemany(
            "INSERT INTO words(rowid, head, text) VALUES (?, ?, ?)",
            [(id, prepared(chunk.head), prepared(chunk.text)) for id, chunk in found.items()],
        )
        for word in words:
            counts.update(id for (id,) in counter.execute("SELECT rowid FROM words WHERE words MATCH ?", (word.match,)))
    return counts


def _scanned(connection: sqlite3.Connection, words: Sequence[IndexWord], within: Within) -> dict[int, float]:
    """BM25 by reading everything: slow, and right."""
    lengths: dict[int, int] = {}
    times: dict[int, list[float]] = {}
    sought = [word.stem for word in words]
    for id, head, text in content.texts(connection, within):
        head, text = readable(head), readable(text)
        lengths[id] = len(head.split()) + len(text.split())
        if not any(stem in head or stem in text for stem in sought):
            continue
        above, below = Counter(stems(head)), Counter(stems(text))
        found = [HEAD_WEIGHT * _times(word, above) + _times(word, below) for word in words]
        if any(found):
            times[id] = found
    usual = sum(lengths.values()) / len(lengths) if lengths else 1.0
    holding = [sum(1 for found in times.values() if found[i]) for i in range(len(words))]
    weights = [max(1e-6, math.log((len(lengths) - n + 0.5) / (n + 0.5))) for n in holding]
    return {
        id: sum(
            weight * n * (_K1 + 1) / (n + _K1 * (1 - _B + _B * lengths[id] / usual))
            for weight, n in zip(weights, found, strict=True)
        )
        for id, found in times.items()
    }


def _times(word: IndexWord, there: Counter[str]) -> int:
    stem = word.stem
    return sum(n for other, n in there.items() if other.startswith(stem)) if word.begins else there[stem]


_FLATNESS = 60
"""How slowly a place counts for less: the usual constant of reciprocal rank fusion."""


def fused(connection: sqlite3.Connection, found: Sequence[Ranked], near: Mapping[int, float]) -> list[Ranked]:
    """One order of what was found by words and what is near, by reciprocal rank: no scores are compared that mean
    different things."""
    if not near:
        return list(found)
    scores: dict[int, float] = {}
    for order in (found, in_order(connection, near.items())):
        for place, one in enumerate(order, 1):
            scores[one.id] = scores.get(one.id, 0.0) + 1 / (_FLATNESS + place)
    return in_order(connection, scores.items())
