"""Consolidate memories that repeat or contradict each other, and pages that grow too long.

A model only points at pairs and proposes shorter lines; words and dates decide what becomes of them. Two memories that
differ in a number, a sign, a negation, a name or the order of their words are two. Of those that say the same, the
user's own one stays, then the one of the profile, then the newer. What is superseded stays in the history, and what the
user wrote stays as it is.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kvchat.memory.entry import PROFILE, Act, Change, Entry, Kind, Status, new_id
from kvchat.memory.learning.answers import objects, values
from kvchat.memory.learning.extraction import listed
from kvchat.memory.learning.grounding import alike, clauses_of
from kvchat.memory.learning.phrases import RELATION, TURNING, WEAKENING, denials, denies, meanings
from kvchat.memory.learning.vetting import LONGEST_FACT, caution, objection, tidied
from kvchat.memory.similarity import accented, folded, numbers, signs, words
from kvchat.memory.similarity import says_the_same as equal
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.message import Message, Role, system_message

SHOWN = 40
"""Memories of one request."""
PAGE_TOKENS = 1500
"""The size from which on a page's lines are to be made shorter."""
BYTES_PER_TOKEN = 4
MOST_PAIRS, MOST_LINES = 8, 4
OVERLAP = 0.2
"""The likeness from which on two memories can contradict each other."""
REPEATS = 0.5
"""And from which on they can say the same in other words."""
KEPT = 0.6
"""The share of the words of each line that the shorter one has to keep."""


def duplicates(entries: Sequence[Entry], now: float | None = None, session: str = "") -> list[Change]:
    """The changes that leave one of those entries that say the same. `now` in seconds since the epoch."""
    return repeated(entries, time.time() if now is None else now, session)


def over_budget(entries: Sequence[Entry], tokens: int = PAGE_TOKENS) -> bool:
    """Whether the lines of a page have more than about `tokens` tokens."""
    size = sum(len(entry.text.encode()) + 2 for entry in entries if entry.status is Status.LIVE)
    return size > tokens * BYTES_PER_TOKEN


# -- what is asked


def request(entries: Sequence[Entry], tokens: int = PAGE_TOKENS) -> tuple[list[Message], dict[str, Any]] | None:
    """The messages of a request about the entries of one page, and the JSON schema of the answer. None when there is
    nothing to ask."""
    shown = _shown(entries)
    if len(shown) < 2 or next(iter(shown.values())).page == PROFILE:
        return None
    shorten = over_budget(entries, tokens)
    lines = "\n".join(f"{short}: {' '.join(entry.text.split())}" for short, entry in shown.items())
    task = (
        "These are notes about a user, oldest first. Find pairs where the newer note says the same as the "
        'older ("repeats") or shows that the older is no longer true ("contradicts"). Often there are none: '
        '{"pairs":[]}. Notes about different people or things are no pair.'
    )
    shape = '{"pairs":[{"older":"k1","newer":"k2","is":"repeats|contradicts"}]'
    if shorten:
        task += (
            ' Then, under "shorter", put notes on one subject into one line that keeps every name and number, in '
            "the notes' own words."
        )
        shape += ',"shorter":[{"of":["k1","k2"],"text":""}]'
    block = ContextBlock("passage", "notes", lines)
    return [system_message("You tidy notes."), Message(Role.USER, f"{task}\nOnly JSON: {shape}}}", (block,))], _schema(
        list(shown), shorten
    )


def _schema(ids: list[str], shorten: bool) -> dict[str, Any]:
    id = {"type": "string", "enum": ids}
    fields = {
        "pairs": listed(
            {"older": id, "newer": id, "is": {"type": "string", "enum": ["repeats", "contradicts"]}}, MOST_PAIRS
        )
    }
    if shorten:
        fields["shorter"] = listed(
            {
                "of": {"type": "array", "items": id, "minItems": 2, "maxItems": 6},
                "text": {"type": "string", "minLength": 1, "maxLength": LONGEST_FACT},
            },
            MOST_LINES,
        )
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _shown(entries: Sequence[Entry]) -> dict[str, Entry]:
    """The entries that a request shows, by short ids, oldest first: of a long page the newest, and for each those
    that have most in common with it."""
    live = [entry for entry in entries if entry.status is Status.LIVE]
    live.sort(key=lambda entry: (entry.created, entry.id))
    if len(live) > SHOWN:
        meant = {entry.id: set(meanings(entry.text)) for entry in live}
        chosen = {entry.id for entry in live[-SHOWN // 4 :]}
        for new in live[-SHOWN // 4 :]:
            rest = (entry for entry in reversed(live) if entry.id not in chosen)
            chosen |= {entry.id for entry in nlargest(3, rest, key=lambda old: _share(meant[old.id], meant[new.id]))}
        live = [entry for entry in live if entry.id in chosen]
    return {f"k{i}": entry for i, entry in enumerate(live, 1)}


def _share(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other) if one | other else 0.0


# -- what is believed


class _Consolidator(Struct):
    """The changes so far; no entry is in two of them."""

    shown: dict[str, Entry]
    now: float
    session: str
    changes: list[Change]
    used: set[str]

    def pair(self, one: Any) -> None:
        fields = one if isinstance(one, dict) else {}
        entries = [self.shown.get(id) for id in (fields.get("older"), fields.get("newer")) if isinstance(id, str)]
        if len(entries) != 2 or entries[0] is None or entries[1] is None or entries[0].id == entries[1].id:
            return
        older, newer = sorted((entries[0], entries[1]), key=lambda entry: entry.created)
        if {older.id, newer.id} & self.used or older.is_users_own:
            return
        if fields.get("is") == "contradicts" and contradict(older, newer):
            self._take([superseded(Act.CORRECTED, older, newer, self.now, self.session, newer.text)])
        elif fields.get("is") == "repeats" and _repeat(older, newer):
            self._take(merged(newer, [older], self.now, self.session))

    def line(self, one: Any) -> None:
        fields = one if isinstance(one, dict) else {}
        given = fields.get("of")
        ids = dict.fromkeys(id for id in given if isinstance(id, str)) if isinstance(given, list) else {}
        old = [self.shown[id] for id in ids if id in self.shown]
        text = fields.get("text")
        if len(old) < 2 or len(old) != len(ids) or not isinstance(text, str) or {entry.id for entry in old} & self.used:
            return
        text = tidied(text)
        if any(entry.is_users_own or entry.page != old[0].page for entry in old) or not _sums_up(text, old):
            return
        newest = max(old, key=lambda entry: entry.created)
        kinds = {entry.kind for entry in old}
        new = Entry(
            new_id(),
            newest.kind if len(kinds) == 1 else Kind.FACT,
            text,
            newest.page,
            newest.created,
            confidence=min((e.confidence for e in old if e.confidence is not None), default=None),
            conversation=newest.conversation,
            nodes=united_nodes([newest, *old]),
            by=newest.by,
        )
        self._take(
            [
                Change(Act.NOTED, None, new, self.now, self.session, f"sums up {len(old)} memories"),
                *(superseded(Act.SUMMARISED, entry, new, self.now, self.session, text) for entry in old),
            ]
        )

    def _take(self, changes: list[Change]) -> None:
        self.changes += changes
        self.used |= {change.after.id for change in changes} | {change.after.superseded_by for change in changes}


def checked(
    answer: str, entries: Sequence[Entry], now: float, session: str = "", tokens: int = PAGE_TOKENS
) -> list[Change]:
    """The changes of an answer that hold. `entries` are those that were asked about. Never raises, whatever the
    answer."""
    shown = _shown(entries)
    if len(shown) < 2 or next(iter(shown.values())).page == PROFILE:
        return []
    consolidator = _Consolidator(shown, now, session, [], set())
    found = values(answer)
    for value in found:
        pairs = objects(value, ("pairs",)) or ([value] if isinstance(value, dict) and "older" in value else [])
        for one in pairs[:MOST_PAIRS]:
            consolidator.pair(one)
    if over_budget(entries, tokens):
        for value in found:
            lines = objects(value, ("shorter",)) or ([value] if isinstance(value, dict) and "of" in value else [])
            for one in lines[:MOST_LINES]:
                consolidator.line(one)
    return consolidator.changes


def contradict(older: Entry, newer: Entry) -> bool:
    """Whether the newer of two memories can be the end of the older: of the same kind, of the same person or thing,
    with words in common, and not the same."""
    one, other = set(meanings(older.text)), set(meanings(newer.text))
    shared = {word for word in one & other if word != "<likes>"}
    if older.created >= newer.created or older.kind is not newer.kind or not shared or _share(one, other) < OVERLAP:
        return False
    if set(RELATION.findall(folded(older.text))) != set(RELATION.findall(folded(newer.text))):
        return False
    if not (one < other or other < one) or differ(older.text, newer.text):
        return _subject(older.text) == _subject(newer.text)
    return False


def _repeat(older: Entry, newer: Entry) -> bool:
    one, other = set(meanings(older.text)), set(meanings(newer.text))
    return _share(one, other) >= REPEATS and not differ(older.text, newer.text) and _in_order(older.text, newer.text)


def _in_order(one: str, other: str) -> bool:
    """Whether the words that two texts share stand in the same order: `tea over coffee` is not `coffee over tea`."""
    a, b = meanings(one), meanings(other)
    places = [b.index(word) for word in dict.fromkeys(a) if word in b]
    return all(before < after for before, after in pairwise(places))


def _subject(text: str) -> str:
    """Whom a text is about: its first word, or the user where that says what they do or are."""
    first = folded(text).split()[0].strip(".,;:'\"") if text.split() else ""
    words = meanings(first)
    does = first.endswith(("s", "ed", "ing", "'m", "’m")) or first in ("i", "we", "no", "not", "never")
    return "" if does or not words or words[0].startswith("<") else words[0]


def _sums_up(text: str, old: Sequence[Entry]) -> bool:
    """Whether a line can take the place of several: it has nothing that is not in them, keeps their names, numbers and
    negations and most of their words, and is shorter."""
    if objection(text) or caution(text, Kind.FACT) or len(text) >= sum(len(entry.text) for entry in old):
        return False
    source = " ".join(entry.text for entry in old)
    known, meant = set(meanings(source)), set(meanings(text))
    if not meant or any(not any(alike(word, other) for other in known) for word in meant):
        return False
    if numbers(text) != numbers(source) or not capitals(source) <= meant:
        return False
    if any(len(meant & set(meanings(entry.text))) < KEPT * len(set(meanings(entry.text))) for entry in old):
        return False
    return all(_same_sign(part.meanings, part.denies, old) for part in clauses_of(text)) and (
        any(denies(folded(entry.text)) for entry in old) == any(part.denies for part in clauses_of(text))
    )


def _same_sign(words: frozenset[str], denied: bool, old: Sequence[Entry]) -> bool:
    clauses = [clause for entry in old for clause in clauses_of(entry.text)]
    most = max((len(words & clause.meanings) for clause in clauses), default=0)
    return not most or any(clause.denies == denied for clause in clauses if len(words & clause.meanings) == most)


# What says the same


LIKENESS = 0.8
"""Shared words over all of them, from which on one word more or less makes no other memory."""
NODES = 20
"""Sources that one memory keeps."""


def repeated(entries: Sequence[Entry], now: float, session: str) -> list[Change]:
    """The changes that leave one of each: the others are superseded by it, and it has their sources too."""
    live = sorted((entry for entry in entries if entry.status is Status.LIVE), key=_rank)
    by_words: dict[tuple[str, ...], list[Entry]] = defaultdict(list)
    by_less: dict[tuple[str, ...], list[Entry]] = defaultdict(list)
    staying: dict[str, list[Entry]] = {}
    for entry in live:
        order = meanings(entry.text)
        less = (
            [order[:i] + order[i + 1 :] for i in range(len(order))] if len(order) - 1 >= LIKENESS * len(order) else []
        )
        near = [*by_words[order], *by_less[order], *(found for short in less for found in by_words[short])]
        keeper = next((found for found in near if says_the_same(found.text, entry.text)), None)
        if keeper is not None and not entry.is_users_own:
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
    if united != keeper.nodes and not keeper.is_users_own:
        after = replace(keeper, nodes=united, conversation=keeper.conversation or others[0].conversation)
        changes.append(Change(Act.MERGED, keeper, after, now, session, "its sources too"))
    return changes


def superseded(act: Act, old: Entry, by: Entry, now: float, session: str, why: str) -> Change:
    return Change(act, old, replace(old, status=Status.SUPERSEDED, superseded_by=by.id), now, session, why)


def united_nodes(entries: Iterable[Entry]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node for entry in entries for node in entry.nodes))[:NODES]


def _rank(entry: Entry) -> tuple[bool, bool, float, str]:
    return not entry.is_users_own, entry.page != PROFILE, -entry.created, entry.id


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
    at = next((i for i in range(len(more)) if more[:i] + more[i + 1 :] == min(a, b, key=len)), None)
    return at is not None and more[at] not in capitals(long) and not WEAKENING.search(_surplus(long, short))


def _surplus(long: str, short: str) -> str:
    known = set(words(short))
    return " ".join(word for word in words(long) if word not in known)


def differ(one: str, other: str) -> bool:
    """Whether two texts differ in a number, a sign, an accent, a negation, a name, or a small word that turns what is
    said around."""
    a, b = folded(one), folded(other)
    return (
        numbers(one) != numbers(other)
        or signs(one) != signs(other)
        or accented(one) != accented(other)
        or denials(a) != denials(b)
        or TURNING.findall(a) != TURNING.findall(b)
        or bool(WEAKENING.search(a)) != bool(WEAKENING.search(b))
        or bool(capitals(one) ^ capitals(other))
    )


def capitals(text: str) -> frozenset[str]:
    """The words with a capital letter, but the first; as they are compared."""
    later = [word for word in text.split()[1:] if any(char.isupper() for char in word[:2]) and word not in ("I", "I'm")]
    return frozenset(meanings(" ".join(later)))
