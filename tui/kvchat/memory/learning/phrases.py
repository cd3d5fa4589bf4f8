"""Recognise a sentence that asks, orders, supposes, denies, or is about somebody else.

All patterns are for folded text (lower case, no accents) and are guesses. A wrong guess may ask the user once more or
lose a fact; it never lets one through that would not have passed without it.
"""

from __future__ import annotations

import re

from kvchat.memory.similarity import stem, words
from kvchat.memory.vocabulary import any_of, listed, spaced, synonyms, unspaced

_OPENING = rf"\A\W*(?:(?:{spaced('opening')})\b\W*)*"

HANDED_OVER = re.compile(
    rf"(?:\b(?:{spaced('text_work')})\b|{unspaced('text_work')})[^.!?\n。]{{0,80}}?"
    r"(?:[:：]|\n|\b(?:this|these|following|below|folgenden?|suivante?|siguiente)\b[^.!?\n]{0,40}[.!?\n])",
    re.IGNORECASE,
)
"""What follows is a text to be worked on."""
WORKED_ON, SUPPOSED, PASSING, UNSURE, WISH, CHANGED = map(
    any_of, ("worked_on", "supposed", "passing", "unsure", "wish", "changed")
)

WONDERING = re.compile(
    rf"{_OPENING}(?:(?:{spaced('asks_for')})(?:\s+\w+)?\s+(?:{spaced('auxiliary')})\b"
    rf"|(?:{spaced('asks_for')})(?:['’]s| (?:about|many|much|to)\b)"
    rf"|(?:{spaced('wondering')})\b|{unspaced('wondering')})"
)
"""A question, though it may have no question mark."""
ASKING = re.compile(rf"{WONDERING.pattern}|{_OPENING}(?:{spaced('asking')})\b")
"""A question, or the beginning of a sentence that is one if it has no other subject."""
REQUEST = re.compile(
    rf"{_OPENING}(?:(?:{spaced('request')})\b|{unspaced('request')})"
    rf"|(?:{unspaced('request_ending')})\W*\Z"
)
STANDING = any_of("standing")
"""A request that is not for this moment alone."""
FIRST_PERSON, YOU_ARE, SUBJECT, RELATION = map(any_of, ("first_person", "you_are", "subject", "relation"))
_NOT, _AGAINST = any_of("not"), any_of("against")
WEAKENING = any_of("weakening")
"""Words that make of a memory another one."""
TURNING = any_of("turning")
"""Small words in which two memories differ: `from Rome to Paris`."""

_GROUPS = {stem(word): f"<{group}>" for group, names in synonyms().items() for word in names}
_EMPTY = frozenset(listed("empty"))
"""Words without which a fact is as well grounded."""
GLUE = frozenset({"<has>", "<uses>"})
"""Wording that a fact may use although the user did not."""


def meaning(word: str) -> str:
    """A folded word as it is compared with what was said: its stem, or the name that it shares with its synonyms. What
    somebody hates has the same name as what they like; `denies` tells them apart."""
    return _GROUPS.get(stem(word), stem(word))


def meanings(text: str) -> tuple[str, ...]:
    """The words that say something, in their order, as they are compared."""
    return tuple(meaning(word) for word in words(text) if word not in _EMPTY)


def denials(text: str) -> tuple[int, int]:
    """How often a text says that something is not so, and that it is disliked."""
    return len(_NOT.findall(text)), len(_AGAINST.findall(text))


def denies(text: str) -> bool:
    """Whether a clause says that something is not so, or that it is disliked; two of these cancel out."""
    return bool(_NOT.search(text)) != bool(_AGAINST.search(text))
