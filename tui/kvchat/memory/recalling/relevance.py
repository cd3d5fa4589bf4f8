"""How much a memory belongs to a question, by the words they share.

The rule: pure and without a model. A word that could stand in any question counts little, one that stands in many
memories counts little, and a thing of the person's own (`my kiln`) counts more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from kvchat.memory.recalling.common_words import COMMON, FILLING, MINE, NO_NAMES, is_german
from kvchat.memory.words import content_words, normalised

GIST = 1000
"""Characters at each end of a long question that are looked at."""
MOST_WORDS = 24
"""Words of a question that are searched for."""
ENOUGH = 1.05
"""The bar."""
NEAR, VERY_NEAR = 0.4, 0.5
"""How near a vector has to be to count as a word does, and to be enough without one."""

_UPPER = r"[A-ZÀ-ÖØ-Þ][\w'’]*"
_ODD = r"(?<![\w/:])[~.]{0,2}(?:/[\w.-]+){2,}|\b(?=\w*[^\W\d])(?=\w*\d)\w+"
_NAME = re.compile(rf"(?<=[\w,;)\]\"'’] ){_UPPER}|{_ODD}")
_CAPITAL = re.compile(rf"\b{_UPPER}|{_ODD}")
_GERMAN_NAME = re.compile(rf"\b[A-ZÄÖÜ][a-zäöüß]{{9,}}\b(?<!ung)"
                          rf"(?<!ungen)(?<!eit)(?<!eiten)(?<!schaft)(?<!ion)(?<!ionen)|{_ODD}")
"""Compounds: long nouns that are no abstract ones."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as it is searched with."""

    words: Mapping[str, str]
    """The stem of each content word, and the word as it was written, in the order of the question."""
    telling: frozenset[str]
    """The stems that tell what the question is about."""
    mine: frozenset[str]
    """The stems of what the person called their own."""
    names: frozenset[str]
    """The stems of what is written as a name."""
    capitals: frozenset[str]
    """The stems of what may be one: written with a capital letter, at the beginning of a sentence too."""
    careless: bool
    """Whether the person writes without capital letters, so that any word may be a name."""
    others: Mapping[str, str]
    """Of the telling stems the other number: of `katzen` that of `Katze`."""

    @property
    def sought(self) -> dict[str, str]:
        """The telling words, as they were written and in the other number, by their stems: what to search for."""
        return {stem: f"{word} {self.others.get(stem, '')}" for stem, word in self.words.items()
                if stem in self.telling}


def asked_for(question: str) -> Asked:
    """The words of a question; of a long one those of its ends, the telling ones first."""
    if len(question) > 2 * GIST:
        question = f"{question[:GIST]} {question[-GIST:]}"
    words: dict[str, str] = {}
    mine = set()
    since_mine = 9
    for token in normalised(question).split():
        stems = content_words(token)
        since_mine = 0 if token in MINE else since_mine + bool(stems)
        for stem in sorted(stems):
            words.setdefault(stem, token if len(stems) == 1 else stem)
            if 0 < since_mine <= 2 and is_telling(stem):
                mine.add(stem)
    if len(words) > MOST_WORDS:
        kept = sorted(words, key=is_telling, reverse=True)[:MOST_WORDS]
        words = {stem: words[stem] for stem in words if stem in set(kept)}
    telling = frozenset(filter(is_telling, words))
    others = {stem: other for stem in telling if is_telling(other := _other_number(stem))
              } if is_german(normalised(question)) else {}
    return Asked(words, telling, frozenset(mine), names_in(question), capitals_in(question),
                 question == question.lower(), others)


def _other_number(stem: str) -> str:
    """The stem of a German word's plural, or of its singular: `Katzen` and `Katze`."""
    return stem.removesuffix("en") if stem.endswith("en") and len(stem) > 5 else f"{stem}en"


@dataclass(frozen=True, slots=True)
class Remembered:
    """A memory as it is compared with a question."""

    words: frozenset[str]
    """The stems of its text and of its page's name."""
    telling: float
    """How many of the text's words tell what it is about."""
    names: frozenset[str]
    capitals: frozenset[str]


@lru_cache(maxsize=2048)
def remembered(text: str, head: str = "") -> Remembered:
    """A memory's text, and the name of its page in words, as they are compared. The same ones come up again with every
    pause in the writing of a question."""
    words = content_words(text)
    telling = _number(filter(is_telling, words))
    return Remembered(words | content_words(head), telling, names_in(text), capitals_in(text))


def relevance(asked: Asked, memory: Remembered, frequent: frozenset[str], near: float = 0.0) -> float:
    """How much a memory belongs to the question; 0 below the bar. `frequent`: stems that stand in many memories.
    `near`: from 0 to 1, how close its vector is, more than those of other memories."""
    telling = memory.words & asked.telling | {stem for stem, other in asked.others.items() if other in memory.words}
    if not telling:
        return ENOUGH if near >= VERY_NEAR else 0.0
    named = asked.names & memory.capitals | memory.names & (telling if asked.careless else asked.capitals)
    weight = sum((0.5 if word in frequent else 1.0) + (word in asked.mine) + (word in named) for word in telling)
    weight += 0.25 * len((memory.words & asked.words.keys()) - telling) + (near >= NEAR)
    of_memory = min(1.0, len(telling) / max(1, memory.telling))
    of_question = min(1.0, len(telling) / max(1, _number(asked.telling)))
    score = weight * (0.5 + of_memory) * (0.5 + of_question)
    return score if score >= ENOUGH else 0.0


def is_telling(stem: str) -> bool:
    """Whether a word tells what a text is about: it is neither common nor a number or a letter alone."""
    return stem not in COMMON and not stem.isdigit() and len(stem) > 1 and FILLING.isdisjoint(stem)


def _number(stems: Iterable[str]) -> float:
    """How many words the stems are, about: of pairs of neighbouring characters every other one is a word."""
    return sum(0.5 if len(stem) == 2 and stem > "\u0e00" else 1.0 for stem in stems)


def names_in(text: str) -> frozenset[str]:
    """The stems of what is written as a name: with a capital letter that begins no sentence, or with a digit in it, or
    as a path of a file. A capital letter tells nothing in German, where every noun has one: there it is the long
    compounds."""
    return _stems(_GERMAN_NAME if is_german(normalised(text)) else _NAME, text)


def capitals_in(text: str) -> frozenset[str]:
    """The stems of what is written with a capital letter or as no word is, wherever it stands."""
    return _stems(_GERMAN_NAME if is_german(normalised(text)) else _CAPITAL, text)


def _stems(pattern: re.Pattern[str], text: str) -> frozenset[str]:
    return content_words(" ".join(pattern.findall(text))) - NO_NAMES
