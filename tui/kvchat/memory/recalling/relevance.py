"""How much a memory belongs to a question, by the words they share.

The rule: pure and without a model. A word that could stand in any question counts little, one that stands in many
memories counts little, and a thing of the person's own (`my kiln`) counts more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from kvchat.memory.recalling.common_words import COMMON, MINE, NO_NAMES
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
_MIXED = r"\b(?=\w*[^\W\d])(?=\w*\d)\w+"
_NAME = re.compile(rf"(?<=[\w,;)\]\"'’] ){_UPPER}|{_MIXED}")
_CAPITAL = re.compile(rf"\b{_UPPER}|{_MIXED}")


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

    @property
    def query(self) -> str:
        return " ".join(dict.fromkeys(self.words.values()))


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
    return Asked(words, frozenset(filter(is_telling, words)), frozenset(mine), names_in(question),
                 capitals_in(question), question == question.lower())


@dataclass(frozen=True, slots=True)
class Remembered:
    """A memory as it is compared with a question."""

    words: frozenset[str]
    """The stems of its text and of its page's name."""
    telling: int
    """How many of the text's words tell what it is about."""
    names: frozenset[str]
    capitals: frozenset[str]


@lru_cache(maxsize=2048)
def remembered(text: str, head: str = "") -> Remembered:
    """A memory's text, and the name of its page in words, as they are compared. The same ones come up again with every
    pause in the writing of a question."""
    words = content_words(text)
    return Remembered(words | content_words(head), sum(map(is_telling, words)), names_in(text), capitals_in(text))


def relevance(asked: Asked, memory: Remembered, frequent: frozenset[str], near: float = 0.0) -> float:
    """How much a memory belongs to the question; 0 below the bar. `frequent`: stems that stand in many memories.
    `near`: from 0 to 1, how close its vector is, more than those of other memories."""
    telling = memory.words & asked.telling
    if not telling:
        return ENOUGH if near >= VERY_NEAR else 0.0
    named = asked.names & memory.capitals | memory.names & (telling if asked.careless else asked.capitals)
    weight = sum((0.5 if word in frequent else 1.0) + (word in asked.mine) + (word in named) for word in telling)
    weight += 0.25 * len((memory.words & asked.words.keys()) - telling) + (near >= NEAR)
    of_memory = min(1.0, len(telling) / max(1, memory.telling))
    of_question = len(telling) / len(asked.telling)
    score = weight * (0.5 + of_memory) * (0.5 + of_question)
    return score if score >= ENOUGH else 0.0


def is_telling(stem: str) -> bool:
    """Whether a word tells what a text is about: it is neither common nor a number or a letter alone."""
    return stem not in COMMON and not stem.isdigit() and len(stem) > 1


def names_in(text: str) -> frozenset[str]:
    """The stems of what is written as a name: with a capital letter that begins no sentence, or with a digit in it."""
    return _stems(_NAME, text)


def capitals_in(text: str) -> frozenset[str]:
    """The stems of what is written with a capital letter or a digit, wherever it stands."""
    return _stems(_CAPITAL, text)


def _stems(pattern: re.Pattern[str], text: str) -> frozenset[str]:
    return content_words(" ".join(pattern.findall(text))) - NO_NAMES
