"""Bring files, state and index to agree: the outbox into the files, hand edits into the state, both into the index and
what was extracted into the diary.

One kvchat at a time does this, the state is read before the files, and every step can be repeated safely: the next run
completes what a crash left. The index holds the live entries and nothing else; the diary is never read back, and a log
that cannot be written delays nothing.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath

from kvchat.index.index import Chunk, Index
from kvchat.memory import reconcile
from kvchat.memory.entry import Act, Change, Entry, Status
from kvchat.memory.ledger import ExtractionLedger, ExtractionRun
from kvchat.memory.pages.files import FOLDERS, UnusablePage
from kvchat.memory.pages.folder import Contents, Folder, FolderError, PageFull
from kvchat.memory.pages.page import MemoryPage, PageLine
from kvchat.memory.reconcile import Drop, LinePlace, Put, SyncPlan, planned
from kvchat.memory.state import MemoryState, StaleChange

ROUNDS = 8
"""How often the files are looked at again when somebody edits them meanwhile."""
EVERY = 1 << 30
FEW = 64
"""Up to this many changes are applied to the entries in memory; after more, the entries are read again."""
RETRY_SECONDS = 10.0
"""After how long a write that failed is tried again by itself."""


class Syncing:
    """The state of a sync over its calls. The caller keeps threads and processes apart."""

    def __init__(
        self,
        folder: Folder,
        root: Path,
        state: MemoryState,
        index: Index,
        diary: Diary,
        *,
        session: str,
        clock: Callable[[], float],
    ) -> None:
        self.problems: tuple[str, ...] = ()
        self._folder = folder
        self._root = root
        self._state = state
        self._index = index
        self._diary = diary
        self._session = session
        self._clock = clock
        self._seen: object = None
        self._pages: Mapping[str, MemoryPage] = {}
        """As they were when everything agreed."""
        self._held: frozenset[str] = frozenset()
        """Pages that are gone, with memories that are not taken for deleted."""
        self._known: tuple[int, dict[str, Entry]] = (-FEW - 1, {})
        """The newest change that was looked at, and the entries as they were after it."""
        self._indexed: dict[str, str] | None = None
        """The pages in the index, with their stamps, as this kvchat left them."""
        self._indexed_at = 0
        self._tried: tuple[int, float] | None = None
        """The newest change of an outbox that could not be written, and when that was tried (monotonic seconds)."""

    def needed(self) -> bool:
        """Whether there may be something to do: a page has another stamp, or a change waits to be written."""
        outbox = self._state.unwritten()
        if outbox and not self._waits(outbox):
            return True
        return self._folder.fingerprint() != self._seen or self._index.docs(SCOPE) != self._indexed

    def _waits(self, outbox: Sequence[Change]) -> bool:
        if self._tried is None:
            return False
        newest, at = self._tried
        return outbox[-1].seq <= newest and time.monotonic() - at < RETRY_SECONDS

    def known(self) -> dict[str, Entry]:
        """All entries by id, as stored, newest first. Not to be changed."""
        version, (at, known) = self._newest(), self._known
        if not 0 <= version - at <= FEW:
            known = {entry.id: entry for entry in self._state.entries()}
        elif version != at:
            changes = reversed(self._state.changes(version - at))
            latest = {change.after.id: change.after for change in changes if change.seq > at}
            known = {
                **{id: latest[id] for id in reversed(latest) if id not in known},
                **{id: latest.get(id, entry) for id, entry in known.items()},
            }
        self._known = version, known
        return known

    def at_hand(self) -> Callable[[str], Entry | None]:
        """A quick way to single entries as stored, for any thread: what is known if that is up to date."""
        at, known = self._known
        return known.get if at == self._newest() else self._state.entry

    def _newest(self) -> int:
        newest = self._state.changes(1)
        return newest[0].seq if newest else 0

    def run(self) -> bool:
        """Make everything agree; whether the state, a file or the index was changed."""
        changed = False
        once: list[str] = []
        for _ in range(ROUNDS):
            before = self._folder.fingerprint()
            told: list[str] = []
            if not self._once(told, once):
                self._seen = before
                break
            changed = True
        known = self.known()
        if self._indexed is None or self._indexed_at != self._known[0] or self._index.docs(SCOPE) != self._indexed:
            changed |= brought_up_to_date(self._index, known.values())
            self._indexed, self._indexed_at = self._index.docs(SCOPE), self._known[0]
        self.problems = (*told, *once)
        return changed

    def _once(self, told: list[str], once: list[str]) -> bool:
        """One look at the files; whether something was changed. Problems go into `told`, notices that are shown only
        once into `once`."""
        outbox = self._state.unwritten()
        stored = self.known()
        contents = reconcile.without_emptied(self._folder.read(), stored, {change.after.id for change in outbox})
        told += [_told(problem) for problem in contents.problems]
        if (lost := self._lost(contents, stored, outbox)) is not None:
            told.append(lost)
            return False
        plan = self._planned(outbox, stored, contents, told)
        if plan is None:
            return False
        told += self._copies(contents, stored)
        put_back = self._put_back(plan, contents, once)
        if plan.changes:
            self._apply(plan.changes)
        written = {*plan.settled, *self._carry_out(plan, told)}
        if written:
            once += self._diary.written([change for change in outbox if change.seq in written])
            self._state.written(sorted(written))
        self._tried = (outbox[-1].seq, time.monotonic()) if len(written) < len(outbox) else None
        if not (plan.changes or written or put_back):
            self._pages = contents.pages
            return False
        return True

    def _planned(
        self, outbox: Sequence[Change], stored: dict[str, Entry], contents: Contents, told: list[str]
    ) -> SyncPlan | None:
        """The plan, in which whole pages that are gone at once are not deleted; None for a folder that is another."""
        places = [LinePlace(line.entry, line.changed) for page in contents.pages.values() for line in page.entries]
        plan_with = partial(
            planned, outbox, stored, places, unreadable=_unreadable(contents), now=self._clock(), session=self._session
        )
        plan = plan_with()
        unread = {problem.path for problem in contents.problems}
        if reconcile.is_another(plan.missing, stored, contents.pages, unread):
            told.append(reconcile.told_of_another(self._root, plan.missing))
            return None
        waiting = [
            change.before
            for change in outbox
            if change.before is not None
            and change.before.status is Status.LIVE
            and change.after.status is not Status.LIVE
        ]
        self._held = reconcile.held(
            plan.missing,
            waiting,
            contents.pages,
            self._held,
            folders=[name for name in FOLDERS if (self._root / name).exists()],
        )
        if self._held:
            lost = [entry for entry in plan.missing if entry.page in self._held]
            told.append(reconcile.told_of_held(self._root, lost))
            plan = plan_with(held=self._held)
        return plan

    def _put_back(self, plan: SyncPlan, contents: Contents, once: list[str]) -> bool:
        """Take the deletions out of the plan that an editor made without knowing; whether there are any."""
        if not any(change.act is Act.DELETED for change in plan.changes):
            return False
        recent = self._state.changes(EVERY, since=self._clock() - reconcile.RECENT_SECONDS)
        ids = reconcile.unknown_to_the_editor(plan.changes, recent, contents.pages, self._pages)
        deletions = [change for change in plan.changes if change.after.id in ids]
        if not deletions:
            return False
        plan.changes = [change for change in plan.changes if change.after.id not in ids]
        self._apply([change for deleted in deletions for change in reconcile.put_back(deleted)], written=False)
        once += [
            f"{one.after.page}: “{one.after.text}” was noted while the page was open in an editor, and is put "
            "back. Delete it again if that was meant."
            for one in deletions
        ]
        return True

    def _apply(self, changes: Sequence[Change], *, written: bool = True) -> None:
        try:
            self._state.apply(changes, written=written)
        except StaleChange:
            pass  # it was changed meanwhile: the next look at the files sees what is left of it

    def _lost(self, contents: Contents, stored: dict[str, Entry], outbox: Sequence[Change]) -> str | None:
        """The sentence for a folder that is gone, with all that was in it; None when it is there or was never."""
        if contents.pages or contents.problems:
            return None
        before = {change.after.id: change.before for change in reversed(outbox)}
        there = (before.get(id, entry) for id, entry in stored.items())
        count = sum(entry is not None and entry.status is Status.LIVE for entry in there)
        if not count:
            return None
        them = "1 memory" if count == 1 else f"{count} memories"
        if contents.missing:
            return (
                f"The memory folder {self._root} is not there, with {them} in it. Put it back, or choose another "
                "with memory.folder. Until then nothing is written, and nothing is forgotten."
            )
        return (
            f"There is no page left in {self._root}, where {them} stood. Put the pages back; or, if you deleted "
            f"them, make a profile.md there that holds only {reconcile.GONE}."
        )

    def _copies(self, contents: Contents, stored: dict[str, Entry]) -> list[str]:
        """A sentence for each line that has the id of another one and another text."""
        lines: dict[str, list[tuple[str, PageLine]]] = {}
        for name, page in contents.pages.items():
            for line in page.entries:
                lines.setdefault(line.entry.id, []).append((name, line))
        return [
            f"{name}:{line.at}: this line was copied from another one and is not remembered. Take the comment with "
            f"{id} out of it to make it a memory of its own."
            for id, places in lines.items()
            if len(places) > 1 and id in stored
            for name, line in places
            if line.entry.text != stored[id].text and any(other.entry.text == stored[id].text for _, other in places)
        ]

    def _carry_out(self, plan: SyncPlan, told: list[str]) -> list[int]:
        """Write the pages; the changes that stand in the files now."""
        failed: set[str] = set()
        pages: dict[str, list[Put | Drop]] = {}
        for put in plan.puts:
            pages.setdefault(put.entry.page, []).append(put)
        for drop in plan.drops:
            if not drop.moved:
                pages.setdefault(drop.page, []).append(drop)
        self._write(pages, failed, told)
        later: dict[str, list[Put | Drop]] = {}
        for drop in plan.drops:
            if drop.moved and drop.id not in failed:
                later.setdefault(drop.page, []).append(drop)
        self._write(later, failed, told)
        return [seq for id, seqs in plan.seqs.items() if id not in failed for seq in seqs]

    def _write(self, pages: dict[str, list[Put | Drop]], failed: set[str], told: list[str]) -> None:
        for name, edits in pages.items():
            edit = _Edit(edits)
            try:
                self._folder.change(name, edit)
                failed |= edit.refused
            except PageFull as error:
                told.append(f"{error} What is new waits until then.")
                failed |= {_id(one) for one in edits if isinstance(one, Put)}
                drops: list[Put | Drop] = [one for one in edits if isinstance(one, Drop)]
                if drops:
                    self._write({name: drops}, failed, told)
            except FolderError as error:
                failed |= {_id(one) for one in edits}
                told.append(f"{error} What is new waits until it can be written there.")


class _Edit:
    """The edits of one page, on the page as it is when it is written."""

    def __init__(self, edits: Sequence[Put | Drop]) -> None:
        self.refused: set[str] = set()
        """Those whose line the user has changed since it was looked at."""
        self._edits = edits

    def __call__(self, page: MemoryPage) -> MemoryPage:
        self.refused = set()
        texts = {line.entry.id: line.entry.text for line in page.entries}
        edits: dict[str, Entry | None] = {}
        for edit in self._edits:
            text = texts.get(_id(edit))
            if text is not None and text not in edit.known:
                self.refused.add(_id(edit))
            else:
                edits[_id(edit)] = None if isinstance(edit, Drop) else edit.entry
        return page.edited(edits)


def _unreadable(contents: Contents) -> Callable[[str], bool]:
    """Whether a page may be there and could not be read: it has a problem, or a folder above it has one."""
    blocked = [problem.path for problem in contents.problems]

    def asked(page: str) -> bool:
        return page not in contents.pages and any(name in ("", page) or page.startswith(f"{name}/") for name in blocked)

    return asked


def _told(problem: UnusablePage) -> str:
    where = f"{problem.path}:{problem.line}" if problem.line else problem.path
    return f"{where}: {problem.sentence}" if where else problem.sentence


def _id(edit: Put | Drop) -> str:
    return edit.id if isinstance(edit, Drop) else edit.entry.id


# The diary


_WORDS = {
    Act.NOTED: "Noted",
    Act.PROPOSED: "Proposed, pending approval",
    Act.CORRECTED: "Corrected, no longer",
    Act.MERGED: "Merged",
    Act.SUMMARISED: "Summarised",
}


class Diary:
    """The log of one memory folder. `title` gives a conversation's title."""

    def __init__(self, folder: Folder, ledger: ExtractionLedger, title: Callable[[str], str]) -> None:
        self._folder = folder
        self._ledger = ledger
        self._title = title

    def written(self, changes: Sequence[Change]) -> list[str]:
        """Log the extractions that made these changes; sentences about what could not be written."""
        moments = {change.at for change in changes if change.act in (Act.NOTED, Act.PROPOSED, Act.CORRECTED)}
        if not moments:
            return []
        told = []
        for cell in reversed(self._ledger.cells(limit=EVERY)):
            if cell.created in moments:
                told += self.extraction(cell, [change for change in changes if change.at == cell.created])
        return told

    def extraction(self, cell: ExtractionRun, changes: Iterable[Change]) -> list[str]:
        """Log one extraction; sentences about what could not be written. One that found nothing is not worth a line."""
        lines = [
            f"{_WORDS[change.act]}{' again' if change.act is Act.NOTED and change.before else ''}: "
            f"{_line(change.after.text)}"
            for change in changes
            if change.act in _WORDS
        ]
        lines += [f"Refused: {_line(text)} ({_line(reason)})" for text, reason in json.loads(cell.refused or "[]")]
        if not lines:
            return []
        when = datetime.fromtimestamp(cell.created)
        heading = f"{when:%H:%M} {_line(self._title(cell.conversation))} ({cell.conversation[:8]})"
        try:
            self._folder.add_to_log(f"{when:%Y-%m-%d}", cell.id, lines, heading)
        except FolderError as error:
            return [f"The log of {when:%Y-%m-%d} was not written: {error}"]
        return []


def _line(text: str) -> str:
    return " ".join(text.split())


# The index: one document per page, one chunk per entry


SCOPE = "memory/"
"""The beginning of the names of the memory's documents."""


def documents(entries: Iterable[Entry]) -> dict[str, list[Chunk]]:
    """The documents by name; the chunks in the order of their keys, so that equal entries give equal documents."""
    pages: dict[str, list[Chunk]] = defaultdict(list)
    for entry in entries:
        if entry.status is Status.LIVE and not entry.is_episode:
            pages[SCOPE + entry.page].append(Chunk(entry.id, heading(entry.page), entry.text))
    return {name: sorted(chunks, key=lambda chunk: chunk.key) for name, chunks in pages.items()}


def heading(page: str) -> str:
    """What a page is about, in words: its name without folder and ending."""
    return PurePosixPath(page).stem.replace("-", " ").replace("_", " ")


def stamp(chunks: Iterable[Chunk]) -> str:
    """Differs when a chunk does."""
    said = "".join(f"{len(chunk.text)} {chunk.key} {chunk.head} {chunk.text}\0" for chunk in chunks)
    return hashlib.blake2b(said.encode("utf-8", "replace"), digest_size=16).hexdigest()


def brought_up_to_date(index: Index, entries: Iterable[Entry]) -> bool:
    """Make the index hold `entries`; whether it had to be changed."""
    wanted, there = documents(entries), index.docs(SCOPE)
    changed = False
    for name in there.keys() - wanted.keys():
        index.remove(name)
        changed = True
    for name, chunks in wanted.items():
        now = stamp(chunks)
        if there.get(name) != now:
            index.replace(name, chunks, now)
            changed = True
    return changed


def emptied(index: Index) -> None:
    """Take all of the memory out of the index."""
    for name in index.docs(SCOPE):
        index.remove(name)
