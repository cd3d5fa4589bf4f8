"""Recall: which memories go in front of a question, and which must not.

The rule: an unrelated memory is worse than none. What stands on the branch already is not said again, and a block is
made once and frozen with its question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Protocol

from kvchat.memory.entry import Entry, Status
from kvchat.memory.indexing import SCOPE
from kvchat.memory.recalling.relevance import asked_for, relevance, remembered
from kvchat.memory.words import content_words, normalised
from kvchat.prompt.context import MEMORY, ContextBlock
from kvchat.prompt.message import Node, Role
from kvchat.prompt.wire import whole_characters

if TYPE_CHECKING:
    from kvchat.index.index import Hit, Index

PROFILE_SOURCE = "profile of the user"
"""Named so that the model knows whose profile it is; the person reads it too."""
MEMORY_SOURCE = "memories of earlier conversations with the user"
MOST = 5
"""Memories for one question."""
POOL = 30
"""Entries looked at for one question."""
FREQUENT = 6
"""A word that stands in more entries than this does not tell one from another."""
USUAL = 300
"""A word that stands in more entries than this is not searched for where there are rarer ones."""
ENOUGH_VECTORS = 12
"""Vectors from which on it can be told what is usual among them."""
LONGEST = 400
"""Characters of a line; a longer entry is cut."""
MARGIN = 0.6
"""A memory that belongs less than this part of how much the best one does is left out."""

_DATE = re.compile(r"\s*\(\d{4}-\d\d\)$")


class Searched(Protocol):
    """What recall needs of the memories; where they have an `index`, it is asked how many of them hold a word."""

    def profile(self) -> list[Entry]: ...

    def search(self, query: str, k: int = 20, vector: Sequence[float] | None = None) -> list[tuple[Entry, Hit]]: ...


@dataclass(frozen=True, slots=True)
class Recalled:
    """One block, and the entries whose lines it has, in their order."""

    block: ContextBlock
    entries: tuple[Entry, ...]


def recalled(
    memories: Searched, question: str, path: Sequence[Node], *, tokens: int, profile_tokens: int,
    vector: Sequence[float] | None = None,
) -> tuple[Recalled, ...]:
    """The blocks for a question after `path`: at a branch's first turn the profile, then what belongs to the question.
    `tokens` and `profile_tokens` bound them, about, at four bytes a token. `vector` is the question's, where there is a
    source of vectors. Nothing for an empty question."""
    if not question.strip():
        return ()
    profile = profile_of(memories, path, profile_tokens)
    shown = _shown(path) | {_key(line) for line in (profile.block.text.splitlines() if profile else ())}
    blocks = [profile]
    found = _unsaid(_belonging(memories, question, vector), path, question)
    blocks.append(_block(MEMORY_SOURCE, found, shown, tokens, dated=True))
    return tuple(block for block in blocks if block is not None)


def profile_of(memories: Searched, path: Sequence[Node], tokens: int) -> Recalled | None:
    """The block of the profile, at a branch's first turn; its bytes are the same whatever the question."""
    if tokens <= 0 or any(node.role is Role.USER for node in path):
        return None
    entries = [entry for entry in memories.profile() if entry.status is Status.LIVE]
    return _block(PROFILE_SOURCE, entries, _shown(path), tokens, dated=False)


def _block(source: str, entries: Iterable[Entry], shown: set[str], tokens: int, *, dated: bool) -> Recalled | None:
    """The entries that fit, one line each; their keys are added to `shown`. An entry too long for what is left makes
    room for shorter ones after it."""
    room = 4 * tokens
    lines: list[str] = []
    kept: list[Entry] = []
    for entry in entries:
        if dated and len(kept) == MOST:
            break
        line = line_of(entry, dated=dated)
        size = len(line.encode(errors="replace")) + 1
        if line and size <= room and (key := _key(line)) not in shown:
            shown.add(key)
            room -= size
            lines.append(line)
            kept.append(entry)
    return Recalled(ContextBlock(MEMORY, source, "\n".join(lines)), tuple(kept)) if kept else None


def line_of(entry: Entry, *, dated: bool) -> str:
    """An entry as one line, with the month it is from: the newer of two that disagree is told by it. Always the same
    for the same entry."""
    text = whole_characters(" ".join(entry.text.split()))
    if len(text) > LONGEST:
        text = text[:LONGEST - 1].rstrip() + "…"
    return f"{text} ({_month(entry.created)})" if text and dated else text


def _month(created: float) -> str:
    try:
        return f"{datetime.fromtimestamp(created, UTC):%Y-%m}"
    except (OverflowError, OSError, ValueError):
        return "1970-01"


def _key(line: str) -> str:
    """The form in which two lines are the same memory: no date, folded; the line itself where it has no words."""
    line = _DATE.sub("", line.strip())
    return normalised(line) or line


def _shown(path: Sequence[Node]) -> set[str]:
    """The keys of all lines in the memory blocks of the branch."""
    return {_key(line) for node in path for block in node.message.blocks if block.kind == MEMORY
            for line in block.text.splitlines()}


# What belongs.


def _belonging(memories: Searched, question: str, vector: Sequence[float] | None) -> list[Entry]:
    """The entries that belong to the question, best first."""
    asked = asked_for(question)
    sought = asked.sought
    if not sought and not vector:
        return []
    counts = _counts(memories, sought)
    query = [word for stem, word in sought.items() if counts[stem] <= USUAL] or sought.values()
    pool = [(e, hit) for e, hit in memories.search(" ".join(query), POOL, vector) if e.status is Status.LIVE]
    words = [remembered(entry.text, hit.chunk.head) for entry, hit in pool]
    frequent = frozenset(stem for stem, count in counts.items() if count > FREQUENT)
    near = _nearness([hit for _, hit in pool])
    scores = [relevance(asked, *each) for each in zip(words, repeat(frequent), near, strict=False)]
    best = max(scores, default=0.0)
    ranked = [(-score, place) for place, score in enumerate(scores) if score and score >= MARGIN * best]
    return [pool[place][0] for _, place in sorted(ranked)]


def _counts(memories: Searched, sought: Mapping[str, str]) -> dict[str, int]:
    """In how many memories each word stands, up to more than is usual; none where there is no index to tell."""
    index: Index | None = getattr(memories, "index", None)
    if index is None:
        return dict.fromkeys(sought, 0)
    return dict(zip(sought, index.frequencies(list(sought.values()), USUAL + 1, scope=SCOPE), strict=True))


def _nearness(hits: Sequence[Hit]) -> list[float]:
    """How near each one's vector is, from 0 to 1: above what is usual among them, for what a cosine says hangs on the
    model."""
    known = sorted(hit.similarity for hit in hits if hit.similarity is not None)
    usual = known[len(known) // 2] if len(known) >= ENOUGH_VECTORS else 1.0
    return [max(0.0, (hit.similarity - usual) / (1 - usual)) if hit.similarity is not None and usual < 1 else 0.0
            for hit in hits]


# What was said.


def _unsaid(entries: Sequence[Entry], path: Sequence[Node], question: str) -> list[Entry]:
    """Without those that came from messages of the branch, and those whose words all stand in the question or in one
    of the person's own messages on it: copies of messages have other ids."""
    ids = {node.id for node in path}
    unsaid = [(entry, content_words(entry.text)) for entry in entries if ids.isdisjoint(entry.nodes)]
    for text in (question, *(node.text for node in path if node.role is Role.USER)):
        if unsaid:
            said = _said(text)
            unsaid = [(entry, words) for entry, words in unsaid if len(words) < 2 or not words <= said]
    return [entry for entry, _ in unsaid]


@lru_cache(maxsize=1024)
def _said(text: str) -> frozenset[str]:
    """The words of a message, as those of a memory are taken: folded, numbers as digits. Kept, for the messages of a
    branch are the same at each pause in the writing of a question."""
    return content_words(text)
