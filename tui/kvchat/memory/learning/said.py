"""What a person said in a message, clause by clause: stated, asked, or asked for.

The rule: only the person's own words count. What they quote, paste into a fence, or hand over to be translated or
improved is somebody's text, not something they said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvchat.memory.learning.carried import OTHERS, QUOTATION, carries
from kvchat.memory.learning.phrases import (
    ASKING,
    FIRST_PERSON,
    HANDED_OVER,
    RELATION,
    REQUEST,
    SUBJECT,
    SUPPOSED,
    WORKED_ON,
    YOU_ARE,
    denies,
    meaning,
)
from kvchat.memory.words import folded, words

LONG = 1500
"""Characters of a message from which on it was probably not typed, but pasted."""
READ = 20_000
"""Characters of a message that are looked at."""

_FENCED = re.compile(r"(```|~~~).*?(?:\1|\Z)|<context\b.*?(?:</context>|\Z)", re.DOTALL | re.IGNORECASE)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+|(?<=[。！？])")
_CLAUSE = re.compile(
    r"[,;:—–()|，；、：（）]\s*|\s-+\s|\b(?:and|but|because|so|while|although|though|however|or|whereas|which|who|und|aber"
    r"|weil|oder|sondern|et|mais|ou|parce que|y|pero|porque|sino)\b")
_TURN = re.compile(
    r"[;—–；]|\b(?:but|however|although|though|while|whereas|because|aber|sondern|weil|mais|pero|sino|porque)\b")
"""Where a negation ends."""
_EMPTY = frozenset(re.findall(r"\S+", """
a an the and or but of in on at to for from with by as into about than then that this these those it its is are am
was were be been being do does did will would can could should may might must i me my mine myself we us our you your
yours he him his she her they them their who which what when where how why also very really so too just only not no
never any some all more most much many user person users please there here if because while yes well ok says said
der die das und ist ich nicht ein eine einen einem einer mein meine meinen meiner auf fur von sich auch aber oder wie
zum zur bin sehr mit im am zu den dem des kein keine
le la les un une des du de et est je ne pas mon ma mes sur dans pour avec que qui suis tres
el los las una unos y o yo mi mis en con por para es soy no muy del al
"""))
"""Words without which a fact is as well grounded."""


@dataclass(frozen=True, slots=True)
class Clause:
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
    """It speaks of somebody of the person's: `my sister`."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of the person's own."""

    text: str
    meanings: frozenset[str]
    first_person: bool


@dataclass(frozen=True, slots=True)
class Said:
    """A message's own words, taken apart."""

    sentences: tuple[Sentence, ...]
    clauses: tuple[Clause, ...]
    doubt: str = ""
    """Why nothing in it is to be taken for a fact unasked; empty: no reason."""


def own_words(text: str) -> str:
    """A message without what is fenced, quoted, or handed over to be worked on."""
    text = _QUOTED_LINE.sub("", _FENCED.sub("\n", text[:READ]))
    text = QUOTATION.sub(lambda found: " " if len(found[0].split()) > 3 or len(found[0]) > 30 else found[0], text)
    handed = HANDED_OVER.search(text)
    return text[:handed.end()] if handed else text


def meanings(text: str) -> tuple[str, ...]:
    """The words that say something, in their order, as they are compared."""
    return tuple(meaning(word) for word in words(text) if word not in _EMPTY)


def said(text: str) -> Said:
    """What the person says in a message."""
    sentences: list[Sentence] = []
    clauses: list[Clause] = []
    for part in _SENTENCE.split(own_words(text)):
        if part and part.strip():
            clauses += clauses_of(part, len(sentences))
            sentences.append(Sentence(part, frozenset(meanings(part)), bool(FIRST_PERSON.search(folded(part)))))
    return Said(tuple(sentences), tuple(clauses), _doubt(text))


def _doubt(text: str) -> str:
    plain = folded(text[:READ])
    if SUPPOSED.search(plain):
        return "said in a game or as an example"
    if WORKED_ON.search(plain):
        return "may be a text to work on"
    if len(text) > LONG:
        return "may be pasted"
    return OTHERS if carries(_FENCED.sub("\n", text)) else ""


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
            found.append(Clause(frozenset(meanings(part)), denied, number, asked, request, of_assistant,
                                bool(RELATION.search(part))))
    return found
