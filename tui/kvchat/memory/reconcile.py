"""Plan how the files and the stored state agree again, and which missing lines the user hardly deleted. Pure.

A text in a file that kvchat never knew is the user's, and the user wins. Absence is a deletion only where the page
could be read. When in doubt, a memory is kept: whole pages that are gone at once are a folder that is not there or is
another one; the newest lines that are gone from a page that was changed in other ways too were unknown to the editor
that saved it. A line deleted again after that stays deleted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.memory.entry import BY_HAND, PROFILE, Act, Change, Entry, Status
from kvchat.memory.pages.files import FOLDERS, UnusablePage
from kvchat.memory.pages.folder import Contents
from kvchat.memory.pages.page import MemoryPage
from kvchat.memory.similarity import content_words, first_that_says, normalised

HAND = "by hand, in the file"
RETYPED = 0.5
"""The likeness from which on a new line without an id is one that was there before, in other words."""


class LinePlace(Struct, frozen=True):
    """A line that was found."""

    entry: Entry
    """As the file has it."""
    changed: bool
    """Whether its text is not what kvchat wrote."""


class Put(Struct, frozen=True):
    """A line to be written, as a new one or over one of the `known` texts."""

    entry: Entry
    known: frozenset[str]


class Drop(Struct, frozen=True):
    """A line to be taken out, if its text is one of the `known`."""

    id: str
    page: str
    known: frozenset[str]
    moved: bool = False
    """Whether it moves to another page; it is taken out only after it was put there."""


class SyncPlan(Struct):
    """What is to be done."""

    changes: list[Change] = field(default_factory=list)
    """What the user did in the files."""
    missing: list[Entry] = field(default_factory=list)
    """Entries whose lines are gone: deleted, or held."""
    puts: list[Put] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    """Changes that need no writing: no file has to do with them, or the user took the line out."""
    seqs: dict[str, list[int]] = field(default_factory=dict)
    """By entry, the changes that are written when its puts and drops are done; some have none to do."""


def planned(
    outbox: Sequence[Change],
    stored: Mapping[str, Entry],
    found: Sequence[LinePlace],
    *,
    unreadable: Callable[[str], bool],
    now: float,
    session: str,
    held: Set[str] = frozenset(),
) -> SyncPlan:
    """The plan. `unreadable`: whether a page may be there, but says nothing now; `held`: pages on which nothing is
    deleted or written, though they are not there."""
    return _Comparison(outbox, stored, found, unreadable, now, session, held).plan()


class _Comparison:
    def __init__(
        self,
        outbox: Sequence[Change],
        stored: Mapping[str, Entry],
        found: Sequence[LinePlace],
        unreadable: Callable[[str], bool],
        now: float,
        session: str,
        held: Set[str],
    ) -> None:
        self._stored = stored
        self._held = held
        self._unreadable = unreadable
        self._now = now
        self._session = session
        self._waiting: dict[str, list[Change]] = defaultdict(list)
        for change in outbox:
            self._waiting[change.after.id].append(change)
        self._places: dict[str, list[LinePlace]] = defaultdict(list)
        for place in found:
            self._places[place.entry.id].append(place)
        self._plan = SyncPlan()
        self._gone: list[Entry] = []
        self._new: list[LinePlace] = []

    def plan(self) -> SyncPlan:
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
            return  # nobody knows what is there now: it waits
        places = self._places.get(id, [])
        if not places:
            absent = changes[0].before is None or len(live) < len(versions)
            if wanted is None:
                self._plan.settled += seqs
            elif absent:
                self._put(wanted, live, seqs)
            else:  # it was in the file all the time: the user took it out
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
        """Check an entry that is in the files and has nothing to be written."""
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

    def _by_hand(self, stored: Entry, place: LinePlace) -> None:
        """The file has it otherwise: it is as the file has it."""
        there = place.entry
        after = replace(
            stored,
            text=there.text,
            kind=there.kind,
            page=there.page,
            status=Status.LIVE,
            superseded_by="",
            edited=stored.edited or stored.text != there.text,
        )
        if after == stored:
            return
        act = Act.EDITED if stored.text != there.text else Act.MOVED if stored.page != there.page else Act.EDITED
        if stored.status is Status.PENDING:
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
        asked = [entry for entry in self._stored.values() if entry.status is Status.PENDING]
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
    return there.text == known.text and there.page == known.page and (there.kind is known.kind or there.by == BY_HAND)


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
        rare = sorted((self._with.get((new.page, word), {}) for word in words or ("",)), key=len)[: len(words) // 2 + 1]
        near = {id: _likeness(self._words[id], words) for entries in rare for id in entries}
        best = min(near, key=lambda id: (-near[id], self._order[id]), default=None)
        return self._left[best] if best is not None and near[best] >= RETYPED else None

    def left(self) -> list[Entry]:
        return list(self._left.values())


# Lines that are gone


MANY = 5
"""Memories of two pages or more from which on they are not taken for deleted with them."""
RECENT_SECONDS = 600.0
"""How long after kvchat wrote a line an editor may still have the page without it."""
PUT_BACK = "put back: the page was saved by an editor that did not have this line yet"
NAMED = 3
"""Pages that a sentence names."""


GONE = "a heading, as # gone"
"""The only text in a page that confirms that the user deleted its lines. An empty page may be damage."""


def without_emptied(contents: Contents, stored: Mapping[str, Entry], waiting: Collection[str]) -> Contents:
    """The contents of a folder, where an empty page that had lines counts as one that cannot be read. `waiting`: the
    entries whose lines are not written yet."""
    placed = {line.entry.id for page in contents.pages.values() for line in page.entries}
    had = Counter(
        entry.page
        for id, entry in stored.items()
        if entry.status is Status.LIVE and id not in placed and id not in waiting
    )
    emptied = [
        name for name in had if name in contents.pages and not contents.pages[name].text.strip("\ufeff \t\r\n\0")
    ]
    problems = [
        UnusablePage(
            name,
            0,
            f"It is empty, and {_them(had[name])} stood in it. Put the lines back; or, if you deleted them, delete the "
            "file, or use `kvchat memory delete`. Until then nothing of it is forgotten.",
        )
        for name in emptied
    ]
    pages = {name: page for name, page in contents.pages.items() if name not in emptied}
    return replace(contents, pages=pages, problems=(*contents.problems, *problems))


def is_another(
    gone: Sequence[Entry], stored: Mapping[str, Entry], pages: Mapping[str, MemoryPage], unread: Collection[str]
) -> bool:
    """Whether a folder is not the one in which the lines were that are `gone`: no line in it is known, and no page by
    its name or many lines of several. `unread`: what is there and could not be read. One that holds only a heading is
    the user's word that it is."""
    names = {entry.page for entry in gone}
    if not gone or any(_is_meant(pages, name) for name in (PROFILE, *names)):
        return False
    if any(entry.page in unread for entry in stored.values()) or any(
        line.entry.id in stored for page in pages.values() for line in page.entries
    ):
        return False
    return (len(names) > 1 and len(gone) >= MANY) or not any(entry.page in pages for entry in stored.values())


def told_of_another(root: Path, gone: Sequence[Entry]) -> str:
    """The sentence for it."""
    return (
        f"{root} seems to be another folder: {_them(len(gone))} should stand there, and none does. Put the pages "
        f"there, or set memory.folder back; or, if you deleted them, make one of their pages hold only {GONE}. "
        "Until then nothing is read or written there, and nothing is forgotten."
    )


def held(
    gone: Sequence[Entry],
    waiting: Iterable[Entry],
    pages: Mapping[str, MemoryPage],
    before: Set[str],
    *,
    folders: Collection[str],
) -> frozenset[str]:
    """The pages whose memories are not to be taken for deleted, of those whose lines are `gone`. `waiting`: those that
    are deleted, but for their lines; `before`: the pages that were held until now; `folders`: those that hold pages
    and are there. A page that holds only a heading is the user's word that it was meant; such a profile, for all."""
    if not gone or _is_meant(pages, PROFILE):
        return frozenset()
    lost = [entry for entry in (*gone, *waiting) if entry.page not in pages]
    absent = frozenset(entry.page for entry in lost)
    no_folder = any(name.partition("/")[0] in FOLDERS and name.partition("/")[0] not in folders for name in absent)
    several = len(absent) > 1 and len(lost) >= MANY
    return absent if no_folder or several else absent & before


def told_of_held(root: Path, entries: Sequence[Entry]) -> str:
    """The sentence for memories of pages that are held."""
    names = sorted({entry.page for entry in entries})
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return (
        f"{_them(len(entries))} of {', '.join(names[:NAMED])}{more} cannot be found: these pages are not in {root} any "
        f"more. Put them back; or, if you deleted them, put a file that holds only {GONE} in the place of each, or use "
        "`kvchat memory delete`. Until then nothing of them is forgotten."
    )


def _is_meant(pages: Mapping[str, MemoryPage], name: str) -> bool:
    lines = [line for line in pages[name].text.splitlines() if line.strip("\ufeff \t")] if name in pages else []
    return len(lines) == 1 and lines[0].lstrip("\ufeff").startswith("# ")


def _them(count: int) -> str:
    return "1 memory" if count == 1 else f"{count} memories"


def unknown_to_the_editor(
    changes: Sequence[Change],
    recent: Sequence[Change],
    pages: Mapping[str, MemoryPage],
    before: Mapping[str, MemoryPage],
) -> set[str]:
    """The ids of the deletions among `changes` that an editor made by saving a text from before the lines were
    written. `recent`: the changes of the last RECENT_SECONDS, newest first; `before`: the pages as they were."""
    written: dict[str, float] = {}
    for change in recent:
        if change.why == PUT_BACK:
            written[change.after.id] = 0.0
        elif change.why != HAND and change.after.status is Status.LIVE:
            written.setdefault(change.after.id, change.at)
    found: set[str] = set()
    deleted: dict[str, set[str]] = defaultdict(set)
    for change in changes:
        if change.act is Act.DELETED and change.after.page in pages:
            deleted[change.after.page].add(change.after.id)
    for name, ids in deleted.items():
        page = pages[name]
        seen = max((written.get(line.entry.id, 0.0) for line in page.entries), default=0.0)
        late = {id for id in ids if written.get(id, 0.0) > seen}
        if late and page.entries and (ids - late or _changed_otherwise(name, ids, changes, page, before.get(name))):
            found |= late
    return found


def _changed_otherwise(
    name: str, ids: Set[str], changes: Iterable[Change], page: MemoryPage, before: MemoryPage | None
) -> bool:
    """Whether the user did more to a page than to take these lines out."""
    for change in changes:
        if change.after.id not in ids and name in (change.after.page, change.before.page if change.before else ""):
            return True
    if before is None:
        return False
    return before.edited(dict.fromkeys(ids)).text.split() != page.text.split()


def put_back(deleted: Change) -> list[Change]:
    """What is stored in the place of that deletion: it, and that it is taken back."""
    assert deleted.before is not None
    return [deleted, replace(deleted, act=Act.RESTORED, before=deleted.after, after=deleted.before, why=PUT_BACK)]
