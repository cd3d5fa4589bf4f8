"""Whether two memories say the same, and which page a memory belongs to. Pure.

The rule: two texts are the same only if they have the same words and signs in the same order; what may differ is
the punctuation between words, the case of plain words, and what only names the person or is an article. When in doubt
two memories are two: to note one twice does less harm than to lose one that says otherwise.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from kvchat.memory.entry import PROFILE, Entry, Kind
from kvchat.memory.words import as_digits, folded

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
REMEMBERED = 1 << 14
"""Texts whose comparable form is kept at hand."""

_RESERVED = re.compile(r"con|prn|aux|nul|com\d|lpt\d")
"""Names that no file can have on Windows."""
_SPACED = str.maketrans(dict.fromkeys("，、。；！（）「」『』《》", " ") | dict.fromkeys("’ʼ", "'"))
"""Punctuation of scripts without spaces parts words; there is one apostrophe."""
_DASHES = frozenset("–—")
_OPENING = "\"'`“”„‘«»(["
_CLOSING = "\"'`“”‘»«)].,;!…"
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
"""A plain word. Whatever has a digit or a sign in it is code, a number, a name or a path."""
_MENTIONS = frozenset(("a", "an", "the", "user", "user's"))
"""Words that say nothing by being there."""


def says_something(text: str) -> bool:
    """Whether there is a letter, a digit or a sign in it."""
    return any(unicodedata.category(char)[0] in "LNS" for char in text)


def says_the_same(one: str, other: str) -> bool:
    """Whether one of the two is enough."""
    form = _form(one)
    return bool(form) and form == _form(other)


def first_that_says(text: str, entries: Iterable[Entry]) -> Entry | None:
    """The first of the entries that says the same as `text`."""
    form = _form(text)
    later = tuple(word.lower() for word in form[1:] if not word.isdecimal())
    return next((entry for entry in entries if form and _may_hold(later, entry.text) and form == _form(entry.text)),
                None)


def signs(text: str) -> tuple[str, ...]:
    """What is no plain word, in its order: numbers, those written out too, as digits, code, paths, and single signs."""
    return tuple(found for token in _tokens(text) if (found := as_digits(token)) and not _WORD.fullmatch(found))


def accented(text: str) -> frozenset[str]:
    """The words that would be others without their accents."""
    return frozenset(word for token in _tokens(text) if folded(word := token.lower()) != word)


def page_of(kind: Kind, topic: str = "") -> str:
    """The page of a new memory: its topic's, else its kind's."""
    name = slug(topic)
    return f"{TOPICS}{name}.md" if name else PAGES[kind]


def slug(words: str) -> str:
    """A file name without its ending: lower-case letters of ASCII, digits and hyphens; empty when nothing is left."""
    plain = "".join(char if char.isascii() and char.isalnum() else "-" for char in folded(words))
    name = re.sub("-+", "-", plain).strip("-")[:SLUG_LENGTH].rstrip("-")
    return f"{name}-notes" if _RESERVED.fullmatch(name) else name


def _may_hold(words: tuple[str, ...], text: str) -> bool:
    """A cheap look that passes whatever could have these words in it."""
    plain = text.lower()
    return not text.isascii() or all(word in plain for word in words)


@lru_cache(REMEMBERED)
def _form(text: str) -> tuple[str, ...]:
    """A text as it is compared; empty when there is nothing in it."""
    tokens = _tokens(text)
    plain = [token for at, token in enumerate(tokens) if not _is_mention(token, at == 0)] or tokens
    return tuple(_first(token) if at == 0 else _later(token) for at, token in enumerate(plain))


def _tokens(text: str) -> list[str]:
    """The words and signs of a text without the punctuation around them. One of nothing else stays as it is."""
    found = unicodedata.normalize("NFKC", text.translate(_SPACED)).split()
    return [token.lstrip(_OPENING).rstrip(_CLOSING) or token for token in found if token not in _DASHES] or found


def _is_mention(token: str, first: bool) -> bool:
    """Whether a text says the same without it. In `vitamin A` the letter is a name."""
    return (token.lower() if first else token) in _MENTIONS or (first and token == "I")


def _first(token: str) -> str:
    """The first word, in which a capital letter says nothing, and neither does whether it is `prefers` or `prefer`."""
    if not _WORD.fullmatch(token):
        return token[:1].lower() + token[1:]
    word = as_digits(token.lower())
    return word[:-1] if len(word) > 3 and word.isascii() and word[-1] == "s" and word[-2] not in "s'" else word


def _later(token: str) -> str:
    """Another word: capital letters in it make a name of it, unless all of a longer one are, for loudness."""
    if not _WORD.fullmatch(token):
        return token
    if token.islower() or token == "I" or (token.isupper() and len(token) > 2):
        return as_digits(token.lower())
    return token
