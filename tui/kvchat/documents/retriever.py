"""The retriever: choose the passages that go with a question.

An unrelated passage is worse than none, what is on the branch already is not sent again, and nothing is repeated. The
best passage always finds room, if need be only its beginning.

People also talk of other things than their documents, in words that are in any document. So a word counts by how rare
it is, one that no document has counts most, and what people say in any conversation counts nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from msgspec.structs import replace

from kvchat.documents.collection import Passage, tokens_of
from kvchat.documents.library import Library
from kvchat.index.index import Index
from kvchat.index.tokenizer import content_words, readable, stem, stems
from kvchat.prompt.citations import is_there
from kvchat.prompt.context import FILE, PASSAGE, ContextBlock

LEAST_WEIGHT = 0.4
"""The part of what the words of a question weigh that those in a passage must weigh."""
COMMON_SHARE = 0.02
"""A word that is in more than this share of the chunks is not enough where it is all that a question says."""
COMMON_CHUNKS = 3
"""Chunks that may have such a word, however few there are."""
_COUNTED = 8000
"""Chunks with a word that are counted, at most."""
_LEAST = 0.3
"""The weight of a word that is in most chunks."""

_TALK = """
accept add afraid afternoon ago agree ahora aide already alright always amazing angry another answer antwort anybody
anymore anyone anything anyway apologize ask awesome awful ayuda bad beautiful bedeutet beispiel believe besser best
better bien big bit bitte bonjour bored boring bother briefly bueno bug bullet bullets bye care change chat cheers
choose chose chosen clarify claro clear code come concise confused continua continue continuez cool correct corto
could court danke date day dear demain describe detail different doubt easier easy ejemplo elaborate else encore
english enough erklär erkläre error evening everything evidently exactly example excellent exemple exemples expand
explain explica explique fail fair fantastic feel fertig fine finish first fix frage fragen freut friend friendly fun
funny genau glad good goodbye gracias great guess gut guten guy hallo happy hate help heute hier hmm hola hope hour
idea idée imagine improve interesting joke keep kind kindly kurz kürzer lang laugh learn least less list little long
longer look lot lots love länger mach mache maybe mañana mean meaning mejor merci mieux mind minute moment month
morgen morning mother move name never new next nice night nochmal nope nothing number old open opinion oui paragraph
part pense perfect perhaps person piensas poem point points possible pretty problem proceed question quick quickly
raison read ready reason remember repeat rephrase repite rest revise rewrite richtig right répète sad salut schreib
schreibe schön seem sense sentence short shorten shorter should show sigue simple simpler simplify simply sorry sort
start step still stop story stuff stupid suggest suite summarise summarize summary super suppose sure talk task tell
temps terrible test text texte think thought tiempo time tired today together tomorrow tonight topic translate true
try tschüss understand understood vale version verstanden verstehe wait warte weather week weiter welcome well
whatever whole wonder wonderful wont word work worked world worry wort write wrong yeah year yep yesterday zeit
"""
"""What people say of a conversation itself, and to each other."""


def word_weights(index: Index, query: str, scopes: Sequence[str]) -> dict[str, float]:
    """What the words of a question weigh in these scopes, by their stems; none where it can be about no document: it
    has no words but those of any conversation, or a single one that is in many chunks."""
    words = [
        word
        for word in content_words(query)
        if not word.text.isdigit() and not (word.text.isascii() and len(word.text) == 1) and word.stem not in _talk()
    ]
    chunks = index.count(scopes) if words else 0
    counts = index.frequencies([word.text for word in words], min(chunks // 4 + 1, _COUNTED), scope=scopes)
    if len(words) == 1 and counts[0] > max(COMMON_CHUNKS, COMMON_SHARE * chunks):
        return {}
    return {
        word.stem: max(_LEAST, math.log((1 + chunks) / (1 + count))) for word, count in zip(words, counts, strict=True)
    }


def is_about(passage: Passage, weights: Mapping[str, float]) -> bool:
    """Whether a passage has enough of the words. Two at least; a single one must stand in its headings or its file's
    name, or more than once."""
    above = _counted(f"{passage.place.path} {passage.head}")
    there = above + _counted(passage.text)
    found = [one for one in weights if there[one]]
    if len(weights) == 1:
        return any(above[one] or there[one] > 1 for one in found)
    return len(found) > 1 and sum(weights[one] for one in found) >= LEAST_WEIGHT * sum(weights.values())


def _counted(text: str) -> Counter[str]:
    return Counter(stems(readable(text)))


@cache
def _talk() -> frozenset[str]:
    return frozenset(map(stem, re.findall(r"\w+", _TALK)))


POOL = 4
"""Chunks looked at for each passage that may go."""
MARGIN = 0.4
"""A passage that scores less than this part of the best one is left out."""
OF_ONE_FILE = 3
"""Passages of one file that go before those of others."""
ALIKE_SHARE = 0.8
"""Of two passages that have this part of their words in common, one is left out."""
BUDGET_TIMES = 2
"""So many times the budget the best passage may have; a longer one is cut to the budget."""


def found(
    library: Library,
    query: str,
    scopes: Sequence[str],
    there: Sequence[ContextBlock],
    *,
    most: int,
    tokens: int,
    named: bool,
    vector: Sequence[float] | None = None,
) -> list[Passage]:
    """The passages for a question, the best first: at most `most`, in about `tokens` tokens. `there`: the blocks of the
    branch. `named`: the user named where to search, so that the best there is will do."""
    weights = {} if named else word_weights(library.index, query, scopes)
    if not named and not weights:
        return []
    pool = library.search(query, POOL * most, scopes, vector=vector)
    if vector is None:
        least = MARGIN * max((one.score for one in pool), default=0.0)
        pool = [one for one in pool if one.score >= least and (named or is_about(one, weights))]
    known = [block for block in there if block.kind in (FILE, PASSAGE)]
    return _chosen(pool, known, most, tokens)


def _chosen(pool: Sequence[Passage], known: Sequence[ContextBlock], most: int, tokens: int) -> list[Passage]:
    """Those that go: first a few of each file, then the others as far as there is room."""
    kept: dict[int, Passage] = {}
    word_sets: list[frozenset[str]] = []
    for of_one in (OF_ONE_FILE, most):
        for place, one in enumerate(pool):
            if len(kept) == most:
                break
            if place in kept or sum(_file(one) == _file(other) for other in kept.values()) >= of_one:
                continue
            passage = one if kept else _fitting(one, tokens)
            words = frozenset(readable(passage.text).split())
            if (kept and passage.tokens > tokens) or any(_alike(words, other) for other in word_sets):
                continue
            if is_there(passage.block, known):
                continue
            word_sets.append(words)
            tokens -= passage.tokens
            kept[place] = passage
    return [passage for _, passage in sorted(kept.items())]


def _file(passage: Passage) -> str:
    return passage.ref.rpartition("#")[0]


def _alike(words: frozenset[str], others: frozenset[str]) -> bool:
    return len(words & others) >= ALIKE_SHARE * len(words | others)


def _fitting(passage: Passage, tokens: int) -> Passage:
    """A passage, of one that is much too long the beginning: whole lines, else whole words, else characters."""
    if passage.tokens <= BUDGET_TIMES * tokens:
        return passage
    room = tokens - (passage.tokens - tokens_of(passage.text))
    shortest, longest = 1, len(passage.text)
    while shortest < longest:
        middle = (shortest + longest + 1) // 2
        shortest, longest = (middle, longest) if tokens_of(passage.text[:middle]) <= room else (shortest, middle - 1)
    text = passage.text[:shortest]
    for end in ("\n", "[。！？]|[.!?]\\s", "\\s"):
        ends = [match.end() for match in re.finditer(end, text)]
        if ends and ends[-1] > shortest // 2:
            text = text[: ends[-1]]
            break
    return replace(passage, text=text.rstrip())
