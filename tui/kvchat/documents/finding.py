"""Finding: which passages go with a question.

The rule: an unrelated passage is worse than none, and what stands on the branch already is not sent again.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.documents.collection import Passage
from kvchat.documents.library import Library
from kvchat.index.words import content_words
from kvchat.prompt.citing import holds
from kvchat.prompt.context import FILE, PASSAGE, ContextBlock

POOL = 4
"""Chunks looked at for each passage that may go."""
MARGIN = 0.4
"""A passage that scores less than this part of the best one is left out."""
FEWEST = 0.34
"""The part of a question's words that a passage must have where nobody asked for this collection by name."""


def found(library: Library, query: str, scopes: Sequence[str], there: Sequence[ContextBlock], *, most: int,
          tokens: int, named: bool, vector: Sequence[float] | None = None) -> list[Passage]:
    """The passages for a question, the best first: at most `most`, in about `tokens` tokens. `there`: the blocks of the
    branch. `named`: the person named where to search, so that the best there is will do."""
    pool = library.search(query, POOL * most, scopes, vector=vector)
    known = [block for block in there if block.kind in (FILE, PASSAGE)]
    words = len(content_words(query))
    kept: list[Passage] = []
    texts: set[str] = set()
    best = max((one.score for one in pool), default=0.0)
    for passage in pool:
        text = " ".join(passage.text.split())
        if len(kept) == most:
            break
        if passage.tokens > tokens or text in texts or any(holds(block, passage.block) for block in known):
            continue
        if vector is None and passage.score < MARGIN * best:
            continue
        if not named and vector is None and not _belongs(passage, words):
            continue
        texts.add(text)
        tokens -= passage.tokens
        kept.append(passage)
    return kept


def _belongs(passage: Passage, words: int) -> bool:
    """Whether a passage has enough of a question's words."""
    return passage.matched >= min(2, words) and passage.matched >= FEWEST * words
