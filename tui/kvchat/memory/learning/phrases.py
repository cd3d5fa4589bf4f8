"""Recognise whom a clause is about, and what makes another memory of it: denials and weakening words.

All patterns are for folded text (lower case, no accents) and are guesses. A wrong guess may ask the user once more or
lose a fact; it never lets one through that would not have passed without it.
"""

from __future__ import annotations

from kvchat.memory.similarity import stem, words
from kvchat.memory.vocabulary import any_of, listed, synonyms

CHANGED = any_of("changed")
"""Words of somebody who corrects what they said before."""
FIRST_PERSON, SUBJECT, RELATION = map(any_of, ("first_person", "subject", "relation"))
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
