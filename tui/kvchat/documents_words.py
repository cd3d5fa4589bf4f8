"""Collections, reports and passages of documents in words, and days as the person writes them.

The rule: a line holds raw texts; whoever prints it makes them safe to show.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta

from kvchat.display import one_line
from kvchat.documents.collection import Collection, Passage, Report, Skipped, Status
from kvchat.index.tokenizer import content_words
from kvchat.memory_words import instant
from kvchat.numbers import count, counted, day_time, duration, size
from kvchat.store.query import folded
from kvchat.terminal import Column

COLLECTIONS = (Column("name"), Column("files", right=True), Column("chunks", right=True), Column("indexed"),
               Column("folder", shrinks=True))
FIRST = 20
"""Skipped files that are named where nobody asks for all."""
SNIPPET, BEFORE = 240, 60
"""Characters of a snippet, and of what stands in front of its first match, at most."""


def collection_cells(status: Status) -> tuple[str, ...]:
    one = status.collection
    return one.name, count(status.files), count(status.chunks), indexed_when(one), one.root


def indexed_when(collection: Collection) -> str:
    return "not to the end yet" if collection.indexed is None else day_time(collection.indexed)


def status_lines(status: Status, stale: bool | None, every: bool, *, indexing: bool = False) -> list[str]:
    """What there is to say of a collection. `stale`: whether its files have changed since; None: that is not known.
    `indexing`: whether another kvchat is at it."""
    one = status.collection
    lines = [f"{one.name}: {one.root}",
             f"  {_amount(status.files, status.chunks, status.bytes)}, indexed {indexed_when(one)}"]
    if indexing:
        lines.append("  Another kvchat indexes it now.")
    elif status.trouble:
        lines.append(f"  {status.trouble}")
    elif stale is not None:
        lines.append(f"  Its files have changed since; to index them: kvchat documents add {shell_word(one.root)}"
                     if stale else "  It is up to date.")
    return lines + skipped_lines(one.name, status.skipped, every)


def report_lines(report: Report, collection: Collection, files: int, anew: bool = False) -> list[str]:
    """The summary of what going through a collection gave; `files`: that are indexed now. `anew`: all were read."""
    found = (f"{count(report.added)} added, {count(report.changed)} changed, {count(report.unchanged)} "
             f"{'read again, as they were' if anew else 'unchanged'}, {count(report.removed)} removed")
    return [f"{report.collection}: {collection.root}", f"  {found}",
            f"  {_amount(files, report.chunks, report.bytes)}, in {duration(report.seconds)}",
            *skipped_lines(report.collection, report.skipped, every=False)]


def _amount(files: int, chunks: int, octets: int) -> str:
    return f"{counted(files, 'file')}, {counted(chunks, 'chunk')}, {size(octets)}"


def skipped_lines(name: str, skipped: Sequence[Skipped], every: bool) -> list[str]:
    """The files that are not indexed, each with its reason; the first of them unless `every` one is asked for."""
    named = [one for one in skipped if one.path]
    shown = named if every else named[:FIRST]
    lines = [f"  It {one.reason}" for one in skipped if not one.path]
    if named:
        lines += [f"  {count(len(named))} skipped:", *(f"    {one.path} {one.reason}" for one in shown)]
    if len(shown) < len(named):
        lines.append(f"    and {count(len(named) - len(shown))} more; kvchat documents status {name} --skipped")
    return lines


def shell_word(text: str) -> str:
    """`text` as it is typed in a shell."""
    import shlex

    return shlex.quote(text)


def passage_lines(passage: Passage, query: str) -> tuple[str, str]:
    """Where a passage stands, and what it says around the words of the query."""
    return f"{passage.title}  {passage.head}".rstrip(), snippet(passage.text, query)


def snippet(text: str, query: str) -> str:
    """One line of `text` where most of the query's words are close together; its beginning where there are none."""
    plain = folded(text)
    stems = dict.fromkeys(folded(word.stem) for word in content_words(query))
    found = sorted((match.start(), stem) for stem in stems if stem for match in _beginnings(stem).finditer(plain))
    start = 0
    if found:
        first = max(found, key=lambda one: (len({stem for at, stem in found
                                                 if one[0] <= at < one[0] + SNIPPET - BEFORE}), -one[0]))[0]
        start = max(0, first - BEFORE)
        if start and (blank := re.compile(r"\s").search(text, start, first)):
            start = blank.end()
    end = start + SNIPPET
    return f"{'…' if start else ''}{one_line(text[start:end])}{'…' if end < len(text) else ''}"


def _beginnings(stem: str) -> re.Pattern[str]:
    """Finds words that begin so; in scripts without spaces, the characters anywhere."""
    return re.compile(rf"(?<![^\W_]){re.escape(stem)}" if stem.isascii() else re.escape(stem))


def until(text: str) -> float:
    """The end of a day, or an instant, in seconds since the epoch. Raises UsageError."""
    seconds = instant(text)
    with suppress(ValueError, OverflowError, OSError):
        if text not in ("today", "yesterday"):
            date.fromisoformat(text)
        return (datetime.fromtimestamp(seconds) + timedelta(days=1)).timestamp() - 0.001
    return seconds
