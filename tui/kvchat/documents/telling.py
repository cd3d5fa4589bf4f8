"""Telling: whether a question is about what a passage says, or about something else.

The rule: people also talk of other things than their documents, in words that stand in any document. So a word counts
by how rare it is, one that no document has counts most, and what people say in any conversation counts nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from kvchat.documents.collection import Passage
from kvchat.index.index import Index
from kvchat.index.tokenizer import content_words, readable, stem, stems

ENOUGH = 0.4
"""The part of what the words of a question weigh that those in a passage must weigh."""
USUAL = 0.02
"""A word that stands in more than this part of the chunks is not enough, where it is all that a question says."""
FEW = 3
"""Chunks that may have such a word, however few there are."""
_COUNTED = 8000
"""Chunks with a word that are counted, at most."""
_LEAST = 0.3
"""What a word weighs that stands in most chunks."""

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


@dataclass(frozen=True, slots=True)
class Telling:
    """What the words of a question weigh, by their stems."""

    weights: Mapping[str, float]
    is_usual: bool = False
    """Whether the only word is one that stands in many chunks."""

    def __bool__(self) -> bool:
        """Whether the question can be about a document at all."""
        return bool(self.weights) and not self.is_usual

    def tells_of(self, passage: Passage) -> bool:
        """Whether a passage has enough of the words. Two at least; a single one must stand in its headings or its
        file's name, or more than once."""
        above = _counted(f"{passage.place.path} {passage.head}")
        there = above + _counted(passage.text)
        found = [one for one in self.weights if there[one]]
        if not self or not found:
            return False
        if len(self.weights) == 1:
            return any(above[one] or there[one] > 1 for one in found)
        return len(found) > 1 and sum(self.weights[one] for one in found) >= ENOUGH * sum(self.weights.values())


def telling(index: Index, query: str, scopes: Sequence[str]) -> Telling:
    """The words of a question that tell what it is about, asked of these scopes."""
    words = [word for word in content_words(query)
             if not word.text.isdigit() and not (word.text.isascii() and len(word.text) == 1)
             and word.stem not in _talk()]
    if not words:
        return Telling({})
    chunks = index.counts(scopes)[1]
    counts = index.frequencies([word.text for word in words], min(chunks // 4 + 1, _COUNTED), scope=scopes)
    weights = {word.stem: max(_LEAST, math.log((1 + chunks) / (1 + count)))
               for word, count in zip(words, counts, strict=True)}
    return Telling(weights, len(words) == 1 and counts[0] > max(FEW, USUAL * chunks))


def _counted(text: str) -> Counter[str]:
    return Counter(stems(readable(text)))


@cache
def _talk() -> frozenset[str]:
    return frozenset(map(stem, re.findall(r"\w+", _TALK)))
