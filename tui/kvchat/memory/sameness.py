"""Whether two memories say the same, and which page a memory belongs to. Pure.

The rule: two texts are the same only if nothing is lost by keeping one of them: equal numbers, names and denials, and
where a comparison makes the order matter, the same order.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from kvchat.memory.entry import PROFILE, Entry, Kind
from kvchat.memory.words import content_words, folded, normalised, stem

ALIKE = 0.85
"""The likeness from which on two memories say the same."""
TOPICS = "topics/"
PAGES = {
    Kind.IDENTITY: PROFILE,
    Kind.PREFERENCE: "topics/preferences.md",
    Kind.PROJECT: "topics/projects.md",
    Kind.PERSON: "topics/people.md",
    Kind.DECISION: "topics/decisions.md",
    Kind.SKILL: "topics/skills.md",
    Kind.FACT: "topics/facts.md",
}
"""The page of a memory that belongs to no topic."""
SLUG_LENGTH = 48
REMEMBERED = 1 << 12
"""Texts whose comparable form is kept at hand."""

_RESERVED = re.compile(r"con|prn|aux|nul|com\d|lpt\d")
"""Names that no file can have on Windows."""
_NAME = re.compile(r"(?<=\w )[A-Z]\w*")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_WORD = re.compile(r"\w+(?:['’]\w+)?")
_DENIALS = frozenset(("no", "not", "never", "without", "nor", "neither", "none", "cannot", "nobody", "nothing",
                      "nicht", "kein", "keine", "nie", "ohne"))
_ORDERING = frozenset(("over", "than", "instead", "rather", "before", "after", "from", "to", "into", "above", "below",
                       "under"))


@dataclass(frozen=True, slots=True)
class _Form:
    """A text as it is compared."""

    normalised: str
    words: frozenset[str]
    numbers: tuple[str, ...]
    denials: int
    order: tuple[str, ...]
    """The words in their order, where that matters."""
    names: frozenset[str]
    """Words that begin with a capital within a sentence."""


def says_something(text: str) -> bool:
    """Whether there is a letter, a digit or a sign in it."""
    return any(unicodedata.category(char)[0] in "LNS" for char in text)


def says_the_same(one: str, other: str) -> bool:
    """Whether one of the two is enough."""
    return _same(_form(one), _form(other))


def first_that_says(text: str, entries: Iterable[Entry]) -> Entry | None:
    """The first of the entries that says the same as `text`."""
    form = _form(text)
    return next((entry for entry in entries if _may_be(form, entry.text) and _same(form, _form(entry.text))), None)


def page_of(kind: Kind, topic: str = "") -> str:
    """The page of a new memory: its topic's, else its kind's."""
    name = slug(topic)
    return f"{TOPICS}{name}.md" if name else PAGES[kind]


def slug(words: str) -> str:
    """A file name without its ending: lower-case letters of ASCII, digits and hyphens; empty when nothing is left."""
    plain = "".join(char if char.isascii() and char.isalnum() else "-" for char in folded(words))
    name = re.sub("-+", "-", plain).strip("-")[:SLUG_LENGTH].rstrip("-")
    return f"{name}-notes" if _RESERVED.fullmatch(name) else name


def _may_be(form: _Form, text: str) -> bool:
    """A cheap look that passes whatever could be the same: half of the words stand in it somehow."""
    if not text.isascii() or not form.words:
        return True
    text = text.lower()
    return 2 * sum(word in text for word in form.words) >= len(form.words)


def _same(one: _Form, other: _Form) -> bool:
    if one.normalised == other.normalised:
        return bool(one.normalised)
    shared = len(one.words & other.words)
    if not shared or shared < ALIKE * len(one.words | other.words):
        return False
    if (one.numbers, one.denials, one.names) != (other.numbers, other.denials, other.names):
        return False
    return not (one.order or other.order) or one.order == other.order


@lru_cache(REMEMBERED)
def _form(text: str) -> _Form:
    all_words, words = _WORD.findall(folded(text)), content_words(text)
    order = tuple(found for word in all_words if (found := stem(word)) in words) if _ORDERING & set(all_words) else ()
    denials = sum(word in _DENIALS or word.endswith(("n't", "n’t")) for word in all_words)
    return _Form(normalised(text), words, tuple(sorted(_NUMBER.findall(text))), denials, order,
                 frozenset(_NAME.findall(text)))
