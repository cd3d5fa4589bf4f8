"""Plan how the stored state follows the files, and which missing lines the user hardly deleted. Pure.

The files are the truth. A line that is gone was deleted, with or without its page, but where that is in doubt: its page
cannot be read or is empty, many are gone at once, or nothing that is known is there any more. Then the memory is kept.
The newest lines that are gone from a page that was changed in other ways too were unknown to the editor that saved it;
one that is deleted again after that stays deleted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.memory.entry import BY_HAND, PROFILE, Act, Change, Entry, Status
from kvchat.memory.pages.files import FOLDERS
from kvchat.memory.pages.folder import Contents
from kvchat.memory.pages.page import MemoryPage, PageLine
from kvchat.memory.similarity import content_words, first_that_says, normalised

HAND = "by hand, in the file"
RETYPED = 0.5
"""The likeness from which on a new line without an id is one that was there before, in other words."""


class SyncPlan(Struct):
    """What the user did in the files."""

    changes: list[Change] = field(default_factory=list)
    held: list[Entry] = field(default_factory=list)
    """Entries whose lines are gone and that are kept."""
    is_another: bool = False
    """Whether the folder is not the one that is known: nothing of it counts."""


def planned(
    stored: Mapping[str, Entry],
    contents: Contents,
    *,
    now: float,
    session: str,
    folders: Collection[str] = FOLDERS,
    before: Set[str] = frozenset(),
) -> SyncPlan:
    """How the stored entries follow the files. `folders`: those that hold pages and are there; `before`: the pages that
    were gone and held until now."""
    return _Comparison(stored, contents, now, session).plan(folders, before)


class _Comparison:
    def __init__(self, stored: Mapping[str, Entry], contents: Contents, now: float, session: str) -> None:
        self._stored = stored
        self._contents = contents
        self._now = now
        self._session = session
        self._places: dict[str, list[PageLine]] = defaultdict(list)
        for page in contents.pages.values():
            for line in page.entries:
                self._places[line.entry.id].append(line)
        self._plan = SyncPlan()
        self._new: list[PageLine] = []

    def plan(self, folders: Collection[str], before: Set[str]) -> SyncPlan:
        for id in self._places:
            self._look_at(id)
        gone = self._paired()
        if is_another(gone, self._stored, self._contents):
            return SyncPlan(held=gone, is_another=True)
        pages = doubtful_pages(gone, self._contents.pages, folders, before)
        for old in gone:
            if old.page in pages:
                self._plan.held.append(old)
            else:
                self._note(Act.DELETED, old, replace(old, status=Status.DELETED))
        return self._plan

    def _look_at(self, id: str) -> None:
        lines, stored = self._places[id], self._stored.get(id)
        if stored is None:
            self._new.append(lines[0])
        elif stored.status is not Status.LIVE:
            if not self._is_unread(stored.page):
                self._by_hand(stored, lines[0])
        elif not any(_same_line(line.entry, stored) for line in lines):
            here = next((line for line in lines if line.entry.page == stored.page), lines[0])
            if here.entry.page == stored.page or not self._is_unread(stored.page):
                self._by_hand(stored, here)

    def _by_hand(self, stored: Entry, line: PageLine) -> None:
        """The file has it otherwise: it is as the file has it."""
        there = line.entry
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

    def _paired(self) -> list[Entry]:
        """The entries whose lines are gone. Lines without an id get another one when they are retyped or moved: they
        are not gone, but replaced."""
        gone = _Gone(
            [
                entry
                for id, entry in self._stored.items()
                if entry.status is Status.LIVE and id not in self._places and not self._is_unread(entry.page)
            ]
        )
        asked = [entry for entry in self._stored.values() if entry.status is Status.PENDING]
        for line in self._new:
            new = line.entry
            if new.by == BY_HAND and (old := gone.before(new)) is not None:
                act = Act.EDITED if old.page == new.page else Act.MOVED
                self._note(act, old, replace(old, status=Status.SUPERSEDED, superseded_by=new.id))
                new = replace(new, kind=old.kind, created=old.created, conversation=old.conversation, nodes=old.nodes)
            self._note(Act.ADDED, None, replace(new, status=Status.LIVE, edited=line.changed))
            if asked and (said := first_that_says(new.text, asked)) is not None:
                asked.remove(said)
                self._note(Act.ACCEPTED, said, replace(said, status=Status.SUPERSEDED, superseded_by=new.id))
        return gone.unpaired()

    def _is_unread(self, page: str) -> bool:
        """Whether a page may be there and could not be read: it has a problem, or a folder above it has one."""
        return page not in self._contents.pages and any(
            problem.path in ("", page) or page.startswith(f"{problem.path}/") for problem in self._contents.problems
        )

    def _note(self, act: Act, before: Entry | None, after: Entry) -> None:
        self._plan.changes.append(Change(act, before, after, self._now, self._session, HAND))


def _same_line(there: Entry, known: Entry) -> bool:
    """Whether the line in the file is what is known; a line by hand has no kind of its own."""
    return there.text == known.text and there.page == known.page and (there.kind is known.kind or there.by == BY_HAND)


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

    def unpaired(self) -> list[Entry]:
        return list(self._left.values())


# Lines that are gone


MANY_LINES = 5
"""Memories of two pages or more from which on they are not taken for deleted with them."""
RECENT_SECONDS = 600.0
"""How long after kvchat wrote a line an editor may still have the page without it."""
PUT_BACK = "put back: the page was saved by an editor that did not have this line yet"
NAMED = 3
"""Pages that a sentence names."""
GONE = "a heading, as # gone"
"""The only text in a page that confirms that the user deleted its lines. An empty page may be damage."""


def doubtful_pages(
    gone: Sequence[Entry], pages: Mapping[str, MemoryPage], folders: Collection[str], before: Set[str]
) -> frozenset[str]:
    """The pages whose lines are `gone`, and perhaps not deleted: those that are empty; and those that are not there
    where their folder is not either, where MANY_LINES of several are gone with them, or where they were doubtful
    `before`. A page that holds only a heading is the user's word that it was meant; such a profile, for all that are
    not there."""
    empty = frozenset(entry.page for entry in gone if _is_empty(pages, entry.page))
    if _is_meant(pages, PROFILE):
        return empty
    lost = [entry for entry in gone if entry.page not in pages]
    absent = frozenset(entry.page for entry in lost)
    no_folder = any(name.partition("/")[0] in {*FOLDERS} - {*folders} for name in absent)
    several = len(absent) > 1 and len(lost) >= MANY_LINES
    return empty | (absent if no_folder or several else absent & before)


def is_another(gone: Sequence[Entry], stored: Mapping[str, Entry], contents: Contents) -> bool:
    """Whether a folder is not the one in which the lines were that are `gone`: no line in it is known, and no page by
    its name or many lines of several. One that holds only a heading is the user's word that it is."""
    names, pages = {entry.page for entry in gone}, contents.pages
    if not gone or any(_is_meant(pages, name) for name in (PROFILE, *names)):
        return False
    unread = {problem.path for problem in contents.problems}
    if any(entry.page in unread for entry in stored.values()) or any(_is_empty(pages, name) for name in names):
        return False
    if any(line.entry.id in stored for page in pages.values() for line in page.entries):
        return False
    return (len(names) > 1 and len(gone) >= MANY_LINES) or not any(entry.page in pages for entry in stored.values())


def another_memory_sentence(root: Path, contents: Contents, gone: Sequence[Entry]) -> str:
    """The sentence for it."""
    if contents.missing:
        return (
            f"The memory folder {root} is not there, with {_them(len(gone))} in it. Put it back, or choose another "
            "with memory.folder. Until then nothing is written, and nothing is forgotten."
        )
    if not contents.pages:
        return (
            f"There is no page left in {root}, where {_them(len(gone))} stood. Put the pages back; or, if you deleted "
            f"them, make a profile.md there that holds only {GONE}."
        )
    return (
        f"{root} seems to be another folder: {_them(len(gone))} should stand there, and none does. Put the pages "
        f"there, or set memory.folder back; or, if you deleted them, make one of their pages hold only {GONE}. "
        "Until then nothing is read or written there, and nothing is forgotten."
    )


def held_sentence(root: Path, entries: Sequence[Entry]) -> str:
    """The sentence for memories that are kept though their lines are gone."""
    names = sorted({entry.page for entry in entries})
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return (
        f"{_them(len(entries))} of {', '.join(names[:NAMED])}{more} cannot be found: these pages are not in {root} any "
        f"more, or they are empty. Put them back; or, if you deleted them, put a file that holds only {GONE} in the "
        "place of each, or use `kvchat memory delete`. Until then nothing of them is forgotten."
    )


def _is_empty(pages: Mapping[str, MemoryPage], name: str) -> bool:
    return name in pages and not pages[name].text.strip("\ufeff \t\r\n\0")


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
        if change.before is None and change.after.by != BY_HAND:
            written[change.after.id] = math.inf  # of a kvchat that was killed before it stored it: the page is newer
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


def put_back_sentence(deleted: Change) -> str:
    """The sentence for it."""
    return (
        f"{deleted.after.page}: “{deleted.after.text}” was noted while the page was open in an editor, and is put "
        "back. Delete it again if that was meant."
    )
