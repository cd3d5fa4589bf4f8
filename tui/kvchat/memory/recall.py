"""Recall: choose the memories that go in front of a question, by the words they share.

An unrelated memory is worse than none. What is on the branch already is not repeated, and a block is made once and
frozen with its question. A word that could be in any question counts little, so does one that is in many memories; a
thing of the user's own (`my kiln`) counts more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from kvchat.memory.entry import Entry, Status
from kvchat.memory.similarity import content_words, folded, normalised
from kvchat.memory.sync import SCOPE
from kvchat.memory.vocabulary import listed
from kvchat.prompt.context import MEMORY, ContextBlock
from kvchat.prompt.message import Node, Role
from kvchat.prompt.wire import whole_characters

if TYPE_CHECKING:
    from kvchat.index.index import Hit, Index

PROFILE_SOURCE = "profile of the user"
"""Named so that the model knows whose profile it is; the user reads it too."""
MEMORY_SOURCE = "memories of earlier conversations with the user"
SKILL_SOURCE = "what worked before, step by step, for the user"
MOST_MEMORIES, MOST_SKILLS = 5, 2
"""Memories and skills for one question."""
POOL = 30
"""Entries looked at for one question."""
FREQUENT = 6
"""A word that is in more entries than this does not distinguish them."""
COMMON_ENTRIES = 300
"""A word that is in more entries than this is not searched for where there are rarer ones."""
ENOUGH_VECTORS = 12
"""As many vectors are needed to know what is usual among them."""
LONGEST_LINE, LONGEST_SKILL = 400, 1600
"""Characters of a line; a longer entry is cut."""
MARGIN = 0.6
"""A memory that belongs less than this part of how much the best one does is left out."""

COMMON = frozenset[str]().union(*map(content_words, listed("common")))
"""Stems of words that do not tell what a question is about, though they carry meaning: `time`, `write`, `wie`. Such a
word alone never brings a memory up; what names a thing, a food, an animal or a trade is none."""
NO_NAMES = COMMON.union(*map(content_words, listed("peoples")))
"""Stems of words that are written with a capital letter and yet name no one thing."""
MINE = frozenset(map(folded, listed("mine")))
"""Words before a thing of the user's own: `my kiln`."""
FILLING = frozenset("".join(listed("filling")))
"""Chinese characters of which no word is made that tells anything."""
_GERMAN, _ENGLISH = frozenset(listed("telling_of", "de")), frozenset(listed("telling_of", "en"))

_DATE = re.compile(r"\s*\(\d{4}-\d\d\)$")


class Searched(Protocol):
    """What recall needs of the memories; where they have an `index`, it is asked how many of them hold a word."""

    def profile(self) -> list[Entry]: ...

    def search(self, query: str, k: int = 20, vector: Sequence[float] | None = None) -> list[tuple[Entry, Hit]]: ...


class Recalled(Struct, frozen=True):
    """One block, and the entries whose lines it has, in their order."""

    block: ContextBlock
    entries: tuple[Entry, ...]


def recalled(
    memories: Searched,
    question: str,
    path: Sequence[Node],
    *,
    tokens: int,
    profile_tokens: int,
    skill_tokens: int = 0,
    vector: Sequence[float] | None = None,
) -> tuple[Recalled, ...]:
    """The blocks for a question after `path`: at a branch's first turn the profile, then the memories and the skills
    that belong to the question. `tokens` and the others bound them, about, at four bytes a token. `vector` is the
    question's, where there is a source of vectors. Nothing for an empty question."""
    if not question.strip():
        return ()
    profile = profile_of(memories, path, profile_tokens)
    shown = _shown(path) | {_key(line) for line in (profile.block.text.splitlines() if profile else ())}
    blocks = [profile]
    found, skills = (_unsaid(entries, path, question) for entries in _belonging(memories, question, vector))
    blocks.append(_block(MEMORY_SOURCE, found, shown, tokens, dated=True))
    blocks.append(_block(SKILL_SOURCE, skills[:MOST_SKILLS], shown, skill_tokens, dated=True))
    return tuple(block for block in blocks if block is not None)


def profile_of(memories: Searched, path: Sequence[Node], tokens: int) -> Recalled | None:
    """The block of the profile, at a branch's first turn; its bytes are the same whatever the question."""
    if tokens <= 0 or any(node.role is Role.USER for node in path):
        return None
    entries = [entry for entry in memories.profile() if entry.status is Status.LIVE]
    return _block(PROFILE_SOURCE, entries, _shown(path), tokens, dated=False)


def _block(source: str, entries: Iterable[Entry], shown: set[str], tokens: int, *, dated: bool) -> Recalled | None:
    """The entries that fit, one line each; their keys are added to `shown`. An entry too long for what is left makes
    room for shorter ones after it."""
    room = 4 * tokens
    lines: list[str] = []
    kept: list[Entry] = []
    for entry in entries:
        if dated and len(kept) == MOST_MEMORIES:
            break
        line = line_of(entry, dated=dated)
        size = len(line.encode(errors="replace")) + 1
        if line and size <= room and (key := _key(line)) not in shown:
            shown.add(key)
            room -= size
            lines.append(line)
            kept.append(entry)
    return Recalled(ContextBlock(MEMORY, source, "\n".join(lines)), tuple(kept)) if kept else None


def line_of(entry: Entry, *, dated: bool) -> str:
    """An entry as one line, with the month it is from: it shows which of two that disagree is newer. Always the same
    for the same entry."""
    text = whole_characters(" ".join(entry.text.split()))
    longest = LONGEST_SKILL if entry.is_skill else LONGEST_LINE
    if len(text) > longest:
        text = text[: longest - 1].rstrip() + "…"
    return f"{text} ({_month(entry.created)})" if text and dated else text


def _month(created: float) -> str:
    try:
        return f"{datetime.fromtimestamp(created, UTC):%Y-%m}"
    except (OverflowError, OSError, ValueError):
        return "1970-01"


def _key(line: str) -> str:
    """The form in which two lines are the same memory: no date, folded; the line itself where it has no words."""
    line = _DATE.sub("", line.strip())
    return normalised(line) or line


def _shown(path: Sequence[Node]) -> set[str]:
    """The keys of all lines in the memory blocks of the branch."""
    return {
        _key(line)
        for node in path
        for block in node.message.blocks
        if block.kind == MEMORY
        for line in block.text.splitlines()
    }


# What belongs.


def _belonging(memories: Searched, question: str, vector: Sequence[float] | None) -> tuple[list[Entry], list[Entry]]:
    """The memories and the skills that belong to the question, best first."""
    asked = asked_for(question)
    sought = asked.sought
    if not sought and not vector:
        return [], []
    counts = _counts(memories, sought)
    query = [word for stem, word in sought.items() if counts[stem] <= COMMON_ENTRIES] or sought.values()
    pool = [(e, hit) for e, hit in memories.search(" ".join(query), POOL, vector) if e.status is Status.LIVE]
    words = [remembered(_task_of(entry), hit.chunk.head) for entry, hit in pool]
    frequent = frozenset(stem for stem, count in counts.items() if count > FREQUENT)
    near = _nearness([hit for _, hit in pool])
    scores = [relevance(asked, *each) for each in zip(words, repeat(frequent), near, strict=False)]
    places = [
        sorted(
            (place for place, (entry, _) in enumerate(pool) if entry.is_skill is skills and scores[place]),
            key=lambda place: (-scores[place], place),
        )
        for skills in (False, True)
    ]
    memory, skill = (
        [pool[place][0] for place in ranked if scores[place] >= MARGIN * scores[ranked[0]]] for ranked in places
    )
    return memory, skill


def _task_of(entry: Entry) -> str:
    """What tells whether it belongs: of a skill when it applies, which is its first line."""
    return entry.text.partition("\n")[0] if entry.is_skill else entry.text


def _counts(memories: Searched, sought: Mapping[str, str]) -> dict[str, int]:
    """In how many memories each word is, up to more than is usual; 0 without an index."""
    index: Index | None = getattr(memories, "index", None)
    if index is None:
        return dict.fromkeys(sought, 0)
    return dict(zip(sought, index.frequencies(list(sought.values()), COMMON_ENTRIES + 1, scope=SCOPE), strict=True))


def _nearness(hits: Sequence[Hit]) -> list[float]:
    """How near each one's vector is, from 0 to 1: above what is usual among them, for what a cosine says hangs on the
    model."""
    known = sorted(hit.similarity for hit in hits if hit.similarity is not None)
    usual = known[len(known) // 2] if len(known) >= ENOUGH_VECTORS else 1.0
    return [
        max(0.0, (hit.similarity - usual) / (1 - usual)) if hit.similarity is not None and usual < 1 else 0.0
        for hit in hits
    ]


# What was said.


def _unsaid(entries: Sequence[Entry], path: Sequence[Node], question: str) -> list[Entry]:
    """Without those that came from messages of the branch, and those whose words are all in the question or in one of
    the user's own messages on it: copies of messages have other ids."""
    ids = {node.id for node in path}
    unsaid = [(entry, content_words(entry.text)) for entry in entries if ids.isdisjoint(entry.nodes)]
    for text in (question, *(node.text for node in path if node.role is Role.USER)):
        if unsaid:
            said = _said(text)
            unsaid = [(entry, words) for entry, words in unsaid if len(words) < 2 or not words <= said]
    return [entry for entry, _ in unsaid]


@lru_cache(maxsize=1024)
def _said(text: str) -> frozenset[str]:
    """The words of a message, as those of a memory are taken: folded, numbers as digits. Kept, for the messages of a
    branch are the same at each pause in the writing of a question."""
    return content_words(text)


# How much a memory belongs to a question


GIST = 1000
"""Characters at each end of a long question that are looked at."""
MOST_WORDS = 24
"""Words of a question that are searched for."""
RELEVANT = 1.05
"""The bar."""
NEAR_COSINE, VERY_NEAR_COSINE = 0.4, 0.5
"""How near a vector has to be to count as a word does, and to be enough without one."""

_UPPER = r"[A-ZÀ-ÖØ-Þ][\w'’]*"
_ODD = r"(?<![\w/:])[~.]{0,2}(?:/[\w.-]+){2,}|\b(?=\w*[^\W\d])(?=\w*\d)\w+"
_NAME = re.compile(rf"(?<=[\w,;)\]\"'’] ){_UPPER}|{_ODD}")
_CAPITAL = re.compile(rf"\b{_UPPER}|{_ODD}")
_GERMAN_NAME = re.compile(
    rf"\b[A-ZÄÖÜ][a-zäöüß]{{9,}}\b(?<!ung)"
    rf"(?<!ungen)(?<!eit)(?<!eiten)(?<!schaft)(?<!ion)(?<!ionen)|{_ODD}"
)
"""Compounds: long nouns that are no abstract ones."""


class Asked(Struct, frozen=True):
    """A question as it is searched with."""

    words: Mapping[str, str]
    """The stem of each content word, and the word as it was written, in the order of the question."""
    telling: frozenset[str]
    """The stems that tell what the question is about."""
    mine: frozenset[str]
    """The stems of what the user called their own."""
    names: frozenset[str]
    """The stems of what is written as a name."""
    capitals: frozenset[str]
    """The stems of what may be one: written with a capital letter, at the beginning of a sentence too."""
    careless: bool
    """Whether the user writes without capital letters, so that any word may be a name."""
    others: Mapping[str, str]
    """Of the telling stems the other number: of `katzen` that of `Katze`."""

    @property
    def sought(self) -> dict[str, str]:
        """The telling words, as they were written and in the other number, by their stems: what to search for."""
        return {
            stem: f"{word} {self.others.get(stem, '')}" for stem, word in self.words.items() if stem in self.telling
        }


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
    telling = frozenset(filter(is_telling, words))
    others = (
        {stem: other for stem in telling if is_telling(other := _other_number(stem))}
        if is_german(normalised(question))
        else {}
    )
    return Asked(
        words, telling, frozenset(mine), names_in(question), capitals_in(question), question == question.lower(), others
    )


def _other_number(stem: str) -> str:
    """The stem of a German word's plural, or of its singular: `Katzen` and `Katze`."""
    return stem.removesuffix("en") if stem.endswith("en") and len(stem) > 5 else f"{stem}en"


class Remembered(Struct, frozen=True):
    """A memory as it is compared with a question."""

    words: frozenset[str]
    """The stems of its text and of its page's name."""
    telling: float
    """How many of the text's words tell what it is about."""
    names: frozenset[str]
    capitals: frozenset[str]


@lru_cache(maxsize=2048)
def remembered(text: str, head: str = "") -> Remembered:
    """A memory's text, and the name of its page in words, as they are compared. The same ones come up again with every
    pause in the writing of a question."""
    words = content_words(text)
    telling = _number(filter(is_telling, words))
    return Remembered(words | content_words(head), telling, names_in(text), capitals_in(text))


def relevance(asked: Asked, memory: Remembered, frequent: frozenset[str], near: float = 0.0) -> float:
    """How much a memory belongs to the question; 0 below the bar. `frequent`: stems that stand in many memories.
    `near`: from 0 to 1, how close its vector is, more than those of other memories."""
    telling = memory.words & asked.telling | {stem for stem, other in asked.others.items() if other in memory.words}
    if not telling:
        return RELEVANT if near >= VERY_NEAR_COSINE else 0.0
    named = asked.names & memory.capitals | memory.names & (telling if asked.careless else asked.capitals)
    weight = sum((0.5 if word in frequent else 1.0) + (word in asked.mine) + (word in named) for word in telling)
    weight += 0.25 * len((memory.words & asked.words.keys()) - telling) + (near >= NEAR_COSINE)
    of_memory = min(1.0, len(telling) / max(1, memory.telling))
    of_question = min(1.0, len(telling) / max(1, _number(asked.telling)))
    score = weight * (0.5 + of_memory) * (0.5 + of_question)
    return score if score >= RELEVANT else 0.0


def is_german(text: str) -> bool:
    """Whether a normalised text is German, where every noun is written with a capital letter."""
    tokens = text.split()
    return sum(token in _GERMAN for token in tokens) > sum(token in _ENGLISH for token in tokens)


def is_telling(stem: str) -> bool:
    """Whether a word tells what a text is about: it is neither common nor a number or a letter alone."""
    return stem not in COMMON and not stem.isdigit() and len(stem) > 1 and FILLING.isdisjoint(stem)


def _number(stems: Iterable[str]) -> float:
    """How many words the stems are, about: of pairs of neighbouring characters every other one is a word."""
    return sum(0.5 if len(stem) == 2 and stem > "\u0e00" else 1.0 for stem in stems)


def names_in(text: str) -> frozenset[str]:
    """The stems of what is written as a name: with a capital letter that begins no sentence, or with a digit in it, or
    as a path of a file. A capital letter tells nothing in German, where every noun has one: there it is the long
    compounds."""
    return _stems(_GERMAN_NAME if is_german(normalised(text)) else _NAME, text)


def capitals_in(text: str) -> frozenset[str]:
    """The stems of what is written with a capital letter or as no word is, anywhere in the text."""
    return _stems(_GERMAN_NAME if is_german(normalised(text)) else _CAPITAL, text)


def _stems(pattern: re.Pattern[str], text: str) -> frozenset[str]:
    return content_words(" ".join(pattern.findall(text))) - NO_NAMES
