"""Compare memories by their words, and say whether two say the same. Pure, without a model.

Two texts are the same only if they have the same words and signs in the same order; the punctuation between words, the
case of plain words, articles and words that only name the user may differ. When in doubt two memories are two: to note
one twice does less harm than to lose one that says otherwise.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from kvchat.memory.entry import PROFILE, Entry, Kind
from kvchat.memory.vocabulary import counted, listed

_MARKS = "\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0dff"
"""Vowel signs and the like, inside words of scripts in which they are no letters."""
_NUMBER = r"\d+(?:[.,]\d+)*"
_WORD = re.compile(
    rf"{_NUMBER}|[^\W\d_][\w{_MARKS}]*(?:['’][^\W\d_]+|(?<=\d)\.\d+)*(?:\+\+|#)?"
    "|[\u2600-\u27bf\U0001f000-\U0001faff]"
)
_THOUSANDS = re.compile(r"(?<=\d)[.,](?=\d{3}(?!\d))")
_CJK = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30fa\u30fc-\u30ff\u3400-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff]+"
)
"""Scripts that put no spaces between words, and Korean, whose words change at their ends."""
_ELISION = re.compile(r"(?:qu|lorsqu|jusqu|puisqu|[cdjlmnst])['’](?=\w{2})")
_CONTRACTION = re.compile(r"(?:n['’]t|['’](?:s|m|re|ve|ll|d))\Z")

_COUNTED = counted()
"""Numbers written out are digits."""

_STOP = frozenset(listed("stop"))


def folded(text: str) -> str:
    """Lower case, without accents, in one normal form."""
    plain = unicodedata.normalize("NFKD", text.casefold()).casefold()
    return unicodedata.normalize("NFC", "".join(char for char in plain if not "\u0300" <= char <= "\u036f"))


def words(text: str) -> list[str]:
    """All words in their order, folded: numbers as digits, contractions taken apart, scripts without spaces as pairs
    of characters."""
    text, found, at = folded(text), [], 0
    for run in _CJK.finditer(text):
        found += _spaced(text[at : run.start()])
        found += [run[0][i : i + 2] for i in range(max(1, len(run[0]) - 1))]
        at = run.end()
    return found + _spaced(text[at:])


def _spaced(text: str) -> list[str]:
    found = []
    for word in _WORD.findall(_THOUSANDS.sub("", text)):
        if word[0].isdigit():
            found.append(word.replace(",", "."))
        else:
            word = _CONTRACTION.sub("", _ELISION.sub("", word))
            found.append(_COUNTED.get(word, word))
    return [word for word in found if word]


def as_digits(word: str) -> str:
    """A number that is written out, in digits; any other word as it is."""
    return _COUNTED.get(folded(word), word)


def normalised(text: str) -> str:
    """The form in which two texts that say the same in the same words are equal: folded, words only. A text without
    any words is taken as it is."""
    text = _THOUSANDS.sub("", folded(text))
    return " ".join(_WORD.findall(text) or text.split())


def stem(word: str) -> str:
    """The word without an English ending, roughly: `prefers`, `preferred` and `prefer` are one."""
    if len(word) > 4 and word.endswith(("ies", "ied")):
        return word[:-3] + "y"
    for ending in ("'s", "’s", "ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "aeiou":
        return word[:-1]
    return word.removesuffix("e") if len(word) > 3 else word


def content_sequence(text: str) -> tuple[str, ...]:
    """The stems of the words that carry meaning, in their order."""
    return tuple(stem(word) for word in words(text) if word not in _STOP)


def content_words(text: str) -> frozenset[str]:
    """The stems of the words that carry meaning. Scripts without spaces give pairs of characters."""
    return frozenset(content_sequence(text))


def numbers(text: str) -> frozenset[str]:
    """The numbers in a text, those written out too, as digits; and words with a digit in them: `v3.11`, `mp3`."""
    return frozenset(word for word in words(text) if any(char.isdigit() for char in word))


# Whether two say the same


TOPICS, SKILLS = "topics/", "skills/"
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
_PLAIN = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
"""A plain word. Whatever has a digit or a sign in it is code, a number, a name or a path."""
_MENTIONS = frozenset(("a", "an", "the", "user", "user's"))
"""Words that say nothing by being there."""


def says_something(text: str) -> bool:
    """Whether there is a letter, a digit or a symbol in it (Unicode's categories L, N and S), not only punctuation."""
    return any(unicodedata.category(char)[0] in "LNS" for char in text)


def says_the_same(one: str, other: str) -> bool:
    """Whether one of the two is enough."""
    form = _form(one)
    return bool(form) and form == _form(other)


def first_that_says(text: str, entries: Iterable[Entry]) -> Entry | None:
    """The first of the entries that says the same as `text`."""
    form = _form(text)
    later = tuple(word.lower() for word in form[1:] if not word.isdecimal())
    return next(
        (entry for entry in entries if form and _may_hold(later, entry.text) and form == _form(entry.text)), None
    )


def signs(text: str) -> tuple[str, ...]:
    """What is no plain word, in its order: numbers, those written out too, as digits, code, paths, and single signs."""
    return tuple(found for token in _tokens(text) if (found := as_digits(token)) and not _PLAIN.fullmatch(found))


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
    if not _PLAIN.fullmatch(token):
        return token[:1].lower() + token[1:]
    word = as_digits(token.lower())
    return word[:-1] if len(word) > 3 and word.isascii() and word[-1] == "s" and word[-2] not in "s'" else word


def _later(token: str) -> str:
    """Another word: capital letters in it make a name of it, unless all of a longer one are, for loudness."""
    if not _PLAIN.fullmatch(token):
        return token
    if token.islower() or token == "I" or (token.isupper() and len(token) > 2):
        return as_digits(token.lower())
    return token
