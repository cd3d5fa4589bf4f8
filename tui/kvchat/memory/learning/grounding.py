"""Check a fact against what the user typed in one message.

One rule, which docs/memory.md tells: a fact is the user's where more than half of its words, and all of its numbers and
names, stand in up to three sentences in a row that they typed, and none of these says the opposite. Questions, code and
quotations are not read, and what was pasted never gets here (`prompt.message.Message.typed`). Where these sentences do
not say I, my or we, speak of somebody in the user's life, or have other signs (`-x` for `+x`), the user is asked first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from kvchat.memory.entry import ChangeReason, Why
from kvchat.memory.learning.phrases import FIRST_PERSON, GLUE, RELATION, SUBJECT, denies, meaning, meanings
from kvchat.memory.similarity import folded, numbers, signs, words

READ = 20_000
"""Characters of a message that are read."""
TYPED_LIMIT = 1500
"""Characters of a message from which on it was probably not typed. Imported ones do not tell what was pasted."""
WINDOW = 3
"""Sentences in a row that a fact may be put together from."""
LEAST_SHARE = 0.5
"""A fact needs a larger share of its words than this."""

_FENCED = re.compile(r"(```|~~~).*?(?:\1|\Z)|<context\b.*?(?:</context>|\Z)", re.DOTALL | re.IGNORECASE)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_QUOTATION = re.compile(
    r'"[^"\n]{1,2000}"|(?<!\w)"[^"]{1,2000}"|“[^”]{1,2000}”|„[^“”]{1,2000}[“”]|«[^»]{1,2000}»|»[^«]{1,2000}«'
    r"|‹[^›]{1,2000}›|「[^」]{1,2000}」|『[^』]{1,2000}』|`[^`\n]{1,2000}`|‚[^‘’]{1,2000}[‘’]"
    r"|‘(?:[^’]|(?<=\w)’(?=\w)){1,500}’(?!\w)|(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w)){1,500}'(?!\w)"
)
"""Words between quotation marks of any kind, on several lines too; an apostrophe is none, nor is the sign of inches."""
_NAME_WORDS = 3
"""So many words between quotation marks are a title or a name, and no quotation."""
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+|(?<=[。！？])")
_QUESTION = ("?", "？", "か", "か。", "吗", "吗。")
_CLAUSE = re.compile(
    r"[,;:—–()|，；、：（）]\s*|\s-+\s|\b(?:and|but|because|so|while|although|though|however|or|whereas|which|who|und|aber"
    r"|weil|oder|sondern|et|mais|ou|parce que|y|pero|porque|sino)\b"
)
_TURN = re.compile(
    r"[;—–；]|\b(?:but|however|although|though|while|whereas|because|aber|sondern|weil|mais|pero|sino|porque)\b"
)
"""Where a negation ends."""


class Clause(Struct, frozen=True):
    """A part of a sentence."""

    meanings: frozenset[str]
    """Its words as they are compared."""
    denies: bool
    of_others: bool
    """It is about somebody in the user's life: `my sister`."""


class Sentence(Struct, frozen=True):
    """A sentence that the user typed."""

    text: str
    meanings: frozenset[str]
    clauses: tuple[Clause, ...]
    first_person: bool


class Statements(Struct, frozen=True):
    """What the user says in a message."""

    sentences: tuple[Sentence, ...]
    doubt: ChangeReason | None = None
    """Why nothing in it is to be taken for a fact unasked; None: no reason."""


class Grounding(Struct, frozen=True):
    """How well one message bears out a fact."""

    share: float
    """The share of the fact's words that the user typed, from 0 to 1; a little less when they come from several
    sentences."""
    refusal: ChangeReason | None = None
    """Why it is not the user's fact; None: it is."""
    review: ChangeReason | None = None
    """Why the user is asked first; None: no need."""


def own_words(typed: str) -> str:
    """What was typed, without code and quotations."""
    text = _QUOTED_LINE.sub("", _FENCED.sub("\n", typed[:READ]))
    return _QUOTATION.sub(lambda found: found[0] if len(words(found[0])) <= _NAME_WORDS else " ", text)


def statements(typed: str) -> Statements:
    """What the user says in a message; what they ask is left out."""
    parts = [_stated(part) for part in _SENTENCE.split(own_words(typed)) if part]
    sentences = tuple(
        Sentence(part, frozenset(meanings(part)), tuple(clauses_of(part)), bool(FIRST_PERSON.search(folded(part))))
        for part in parts
        if part
    )
    return Statements(sentences, ChangeReason(Why.PASTED) if len(typed) > TYPED_LIMIT else None)


def _stated(sentence: str) -> str:
    """A sentence without the question that it ends with: `I'm allergic to nuts, what can I eat?`."""
    if not sentence.rstrip(" \"'”’)").endswith(_QUESTION):
        return sentence.strip()
    joints = list(_CLAUSE.finditer(sentence))
    return sentence[: joints[-1].start()].strip() if joints else ""


def clauses_of(sentence: str) -> list[Clause]:
    """The clauses of a sentence. One without a subject of its own shares the negation of the one before: `I don't smoke
    or drink`."""
    plain = folded(sentence).strip()
    joints = [(0, 0, ""), *((joint.start(), joint.end(), joint[0]) for joint in _CLAUSE.finditer(plain))]
    ends = [start for start, _, _ in joints[1:]] + [len(plain)]
    found: list[Clause] = []
    denied = False
    for (_, begin, joint), end in zip(joints, ends, strict=True):
        part = plain[begin:end]
        goes_on = not SUBJECT.search(part) and not _TURN.search(joint)
        denied = denies(part) or (denied and goes_on)
        if part.strip():
            found.append(Clause(frozenset(meanings(part)), denied, bool(RELATION.search(part))))
    return found


def grounding(text: str, said: Statements) -> Grounding:
    """How a fact is borne out by a message."""
    wanted = frozenset(meanings(text)) - GLUE
    if not wanted:
        return Grounding(0.0, ChangeReason(Why.NOTHING))
    share, used = _best_window(wanted, said.sentences)
    if share <= LEAST_SHARE:
        missing = sorted(wanted.difference(*(sentence.meanings for sentence in said.sentences)))
        unsaid = ChangeReason(Why.UNSAID, ", ".join(word.strip("<>") for word in missing[:4]))
        return Grounding(share, unsaid if missing else ChangeReason(Why.SCATTERED))
    refusal, review = _otherwise(text, used), said.doubt
    if not refusal:
        refusal, doubt = _compared(text, [clause for sentence in used for clause in sentence.clauses])
        review = review or doubt
    if not any(sentence.first_person for sentence in used):
        review = review or ChangeReason(Why.NOT_YOU)
    if _other_signs(text, used):
        review = review or ChangeReason(Why.SIGNS)
    return Grounding(share if len(used) == 1 else share * 0.9, refusal, None if refusal else review)


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


def _best_window(wanted: frozenset[str], said: Sequence[Sentence]) -> tuple[float, list[Sentence]]:
    """The largest share of the words found in a few sentences in a row, and which of these have them; the later ones
    where there are several, because they correct the earlier."""
    hits = [_found(wanted, sentence.meanings) for sentence in said]
    best: tuple[int, int, int] = (0, 0, 0)
    for start in range(len(hits)):
        for length in range(1, min(WINDOW, len(hits) - start) + 1):
            count = len(frozenset[str]().union(*hits[start : start + length]))
            best = max(best, (count, -length, start))
    count, length, start = best
    return count / len(wanted), [said[i] for i in range(start, start - length) if hits[i]]


def _compared(text: str, clauses: Sequence[Clause]) -> tuple[ChangeReason | None, ChangeReason | None]:
    """Why the user said the opposite of a fact, and why they may mean something else."""
    review = None
    for part in clauses_of(text):
        counted = [(len(_found(part.meanings - GLUE, clause.meanings)), clause) for clause in clauses]
        most = max((count for count, _ in counted), default=0)
        closest = [clause for count, clause in counted if count == most > 0]
        if closest and all(clause.denies != part.denies for clause in closest):
            return ChangeReason(Why.TURNED), None
        if any(clause.denies != part.denies for clause in closest):
            review = ChangeReason(Why.BOTH)
        elif not part.of_others and any(clause.of_others for clause in closest):
            review = review or ChangeReason(Why.OF_OTHERS)
    return None, review


def _otherwise(text: str, used: Sequence[Sentence]) -> ChangeReason | None:
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


def _other_signs(text: str, used: Sequence[Sentence]) -> bool:
    """Whether a fact has code, a path or a signed number otherwise than the sentences: `-x` for `+x`."""
    source = " ".join(sentence.text for sentence in used)
    known = signs(source)
    return any(
        sign not in known and sign not in source and not (sign[0].isupper() and sign.lower() in source.lower())
        for sign in signs(text)
    )


def _names(text: str) -> list[str]:
    """The words with a capital letter, but the first."""
    found = []
    for word in text.split()[1:]:
        bare = word.lstrip("\"'“”‘’«»([")
        if bare[:1].isupper() and not bare.startswith(("I'", "I’")) and bare != "I":
            found += [one for one in meanings(bare) if not one.startswith("<")]
    return found


def _counted(text: str) -> dict[str, set[str]]:
    """The words right behind numbers, each with its numbers: `2 cats`."""
    found: dict[str, set[str]] = {}
    line = words(text)
    for number, thing in pairwise(line):
        if number[0].isdigit() and not thing[0].isdigit():
            found.setdefault(meaning(thing), set()).add(number)
    return found
