"""Which chunks the words of a query find: by the full-text table, or by reading all of them where SQLite has none.

The rule: any of the words will do, those that are rarer in what is searched and those in headings counting for more;
and chunks of equal score come in the order of their names, so that an index that was made anew answers alike.

Scoring a chunk costs about a microsecond, and common words stand in tens of thousands. So of many chunks only those are
scored that hold one of a query's rarer words, by these and some of the common ones.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from kvchat.index import content
from kvchat.index.mirror import Mirrors, mirrored
from kvchat.index.scoping import ALL, Within
from kvchat.index.words import TOKENIZE, Word, prepared, readable, stems
from kvchat.store.file.database import connect

HEAD_WEIGHT = 3.0
"""How much more a word in the head of a chunk counts than one in its text."""
_K1, _B = 1.2, 0.75
"""The constants of BM25, as FTS5 has them."""

_SCORED = 8000
"""Chunks that are scored, about, where a query has words rare enough for it."""
_COUNTED = 8 * _SCORED
"""Chunks with the words by which they are scored, at most, each word's counted up to _SCORED."""

_BM25 = f"bm25(words, 0.0, {HEAD_WEIGHT}, 1.0)"
_WHOLE = f"bm25(words, 0.0, {HEAD_WEIGHT}e12, 1e12)"
"""BM25 as if a word stood beyond all measure in a chunk: the table's own weight of the word times _K1 + 1."""
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


def by_words(connection: sqlite3.Connection, fts: bool, words: Sequence[Word], within: Within, pool: int,
             needed: int, mirrors: Mirrors) -> list[Ranked]:
    """The best chunks that hold one of the words: at most `pool`, and at least `needed` where there are so many. What
    is rare, and what is long, is told by the scope that is searched; only one that holds most of the index is scored
    by all of it. `mirrors`: what is held of small scopes."""
    if not words:
        return []
    if not fts:
        return in_order(connection, _scanned(connection, words, within).items())[:pool]
    within = _widest(connection, within)
    if not within.undated.is_all and (mirror := mirrors.of(connection, within.undated)):
        among = set(content.ids(connection, within)) if within.is_dated else None
        return in_order(connection, _best(lambda limit: _indexed(mirror, _any(words), ALL, limit, among), pool,
                                          needed))[:pool]
    everywhere = content.counted_all(connection)
    total = everywhere if within.undated.is_all else content.counted(connection, within.undated, everywhere // 2 + 1)
    of = ALL if 2 * total > everywhere else within.undated  # most of all: its words are much like those of all
    rare = _Rarity.of(connection, words, within, of, pool, is_large=total > _SCORED)
    if of == ALL:
        found = _best(lambda limit: _indexed(connection, rare.match, within, limit), pool, needed)
    else:
        scores = _weighed(connection, rare, within, total, max(pool, needed))
        found = _best(lambda limit: scores[:limit] if limit >= 0 else scores, pool, needed)
    return in_order(connection, found)[:pool]


def _best(rows: Callable[[int], list[tuple[int, float]]], pool: int, needed: int) -> list[tuple[int, float]]:
    """About `pool` of the `rows`, which gives so many at most, or all for -1: of equally good ones all or none."""
    found = rows(pool + 1)
    if len(found) <= pool:
        return found
    last = found[pool][1]  # of those as good as this one, the table has picked some by their ids
    better = [one for one in found if one[1] > last]
    return better if len(better) >= needed else [one for one in rows(-1) if one[1] >= last]


@dataclass(frozen=True, slots=True)
class _Rarity:
    """The words of a query by how rare they are."""

    deciding: Sequence[Word]
    """Of these a chunk must hold one."""
    besides: Sequence[Word]
    """These only count."""
    holding: Mapping[Word, int]
    """How many chunks hold each; up to _SCORED where all documents are asked for."""

    @property
    def match(self) -> str:
        return f"({_any(self.deciding)}) AND ({_any(self.counted)})" if self.besides else _any(self.deciding)

    @property
    def counted(self) -> list[Word]:
        return [*self.deciding, *self.besides]

    @classmethod
    def of(cls, connection: sqlite3.Connection, words: Sequence[Word], within: Within, of: Within, least: int, *,
           is_large: bool) -> _Rarity:
        """Counted in the documents of `of`. All words decide where fewer than `least` chunks hold one of the rare
        ones, and where there is not much to search."""
        if of == ALL and (not is_large or len(words) == 1):
            return cls(words, (), {})
        counts = frequencies(connection, True, [[word] for word in words], of, _SCORED if of == ALL else -1)
        holding = dict(zip(words, counts, strict=True))
        if not is_large:
            return cls(words, (), holding)
        deciding: list[Word] = []
        besides: list[Word] = []
        total = 0
        for count, place in sorted(zip(counts, range(len(words)), strict=True)):
            count = min(count, _SCORED)
            if total < least or (not besides and total + count <= _SCORED):
                deciding.append(words[place])
            elif total + count <= _COUNTED:
                besides.append(words[place])
            total += count
        left_out = len(deciding) < len(words)
        if left_out and not within.is_all and frequencies(connection, True, [deciding], within, least) < [least]:
            return cls(words, (), holding)
        return cls(deciding, besides, holding)


def _weighed(connection: sqlite3.Connection, rare: _Rarity, within: Within, total: int,
             pool: int) -> list[tuple[int, float]]:
    """The chunks that hold a deciding word and are the best by the whole table, and those with the words that are the
    rarest in the scope of `total` chunks: about `pool` of each, by BM25 with each word weighed by how rare it is in
    the scope."""
    ids = {id for id, _ in _indexed(connection, _any(rare.deciding), within, pool)}
    most = len(ids) + pool
    for word in sorted(rare.counted, key=lambda word: rare.holding[word]):
        if len(ids) + rare.holding[word] > most:
            break
        tables, condition, values = _holding(word.match, within)
        ids.update(id for id, in connection.execute(f"SELECT words.rowid {tables} WHERE {condition}", values))
    scores: Counter[int] = Counter()
    with closing(mirrored(connection, sorted(ids))) as beside:
        for word in rare.counted:
            weight = _weight(total, rare.holding[word]) * (_K1 + 1)
            for id, part in beside.execute(f"SELECT rowid, {_BM25} / {_WHOLE} FROM words WHERE words MATCH ?",
                                           (word.match,)):
                scores[id] += weight * part
    return sorted(scores.items(), key=lambda one: (-one[1], one[0]))


def _weight(total: int, holding: int) -> float:
    """How much a word counts that so many of all chunks hold."""
    return max(1e-6, math.log((total - holding + 0.5) / (holding + 0.5)))


def _indexed(connection: sqlite3.Connection, match: str, within: Within, limit: int,
             among: set[int] | None = None) -> list[tuple[int, float]]:
    tables, condition, values = _holding(match, within)
    rows = connection.execute(f"SELECT words.rowid, {_BM25} AS score {tables} WHERE {condition} ORDER BY score LIMIT ?",
                              (*values, limit if among is None else -1))
    found = [(id, -score) for id, score in rows if among is None or id in among]
    return found if limit < 0 else found[:limit]


def frequencies(connection: sqlite3.Connection, fts: bool, sought: Sequence[Sequence[Word]], within: Within,
                most: int) -> list[int]:
    """How many chunks hold one of the words, for each lot of words; counted up to `most`, so that a word that stands
    everywhere costs no more than another."""
    if not fts:
        texts = [Counter(stems(readable(f"{head} {text}"))) for _, head, text in content.texts(connection, within)]
        return [min(most, sum(any(_times(word, there) for word in words) for there in texts)) for words in sought]
    within = _widest(connection, within)
    counts = []
    for words in sought:
        tables, condition, values = _holding(_any(words), within)
        counts.append(connection.execute(f"SELECT count(*) FROM (SELECT 1 {tables} WHERE {condition} LIMIT ?)",
                                         (*values, most)).fetchone()[0] if words else 0)
    return counts


def _widest(connection: sqlite3.Connection, within: Within) -> Within:
    """All documents, where there are none outside of the scope: a condition less to look at."""
    if len(within.scopes) != 1 or within.is_dated or within.is_all:
        return within
    [ends] = within.ranges
    outside = connection.execute("SELECT EXISTS (SELECT 1 FROM doc WHERE name < ?) OR EXISTS (SELECT 1 FROM doc "
                                 "WHERE name >= ?)", ends).fetchone()[0]
    return within if outside else ALL


def _any(words: Sequence[Word]) -> str:
    return " OR ".join(word.match for word in words)


def _holding(match: str, within: Within) -> tuple[str, str, tuple[object, ...]]:
    """FROM, the condition that a chunk of the scope holds what is looked for, and its values."""
    if within.is_all:
        return "FROM words", "words MATCH ?", (match,)
    tokens = within.tokens
    if tokens is None:
        where, values = within.condition
        return f"FROM words{_NAMED}", f"words MATCH ? AND {where}", (match, *values)
    match = f"(place : ({tokens})) AND ({match})"
    if not within.is_dated:
        return "FROM words", "words MATCH ?", (match,)
    where, values = within.dated
    return f"FROM words{_NAMED}", f"words MATCH ? AND {where}", (match, *values)


def matched(fts: bool, words: Sequence[Word], found: Mapping[int, content.Chunk]) -> Counter[int]:
    """How many of the words stand in each chunk. They are put into a table of their own for it: a few texts are read
    sooner than all the places of a common word."""
    counts: Counter[int] = Counter()
    if not fts:
        for id, chunk in found.items():
            there = Counter(stems(readable(f"{chunk.head} {chunk.text}")))
            counts[id] = sum(1 for word in words if _times(word, there))
        return counts
    with closing(connect(":memory:")) as beside:
        beside.execute(f"CREATE VIRTUAL TABLE words USING fts5(head, text, content = '', {TOKENIZE})")
        beside.executemany("INSERT INTO words(rowid, head, text) VALUES (?, ?, ?)",
                           [(id, prepared(chunk.head), prepared(chunk.text)) for id, chunk in found.items()])
        for word in words:
            counts.update(id for id, in beside.execute("SELECT rowid FROM words WHERE words MATCH ?", (word.match,)))
    return counts


def _scanned(connection: sqlite3.Connection, words: Sequence[Word], within: Within) -> dict[int, float]:
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
    weights = [_weight(len(lengths), n) for n in holding]
    return {id: sum(weight * n * (_K1 + 1) / (n + _K1 * (1 - _B + _B * lengths[id] / usual))
                    for weight, n in zip(weights, found, strict=True))
            for id, found in times.items()}


def _times(word: Word, there: Counter[str]) -> int:
    stem = word.stem
    return sum(n for other, n in there.items() if other.startswith(stem)) if word.begins else there[stem]
