"""What must happen so that the files and what is known of them agree again. Pure.

The rule: in a line of a file, a text that kvchat never knew is the person's, and the person wins. Absence is a deletion
only where the page could be read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from kvchat.memory.entry import BY_HAND, Act, Change, Entry, Status
from kvchat.memory.sameness import first_that_says
from kvchat.memory.words import content_words, normalised

HAND = "by hand, in the file"
RETYPED = 0.5
"""The likeness from which on a new line without an id is one that was there before, in other words."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line that was found."""

    entry: Entry
    """As the file has it."""
    changed: bool
    """Whether its text is not what kvchat wrote."""


@dataclass(frozen=True, slots=True)
class Put:
    """A line to be written, anew or over one of the `known` texts."""

    entry: Entry
    known: frozenset[str]


@dataclass(frozen=True, slots=True)
class Drop:
    """A line to be taken out, if its text is one of the `known`."""

    id: str
    page: str
    known: frozenset[str]
    moved: bool = False
    """Whether it stands on another page then; it is taken out only after it was put there."""


@dataclass(slots=True)
class Plan:
    """What is to be done."""

    changes: list[Change] = field(default_factory=list)
    """What the person did in the files."""
    missing: list[Entry] = field(default_factory=list)
    """Entries whose lines are gone: deleted, or held."""
    puts: list[Put] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    """Changes that need no writing: no file has to do with them, or the person took the line out."""
    seqs: dict[str, list[int]] = field(default_factory=dict)
    """By entry, the changes that are written when its puts and drops are done; some have none to do."""


def planned(outbox: Sequence[Change], stored: Mapping[str, Entry], found: Sequence[Place], *,
            unreadable: Callable[[str], bool], now: float, session: str,
            held: Set[str] = frozenset()) -> Plan:
    """The plan. `unreadable`: whether a page may be there, but says nothing now; `held`: pages on which nothing is
    deleted or written, though they are not there."""
    return _Comparison(outbox, stored, found, unreadable, now, session, held).plan()


class _Comparison:
    def __init__(self, outbox: Sequence[Change], stored: Mapping[str, Entry], found: Sequence[Place],
                 unreadable: Callable[[str], bool], now: float, session: str, held: Set[str]) -> None:
        self._stored = stored
        self._held = held
        self._unreadable = unreadable
        self._now = now
        self._session = session
        self._waiting: dict[str, list[Change]] = defaultdict(list)
        for change in outbox:
            self._waiting[change.after.id].append(change)
        self._places: dict[str, list[Place]] = defaultdict(list)
        for place in found:
            self._places[place.entry.id].append(place)
        self._plan = Plan()
        self._gone: list[Entry] = []
        self._new: list[Place] = []

    def plan(self) -> Plan:
        for id in self._waiting:
            self._write(id)
        for id, entry in self._stored.items():
            if entry.status is Status.LIVE and id not in self._waiting and id not in self._places:
                self._missing(entry)
        for id in self._places:
            if id not in self._waiting:
                self._look_at(id)
        self._pair()
        return self._plan

    def _write(self, id: str) -> None:
        """An entry with changes that are in no file yet."""
        changes, stored = self._waiting[id], self._stored[id]
        wanted = stored if stored.status is Status.LIVE else None
        versions = [*([changes[0].before] if changes[0].before else []), *(change.after for change in changes), stored]
        live = [version for version in versions if version.status is Status.LIVE]
        seqs = [change.seq for change in changes]
        pages = {version.page for version in live}
        if any(page in self._held or self._unreadable(page) for page in pages):
            return  # nobody knows what stands there now: it waits
        places = self._places.get(id, [])
        if not places:
            absent = changes[0].before is None or len(live) < len(versions)
            if wanted is None:
                self._plan.settled += seqs
            elif absent:
                self._put(wanted, live, seqs)
            else:  # it stood in the file all the time: the person took it out
                self._plan.settled += seqs
                self._missing(stored)
            return
        ours = any(_is_known(place.entry, live) for place in places)
        theirs = None if ours else places[0]
        kept = theirs.entry.page if theirs else wanted.page if wanted else ""
        for page in {place.entry.page for place in places} - {kept}:
            self._plan.drops.append(Drop(id, page, _texts(live), moved=bool(kept)))
        self._plan.seqs[id] = seqs
        if theirs is not None:
            self._by_hand(stored, theirs)
        elif wanted is not None and not (wanted.edited and any(_same_line(p.entry, wanted) for p in places)):
            self._put(wanted, live, seqs)

    def _put(self, wanted: Entry, live: Sequence[Entry], seqs: list[int]) -> None:
        self._plan.puts.append(Put(wanted, _texts(live)))
        self._plan.seqs[wanted.id] = seqs

    def _look_at(self, id: str) -> None:
        """An entry that stands in the files and has nothing to be written."""
        places, stored = self._places[id], self._stored.get(id)
        if stored is None:
            self._new.append(places[0])
        elif stored.status is not Status.LIVE:
            if not self._unreadable(stored.page):
                self._by_hand(stored, places[0])
        elif not any(_same_line(place.entry, stored) for place in places):
            here = next((place for place in places if place.entry.page == stored.page), places[0])
            if here.entry.page == stored.page or not self._unreadable(stored.page):
                self._by_hand(stored, here)

    def _by_hand(self, stored: Entry, place: Place) -> None:
        """The file has it otherwise: it is as the file has it."""
        there = place.entry
        after = replace(stored, text=there.text, kind=there.kind, page=there.page, status=Status.LIVE,
                        superseded_by="", edited=stored.edited or stored.text != there.text)
        if after == stored:
            return
        act = Act.EDITED if stored.text != there.text else Act.MOVED if stored.page != there.page else Act.EDITED
        if stored.status is Status.PROPOSED:
            act = Act.ACCEPTED
        elif stored.status is not Status.LIVE and stored.text == there.text:
            act = Act.ADDED
        self._note(act, stored, after)

    def _missing(self, entry: Entry) -> None:
        if not self._unreadable(entry.page):
            self._gone.append(entry)

    def _pair(self) -> None:
        """Lines without an id get another one when they are retyped or moved: they are not deleted, but replaced."""
        gone = _Gone(self._gone)
        asked = [entry for entry in self._stored.values() if entry.status is Status.PROPOSED]
        for place in self._new:
            new = place.entry
            if new.by == BY_HAND and (old := gone.before(new)) is not None:
                act = Act.EDITED if old.page == new.page else Act.MOVED
                self._note(act, old, replace(old, status=Status.SUPERSEDED, superseded_by=new.id))
                new = replace(new, kind=old.kind, created=old.created, conversation=old.conversation, nodes=old.nodes)
            self._note(Act.ADDED, None, replace(new, status=Status.LIVE, edited=place.changed))
            if asked and (said := first_that_says(new.text, asked)) is not None:
                asked.remove(said)
                self._note(Act.ACCEPTED, said, replace(said, status=Status.SUPERSEDED, superseded_by=new.id))
        self._plan.missing = gone.left()
        for old in (entry for entry in self._plan.missing if entry.page not in self._held):
            self._note(Act.DELETED, old, replace(old, status=Status.DELETED))

    def _note(self, act: Act, before: Entry | None, after: Entry) -> None:
        self._plan.changes.append(Change(act, before, after, self._now, self._session, HAND))


def _is_known(there: Entry, versions: Sequence[Entry]) -> bool:
    return any(_same_line(there, version) for version in versions)


def _same_line(there: Entry, known: Entry) -> bool:
    """Whether the line in the file is what is known; a line by hand has no kind of its own."""
    return (there.text == known.text and there.page == known.page
            and (there.kind is known.kind or there.by == BY_HAND))


def _texts(versions: Sequence[Entry]) -> frozenset[str]:
    return frozenset(version.text for version in versions)


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0


class _Gone:
    """Entries whose lines are gone, to be found again in new ones."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._left = {entry.id: entry for entry in entries}
        self._order = {id: number for number, id in enumerate(self._left)}
        self._same: dict[str, list[Entry]] = defaultdict(list)
        self._words = {entry.id: content_words(entry.text) for entry in entries}
        self._with: dict[tuple[str, str], dict[str, Entry]] = defaultdict(dict)
        """By page and content word; those without any have the empty one."""
        for entry in entries:
            self._same[normalised(entry.text)].append(entry)
            for word in self._words[entry.id] or ("",):
                self._with[entry.page, word][entry.id] = entry

    def before(self, new: Entry) -> Entry | None:
        """The entry that `new` was: one with these words on any page, best its own, or one with most of them on its
        own. It is gone no more."""
        same = [old for old in self._same.get(normalised(new.text), ()) if old.id in self._left]
        best = min(same, key=lambda old: old.page != new.page, default=None) or self._retyped(new)
        if best is not None:
            del self._left[best.id]
            for word in self._words[best.id] or ("",):
                del self._with[best.page, word][best.id]
        return best

    def _retyped(self, new: Entry) -> Entry | None:
        """The entry of its page that is most like `new`. One that has half of its words has one of any half of them
        and one more: only those with its rarest are looked at."""
        words = content_words(new.text)
        rare = sorted((self._with.get((new.page, word), {}) for word in words or ("",)), key=len)[:len(words) // 2 + 1]
        near = {id: _likeness(self._words[id], words) for entries in rare for id in entries}
        best = min(near, key=lambda id: (-near[id], self._order[id]), default=None)
        return self._left[best] if best is not None and near[best] >= RETYPED else None

    def left(self) -> list[Entry]:
        return list(self._left.values())
