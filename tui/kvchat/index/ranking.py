"""Which chunks the words of a query find: by the full-text table, or by reading all of them where SQLite has none.

The rule: any of the words will do, the rarer ones and those in headings counting for more; and chunks of equal score
come in the order of their names, so that an index that was made anew answers alike.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvchat.index import content
from kvchat.index.words import Word, readable, stems

HEAD_WEIGHT = 3.0
"""How much more a word in the head of a chunk counts than one in its text."""
_K1, _B = 1.2, 0.75
"""The constants of BM25, as FTS5 has them."""

_READ = 64
"""Chunks with a word that are read, rather than one looked up, for each that is asked for."""

_BM25 = f"bm25(words, 0.0, {HEAD_WEIGHT}, 1.0)"
_NAMED = " CROSS JOIN chunk ON chunk.id = words.rowid CROSS JOIN doc ON doc.id = chunk.doc"


@dataclass(frozen=True, slots=True)
class Ranked:
    """A chunk that was found. Sorting puts the best first."""

    score: float
    """Higher is better."""
    name: content.Name
    id: int

    @property
    def order(self) -> tuple[float, content.Name]:
        return -self.score, self.name


def in_order(connection: sqlite3.Connection, scores: Iterable[tuple[int, float]]) -> list[Ranked]:
    """Chunks by their scores, the best first. What is gone meanwhile is left out."""
    scores = list(scores)
    names = content.names(connection, [id for id, _ in scores])
    found = [Ranked(score, names[id], id) for id, score in scores if id in names]
    return sorted(found, key=lambda one: one.order)


def by_words(connection: sqlite3.Connection, fts: bool, words: Sequence[Word], scope: str, pool: int,
             needed: int) -> list[Ranked]:
    """The best chunks that hold one of the words: at most `pool`, and at least `needed` where there are so many."""
    if not words:
        return []
    if not fts:
        return in_order(connection, _scanned(connection, words, scope).items())[:pool]
    found = _indexed(connection, words, scope, pool + 1)
    if len(found) > pool:  # of those as good as the last one, the table has picked some by their ids
        better = [one for one in found if one[1] > found[pool][1]]
        if len(better) < needed:
            better = [one for one in _indexed(connection, words, scope, -1) if one[1] >= found[pool][1]]
        found = better
    return in_order(connection, found)[:pool]


def _indexed(connection: sqlite3.Connection, words: Sequence[Word], scope: str, limit: int) -> list[tuple[int, float]]:
    tables, condition, values = _holding(words, scope, everywhere=content.is_all(connection, scope))
    rows = connection.execute(f"SELECT words.rowid, {_BM25} AS score {tables} WHERE {condition} ORDER BY score LIMIT ?",
                              (*values, limit))
    return [(id, -score) for id, score in rows]


def frequencies(connection: sqlite3.Connection, fts: bool, sought: Sequence[Sequence[Word]], scope: str,
                most: int) -> list[int]:
    """How many chunks hold one of the words, for each lot of words; counted up to `most`, so that a word that stands
    everywhere costs no more than another."""
    if not fts:
        texts = [Counter(stems(readable(f"{head} {text}"))) for _, head, text in content.texts(connection, scope)]
        return [min(most, sum(any(_times(word, there) for word in words) for there in texts)) for words in sought]
    everywhere = content.is_all(connection, scope)
    counts = []
    for words in sought:
        tables, condition, values = _holding(words, scope, everywhere=everywhere)
        counts.append(connection.execute(f"SELECT count(*) FROM (SELECT 1 {tables} WHERE {condition} LIMIT ?)",
                                         (*values, most)).fetchone()[0] if words else 0)
    return counts


def _holding(words: Sequence[Word], scope: str, *, everywhere: bool) -> tuple[str, str, tuple[str, ...]]:
    """FROM, the condition that a chunk of the scope holds one of the words, and its values. `everywhere`: all chunks
    are in the scope."""
    match = " OR ".join(word.match for word in words)
    if everywhere:
        return "FROM words", "words MATCH ?", (match,)
    if scope.endswith("/"):
        return "FROM words", "words MATCH ?", (f'(place : "{content.place(scope)}") AND ({match})',)
    where, values = content.within(scope)
    return f"FROM words{_NAMED}", f"words MATCH ? AND {where}", (match, *values)


def matched(connection: sqlite3.Connection, fts: bool, words: Sequence[Word], ids: Sequence[int]) -> Counter[int]:
    """How many of the words stand in each of the chunks."""
    counts: Counter[int] = Counter()
    if not fts:
        for id, chunk in content.chunks(connection, ids).items():
            there = Counter(stems(readable(f"{chunk.head} {chunk.text}")))
            counts[id] = sum(1 for word in words if _times(word, there))
        return counts
    asked = set(ids)
    for word in words:
        found = connection.execute("SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?",
                                   (word.match, min(ids, default=0), max(ids, default=0), _READ * len(ids))).fetchall()
        counts.update(id for id, in found if id in asked)
        if len(found) == _READ * len(ids):  # a word that stands in very many: the rest of those asked for, one by one
            for id in asked:
                if id > found[-1][0]:
                    counts[id] += connection.execute("SELECT count(*) FROM words WHERE words MATCH ? AND rowid = ?",
                                                     (word.match, id)).fetchone()[0]
    return counts


def _scanned(connection: sqlite3.Connection, words: Sequence[Word], scope: str) -> dict[int, float]:
    """BM25 by reading everything: slow, and right."""
    lengths: dict[int, int] = {}
    times: dict[int, list[float]] = {}
    sought = [word.stem for word in words]
    for id, head, text in content.texts(connection, scope):
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
    return {id: sum(weight * n * (_K1 + 1) / (n + _K1 * (1 - _B + _B * lengths[id] / usual))
                    for weight, n in zip(weights, found, strict=True))
            for id, found in times.items()}


def _times(word: Word, there: Counter[str]) -> int:
    stem = word.stem
    return sum(n for other, n in there.items() if other.startswith(stem)) if word.begins else there[stem]
