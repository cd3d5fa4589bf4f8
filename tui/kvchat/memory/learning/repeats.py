"""Which memories say the same as another, by their words alone.

The rule: two that differ in a number, a sign, a negation, a name or the order of their words are two. Of those that
say the same the own one of the person stays, then the one of the profile, then the newer; where both are the
person's, both stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kvchat.memory.entry import BY_HAND, BY_YOU, PROFILE, Act, Change, Entry, Status
from kvchat.memory.learning.phrases import TURNING, WEAKENING, denials
from kvchat.memory.learning.said import meanings
from kvchat.memory.sameness import accented, signs
from kvchat.memory.sameness import says_the_same as equal
from kvchat.memory.words import folded, numbers, words

LIKENESS = 0.8
"""Shared words over all of them, from which on one word more or less makes no other memory."""
NODES = 20
"""Sources that one memory keeps."""


def is_the_persons(entry: Entry) -> bool:
    """Whether the words are the person's: kvchat changes none of these by itself."""
    return entry.edited or entry.by in (BY_HAND, BY_YOU)


def repeated(entries: Sequence[Entry], now: float, session: str) -> list[Change]:
    """The changes that leave one of each: the others are superseded by it, and it has their sources too."""
    live = sorted((entry for entry in entries if entry.status is Status.LIVE), key=_rank)
    by_words: dict[tuple[str, ...], list[Entry]] = defaultdict(list)
    by_less: dict[tuple[str, ...], list[Entry]] = defaultdict(list)
    staying: dict[str, list[Entry]] = {}
    for entry in live:
        order = meanings(entry.text)
        less = [order[:i] + order[i + 1:] for i in range(len(order))] if len(order) - 1 >= LIKENESS * len(order) else []
        near = [*by_words[order], *by_less[order], *(found for short in less for found in by_words[short])]
        keeper = next((found for found in near if says_the_same(found.text, entry.text)), None)
        if keeper is not None and not is_the_persons(entry):
            staying[keeper.id].append(entry)
            continue
        staying[entry.id] = []
        by_words[order].append(entry)
        for short in less:
            by_less[short].append(entry)
    known = {entry.id: entry for entry in live}
    changes: list[Change] = []
    for id, others in staying.items():
        changes += merged(known[id], others, now, session)
    return changes


def merged(keeper: Entry, others: Sequence[Entry], now: float, session: str) -> list[Change]:
    """The changes by which `keeper` takes the place of the others, which say the same."""
    changes = [superseded(Act.MERGED, other, keeper, now, session, "says the same") for other in others]
    united = united_nodes((keeper, *others))
    if united != keeper.nodes and not is_the_persons(keeper):
        after = replace(keeper, nodes=united, conversation=keeper.conversation or others[0].conversation)
        changes.append(Change(Act.MERGED, keeper, after, now, session, "its sources too"))
    return changes


def superseded(act: Act, old: Entry, by: Entry, now: float, session: str, why: str) -> Change:
    return Change(act, old, replace(old, status=Status.SUPERSEDED, superseded_by=by.id), now, session, why)


def united_nodes(entries: Iterable[Entry]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node for entry in entries for node in entry.nodes))[:NODES]


def _rank(entry: Entry) -> tuple[bool, bool, float, str]:
    return not is_the_persons(entry), entry.page != PROFILE, -entry.created, entry.id


def says_the_same(one: str, other: str) -> bool:
    """Whether two texts say the same: in the same words, or but for one that changes nothing."""
    if equal(one, other):
        return True
    a, b = meanings(one), meanings(other)
    if not a or not b or differ(one, other):
        return False
    if a == b:
        return True
    long, short = (one, other) if len(a) > len(b) else (other, one)
    more = max(a, b, key=len)
    if len(more) != min(len(a), len(b)) + 1 or len(more) - 1 < LIKENESS * len(more):
        return False
    at = next((i for i in range(len(more)) if more[:i] + more[i + 1:] == min(a, b, key=len)), None)
    return at is not None and more[at] not in capitals(long) and not WEAKENING.search(_surplus(long, short))


def _surplus(long: str, short: str) -> str:
    known = set(words(short))
    return " ".join(word for word in words(long) if word not in known)


def differ(one: str, other: str) -> bool:
    """Whether two texts differ in a number, a sign, an accent, a negation, a name, or a small word that turns what is
    said around."""
    a, b = folded(one), folded(other)
    return (numbers(one) != numbers(other) or signs(one) != signs(other) or accented(one) != accented(other)
            or denials(a) != denials(b) or TURNING.findall(a) != TURNING.findall(b)
            or bool(WEAKENING.search(a)) != bool(WEAKENING.search(b)) or bool(capitals(one) ^ capitals(other)))


def capitals(text: str) -> frozenset[str]:
    """The words with a capital letter, but the first; as they are compared."""
    later = [word for word in text.split()[1:] if any(char.isupper() for char in word[:2]) and word not in ("I", "I'm")]
    return frozenset(meanings(" ".join(later)))
