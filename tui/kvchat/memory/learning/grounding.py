"""Whether the person said what a fact says: its words, numbers, names and negations against one message's own words.

The rule: a fact that cannot be shown in the person's own words is refused; one that they may have meant otherwise is
shown to them first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from kvchat.memory.learning.phrases import GLUE, PASSING, RELATION, STANDING, UNSURE, WISH, meaning
from kvchat.memory.learning.said import Clause, Said, Sentence, clauses_of, meanings
from kvchat.memory.sameness import signs
from kvchat.memory.words import folded, numbers, words

WINDOW = 3
"""Sentences in a row that a fact may be put together from."""
LEAST = 0.6
"""The share of a fact's words that the person must have said."""
TURNED = "turns around what you said"
ENOUGH = 0.75
"""Below this share the person is asked first."""


@dataclass(frozen=True, slots=True)
class Grounding:
    """How a fact stands to one message."""

    share: float
    """Of the fact's words, how many are the person's, from 0 to 1; a little less when they come from several
    sentences."""
    refusal: str = ""
    """Why it is no fact of the person's; empty: it is one."""
    review: str = ""
    """Why the person is to be asked first; empty: no need."""


def grounding(text: str, message: Said) -> Grounding:
    """How a fact is borne out by a message."""
    wanted = frozenset(meanings(text)) - GLUE
    if not wanted:
        return Grounding(0.0, "says nothing")
    share, window = _best_window(wanted, message)
    if share < LEAST:
        missing = sorted(wanted.difference(*(s.meanings for s in message.sentences)))
        return Grounding(share, f"not in your own words: {', '.join(word.strip('<>') for word in missing[:4])}"
                         if missing else "not said in one place")
    used = [message.sentences[i] for i in window]
    clauses = [clause for clause in message.clauses if clause.sentence in window]
    best, refusal, review = _told(text, clauses, _marks(text, used))
    refusal = _otherwise(text, used) or refusal or _not_stated(best, used)
    return Grounding(share if len(used) == 1 else share * 0.9, refusal, "" if refusal else (
        message.doubt or review or _caution(text, best, used) or ("" if share >= ENOUGH else "not quite your words")))


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


def _best_window(wanted: frozenset[str], message: Said) -> tuple[float, list[int]]:
    """The largest share of the words found in a few sentences in a row, and which of these have them; the later ones
    where there are several, because they correct the earlier."""
    hits = [_found(wanted, sentence.meanings) for sentence in message.sentences]
    best: tuple[int, int, int] = (0, 0, 0)
    for start in range(len(hits)):
        for length in range(1, min(WINDOW, len(hits) - start) + 1):
            count = len(frozenset[str]().union(*hits[start:start + length]))
            best = max(best, (count, -length, start))
    count, length, start = best
    return count / len(wanted), [i for i in range(start, start - length) if hits[i]]


def _told(text: str, clauses: list[Clause], marks: frozenset[str]) -> tuple[list[Clause], str, str]:
    """The clauses that the fact's own come from, why it is refused, and why it is to be reviewed. `marks` are names and
    numbers, which belong to those they were said of."""
    best: list[Clause] = []
    review = ""
    for part in clauses_of(text):
        wanted = part.meanings - GLUE
        counted = [(len(_found(wanted, clause.meanings)), clause) for clause in clauses]
        most = max((count for count, _ in counted), default=0)
        if not most:
            continue
        closest = [clause for count, clause in counted if count == most]
        if all(clause.denies != part.denies for clause in closest):
            return closest, TURNED, ""
        if any(clause.denies != part.denies for clause in closest):
            review = "you said both"
        marked = marks & wanted
        if len(marked) > 1 and not any(marked <= clause.meanings for clause in clauses):
            review = review or "puts together what you said apart"
        best += closest
    return best, "", review


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


def _otherwise(text: str, used: list[Sentence]) -> str:
    """Why the fact's numbers and names are not those of the sentences; empty: they are."""
    source = " ".join(sentence.text for sentence in used)
    known = frozenset(meanings(source))
    if other := numbers(text) - numbers(source):
        return f"a number that you did not say there: {min(other)}"
    counted = _counted(source)
    for thing, values in _counted(text).items():
        if thing in counted and not values <= counted[thing]:
            return f"another number than you said for {thing.strip('<>')}"
    unknown = [name for name in _names(text) if name not in known]
    return f"a name that you did not say there: {unknown[0]}" if unknown else ""


def _other_signs(text: str, used: list[Sentence]) -> bool:
    """Whether a fact has code, a path or a signed number otherwise than the sentences: `-x` for `+x`."""
    source = " ".join(sentence.text for sentence in used)
    known = signs(source)
    return any(sign not in known and sign not in source and not (sign[0].isupper() and sign.lower() in source.lower())
               for sign in signs(text))


def _counted(text: str) -> dict[str, set[str]]:
    """What stands right behind numbers, and the numbers: `2 cats`."""
    found: dict[str, set[str]] = {}
    line = words(text)
    for number, thing in pairwise(line):
        if number[0].isdigit() and not thing[0].isdigit():
            found.setdefault(meaning(thing), set()).add(number)
    return found


def _not_stated(best: list[Clause], used: list[Sentence]) -> str:
    """Why the clauses are no statement of the person's about themselves; empty: they may be one."""
    if best and all(clause.of_assistant for clause in best):
        return "about the assistant"
    if any(sentence.first_person for sentence in used):
        return ""
    if best and all(clause.asked for clause in best):
        return "asked, not said"
    if best and all(clause.request for clause in best) and not any(STANDING.search(folded(s.text)) for s in used):
        return "asked for, not said"
    return ""


def _caution(text: str, best: list[Clause], used: list[Sentence]) -> str:
    plain = folded(" ".join(sentence.text for sentence in used))
    for doubtful, why in (
        (any(clause.asked for clause in best), "asked, not said"),
        (any(clause.request for clause in best), "said as a request"),
        (any(clause.of_others for clause in best) and not RELATION.search(folded(text)), "may be about somebody else"),
        (_other_signs(text, used), "not quite your signs"),
        (bool(PASSING.search(plain)), "may hold only for now"),
        (bool(UNSURE.search(plain)), "you were not sure"),
        (bool(WISH.search(plain)), "may be a wish of the moment"),
        (not any(sentence.first_person for sentence in used), "may not be about you"),
    ):
        if doubtful:
            return why
    return ""
