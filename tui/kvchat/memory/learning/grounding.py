"""Check whether the user said what a fact says: its words, numbers, names and negations against one message's own
words, clause by clause.

Only the user's own words count, not what they quote, paste into a fence, or hand over to be translated or improved. A
fact that these words do not show is refused; one that they may have meant otherwise is shown to them first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from msgspec import Struct

from kvchat.memory.entry import ChangeReason, Why
from kvchat.memory.learning.phrases import (
    ASKING,
    FIRST_PERSON,
    GLUE,
    HANDED_OVER,
    PASSING,
    RELATION,
    REQUEST,
    STANDING,
    SUBJECT,
    SUPPOSED,
    UNSURE,
    WISH,
    WORKED_ON,
    YOU_ARE,
    denies,
    meaning,
    meanings,
)
from kvchat.memory.learning.vetting import QUOTATION, carries
from kvchat.memory.similarity import folded, numbers, signs, words

# What a message says


LONG = 1500
"""Characters of a message from which on it was probably not typed, but pasted."""
READ = 20_000
"""Characters of a message that are looked at."""

_FENCED = re.compile(r"(```|~~~).*?(?:\1|\Z)|<context\b.*?(?:</context>|\Z)", re.DOTALL | re.IGNORECASE)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+|(?<=[。！？])")
_CLAUSE = re.compile(
    r"[,;:—–()|，；、：（）]\s*|\s-+\s|\b(?:and|but|because|so|while|although|though|however|or|whereas|which|who|und|aber"
    r"|weil|oder|sondern|et|mais|ou|parce que|y|pero|porque|sino)\b"
)
_TURN = re.compile(
    r"[;—–；]|\b(?:but|however|although|though|while|whereas|because|aber|sondern|weil|mais|pero|sino|porque)\b"
)
"""Where a negation ends."""


class Clause(Struct, frozen=True):
    """A part of a sentence, and what it does."""

    meanings: frozenset[str]
    """Its words as they are compared."""
    denies: bool
    sentence: int
    """The number of its sentence in the message."""
    asked: bool = False
    request: bool = False
    of_assistant: bool = False
    of_others: bool = False
    """It is about somebody in the user's life: `my sister`."""


class Sentence(Struct, frozen=True):
    """A sentence of the user's own."""

    text: str
    meanings: frozenset[str]
    first_person: bool


class OwnWords(Struct, frozen=True):
    """A message's own words, taken apart."""

    sentences: tuple[Sentence, ...]
    clauses: tuple[Clause, ...]
    doubt: ChangeReason | None = None
    """Why nothing in it is to be taken for a fact unasked; None: no reason."""


def own_words(text: str) -> str:
    """A message without what is fenced, quoted, or handed over to be worked on."""
    text = _QUOTED_LINE.sub("", _FENCED.sub("\n", text[:READ]))
    text = QUOTATION.sub(lambda found: " " if len(found[0].split()) > 3 or len(found[0]) > 30 else found[0], text)
    handed = HANDED_OVER.search(text)
    return text[: handed.end()] if handed else text


def said(text: str) -> OwnWords:
    """What the user says in a message."""
    sentences: list[Sentence] = []
    clauses: list[Clause] = []
    for part in _SENTENCE.split(own_words(text)):
        if part and part.strip():
            clauses += clauses_of(part, len(sentences))
            sentences.append(Sentence(part, frozenset(meanings(part)), bool(FIRST_PERSON.search(folded(part)))))
    return OwnWords(tuple(sentences), tuple(clauses), _doubt(text))


def _doubt(text: str) -> ChangeReason | None:
    plain = folded(text[:READ])
    if SUPPOSED.search(plain):
        return ChangeReason(Why.GAME)
    if WORKED_ON.search(plain):
        return ChangeReason(Why.WORKED_ON)
    if len(text) > LONG:  # what is looked for in the end takes long in a long text
        return ChangeReason(Why.PASTED)
    return ChangeReason(Why.OTHERS) if carries(_FENCED.sub("\n", text)) else None


def clauses_of(sentence: str, number: int = 0) -> list[Clause]:
    """The clauses of a sentence. One without a subject of its own shares the negation and the asking of the one before:
    `I don't smoke or drink`."""
    plain = folded(sentence).strip()
    joints = [(0, 0, ""), *((joint.start(), joint.end(), joint[0]) for joint in _CLAUSE.finditer(plain))]
    ends = [start for start, _, _ in joints[1:]] + [len(plain)]
    question = plain.endswith(("?", "？", "か", "か。", "吗", "吗。"))
    found: list[Clause] = []
    denied = asked = request = False
    for (_, begin, joint), end in zip(joints, ends, strict=True):
        part = plain[begin:end]
        goes_on = not SUBJECT.search(part) and not _TURN.search(joint)
        denied = denies(part) or (denied and goes_on)
        asked = asked or bool(ASKING.search(part)) or (question and end == len(plain))
        request = bool(REQUEST.search(part)) or (request and goes_on)
        of_assistant = bool(YOU_ARE.search(part)) and not FIRST_PERSON.search(part)
        if part.strip():
            found.append(
                Clause(
                    frozenset(meanings(part)), denied, number, asked, request, of_assistant, bool(RELATION.search(part))
                )
            )
    return found


# How well it bears out a fact


WINDOW = 3
"""Sentences in a row that a fact may be put together from."""
LEAST = 0.6
"""The share of a fact's words that the user must have said."""
ENOUGH = 0.75
"""Below this share the user is asked first."""


class Grounding(Struct, frozen=True):
    """How well one message bears out a fact."""

    share: float
    """The share of the fact's words that are the user's, from 0 to 1; a little less when they come from several
    sentences."""
    refusal: ChangeReason | None = None
    """Why it is not the user's fact; None: it is."""
    review: ChangeReason | None = None
    """Why the user is asked first; None: no need."""


def grounding(text: str, message: OwnWords) -> Grounding:
    """How a fact is borne out by a message."""
    wanted = frozenset(meanings(text)) - GLUE
    if not wanted:
        return Grounding(0.0, ChangeReason(Why.NOTHING))
    share, window = _best_window(wanted, message)
    if share < LEAST:
        missing = sorted(wanted.difference(*(s.meanings for s in message.sentences)))
        unsaid = ChangeReason(Why.UNSAID, ", ".join(word.strip("<>") for word in missing[:4]))
        return Grounding(share, unsaid if missing else ChangeReason(Why.SCATTERED))
    used = [message.sentences[i] for i in window]
    clauses = [clause for clause in message.clauses if clause.sentence in window]
    best, refusal, review = _told(text, clauses, _marks(text, used))
    refusal = _otherwise(text, used) or refusal or _not_stated(best, used)
    return Grounding(
        share if len(used) == 1 else share * 0.9,
        refusal,
        None
        if refusal
        else (
            message.doubt
            or review
            or _caution(text, best, used)
            or (None if share >= ENOUGH else ChangeReason(Why.LOOSE))
        ),
    )


def alike(word: str, other: str) -> bool:
    """Whether two words are forms of one: `wohnt` and `wohne`. What holds a digit has to be equal."""
    if word == other:
        return True
    if not (word.isalpha() and other.isalpha()):
        return False
    shared = next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    return shared >= 4 and shared >= 0.75 * max(len(word), len(other))


def _found(wanted: Iterable[str], known: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in wanted if word in known or any(alike(word, other) for other in known))


def _best_window(wanted: frozenset[str], message: OwnWords) -> tuple[float, list[int]]:
    """The largest share of the words found in a few sentences in a row, and which of these have them; the later ones
    where there are several, because they correct the earlier."""
    hits = [_found(wanted, sentence.meanings) for sentence in message.sentences]
    best: tuple[int, int, int] = (0, 0, 0)
    for start in range(len(hits)):
        for length in range(1, min(WINDOW, len(hits) - start) + 1):
            count = len(frozenset[str]().union(*hits[start : start + length]))
            best = max(best, (count, -length, start))
    count, length, start = best
    return count / len(wanted), [i for i in range(start, start - length) if hits[i]]


def _told(
    text: str, clauses: list[Clause], marks: frozenset[str]
) -> tuple[list[Clause], ChangeReason | None, ChangeReason | None]:
    """The clauses that the fact's own come from, why it is refused, and why it is to be reviewed. `marks` are names and
    numbers, which belong to those they were said of."""
    best: list[Clause] = []
    review = None
    for part in clauses_of(text):
        wanted = part.meanings - GLUE
        counted = [(len(_found(wanted, clause.meanings)), clause) for clause in clauses]
        most = max((count for count, _ in counted), default=0)
        if not most:
            continue
        closest = [clause for count, clause in counted if count == most]
        if all(clause.denies != part.denies for clause in closest):
            return closest, ChangeReason(Why.TURNED), None
        if any(clause.denies != part.denies for clause in closest):
            review = ChangeReason(Why.BOTH)
        marked = marks & wanted
        if len(marked) > 1 and not any(marked <= clause.meanings for clause in clauses):
            review = review or ChangeReason(Why.APART)
        best += closest
    return best, None, review


def _marks(text: str, used: list[Sentence]) -> frozenset[str]:
    """The names and numbers in a fact and in what it comes from."""
    names = [name for part in (text, *(sentence.text for sentence in used)) for name in _names(part)]
    return frozenset(names) | frozenset(meaning(number) for number in numbers(text))


def _names(text: str) -> list[str]:
    """The words with a capital letter, but the first."""
    found = []
    for word in text.split()[1:]:
        bare = word.lstrip("\"'“”‘’«»([")
        if bare[:1].isupper() and not bare.startswith(("I'", "I’")) and bare != "I":
            found += [one for one in meanings(bare) if not one.startswith("<")]
    return found


def _otherwise(text: str, used: list[Sentence]) -> ChangeReason | None:
    """Why the fact's numbers and names are not those of the sentences; None: they are."""
    source = " ".join(sentence.text for sentence in used)
    known = frozenset(meanings(source))
    if other := numbers(text) - numbers(source):
        return ChangeReason(Why.NUMBER, min(other))
    counted = _counted(source)
    for thing, values in _counted(text).items():
        if thing in counted and not values <= counted[thing]:
            return ChangeReason(Why.COUNT, thing.strip("<>"))
    unknown = [name for name in _names(text) if name not in known]
    return ChangeReason(Why.NAME, unknown[0]) if unknown else None


def _other_signs(text: str, used: list[Sentence]) -> bool:
    """Whether a fact has code, a path or a signed number otherwise than the sentences: `-x` for `+x`."""
    source = " ".join(sentence.text for sentence in used)
    known = signs(source)
    return any(
        sign not in known and sign not in source and not (sign[0].isupper() and sign.lower() in source.lower())
        for sign in signs(text)
    )


def _counted(text: str) -> dict[str, set[str]]:
    """The words right behind numbers, each with its numbers: `2 cats`."""
    found: dict[str, set[str]] = {}
    line = words(text)
    for number, thing in pairwise(line):
        if number[0].isdigit() and not thing[0].isdigit():
            found.setdefault(meaning(thing), set()).add(number)
    return found


def _not_stated(best: list[Clause], used: list[Sentence]) -> ChangeReason | None:
    """Why the clauses are not the user's statement about themselves; None: they may be."""
    if not best:
        return None
    if all(clause.of_assistant for clause in best):
        return ChangeReason(Why.OF_ASSISTANT)
    if any(sentence.first_person for sentence in used):
        return None
    if all(clause.asked for clause in best):
        return ChangeReason(Why.ASKED)
    standing = any(STANDING.search(folded(sentence.text)) for sentence in used)
    return ChangeReason(Why.REQUESTED) if all(clause.request for clause in best) and not standing else None


def _caution(text: str, best: list[Clause], used: list[Sentence]) -> ChangeReason | None:
    plain = folded(" ".join(sentence.text for sentence in used))
    for why, doubtful in (
        (Why.ASKED, any(clause.asked for clause in best)),
        (Why.REQUEST, any(clause.request for clause in best)),
        (Why.OF_OTHERS, any(clause.of_others for clause in best) and not RELATION.search(folded(text))),
        (Why.SIGNS, _other_signs(text, used)),
        (Why.PASSING, PASSING.search(plain)),
        (Why.UNSURE, UNSURE.search(plain)),
        (Why.WISH, WISH.search(plain)),
        (Why.NOT_YOU, not any(sentence.first_person for sentence in used)),
    ):
        if doubtful:
            return ChangeReason(why)
    return None
