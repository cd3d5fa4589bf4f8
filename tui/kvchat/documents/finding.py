"""Finding: which passages go with a question.

The rule: an unrelated passage is worse than none, what stands on the branch already is not sent again, and nothing is
said twice. The best passage always finds room, if need be only its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kvchat.documents.collection import Passage, tokens_of
from kvchat.documents.library import Library
from kvchat.documents.telling import telling
from kvchat.index.tokenizer import readable
from kvchat.prompt.citing import is_there
from kvchat.prompt.context import FILE, PASSAGE, ContextBlock

POOL = 4
"""Chunks looked at for each passage that may go."""
MARGIN = 0.4
"""A passage that scores less than this part of the best one is left out."""
OF_ONE_FILE = 3
"""Passages of one file that go before those of others."""
ALIKE = 0.8
"""Of two passages that have this part of their words in common, one is left out."""
OVER = 2
"""So many times the budget the best passage may have; a longer one is cut to the budget."""


def found(library: Library, query: str, scopes: Sequence[str], there: Sequence[ContextBlock], *, most: int,
          tokens: int, named: bool, vector: Sequence[float] | None = None) -> list[Passage]:
    """The passages for a question, the best first: at most `most`, in about `tokens` tokens. `there`: the blocks of the
    branch. `named`: the person named where to search, so that the best there is will do."""
    told = None if named else telling(library.index, query, scopes)
    if told is not None and not told:
        return []
    pool = library.search(query, POOL * most, scopes, vector=vector)
    if vector is None:
        least = MARGIN * max((one.score for one in pool), default=0.0)
        pool = [one for one in pool if one.score >= least and (told is None or told.tells_of(one))]
    known = [block for block in there if block.kind in (FILE, PASSAGE)]
    return _chosen(pool, known, most, tokens)


def _chosen(pool: Sequence[Passage], known: Sequence[ContextBlock], most: int, tokens: int) -> list[Passage]:
    """Those that go: first a few of each file, then the others as far as there is room."""
    kept: dict[int, Passage] = {}
    said: list[frozenset[str]] = []
    for of_one in (OF_ONE_FILE, most):
        for place, one in enumerate(pool):
            if len(kept) == most:
                break
            if place in kept or sum(_file(one) == _file(other) for other in kept.values()) >= of_one:
                continue
            passage = one if kept else _fitting(one, tokens)
            words = frozenset(readable(passage.text).split())
            if (kept and passage.tokens > tokens) or any(_alike(words, other) for other in said):
                continue
            if is_there(passage.block, known):
                continue
            said.append(words)
            tokens -= passage.tokens
            kept[place] = passage
    return [passage for _, passage in sorted(kept.items())]


def _file(passage: Passage) -> str:
    return passage.ref.rpartition("#")[0]


def _alike(words: frozenset[str], others: frozenset[str]) -> bool:
    return len(words & others) >= ALIKE * len(words | others)


def _fitting(passage: Passage, tokens: int) -> Passage:
    """A passage, of one that is much too long the beginning: whole lines, else whole words, else characters."""
    if passage.tokens <= OVER * tokens:
        return passage
    room = tokens - (passage.tokens - tokens_of(passage.text))
    shortest, longest = 1, len(passage.text)
    while shortest < longest:
        middle = (shortest + longest + 1) // 2
        shortest, longest = ((middle, longest) if tokens_of(passage.text[:middle]) <= room
                             else (shortest, middle - 1))
    text = passage.text[:shortest]
    for end in ("\n", "[。！？]|[.!?]\\s", "\\s"):
        ends = [match.end() for match in re.finditer(end, text)]
        if ends and ends[-1] > shortest // 2:
            text = text[:ends[-1]]
            break
    return replace(passage, text=text.rstrip())
