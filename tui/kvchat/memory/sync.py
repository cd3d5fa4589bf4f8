"""Bring files, state and index to agree: hand edits into the state, changes into the pages, both into the index and
what was extracted into the diary.

One kvchat at a time does this. The files are the truth: pages are written inside the transaction that stores a change,
and what a crash left between the two is taken up like what the user writes. The index holds the live entries and
nothing else; the diary is never read back, and a log that cannot be written delays nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath

from msgspec import Struct

from kvchat.index.index import Chunk, Index
from kvchat.memory import reconcile
from kvchat.memory.entry import Act, Change, Entry, Status
from kvchat.memory.ledger import ExtractionRun
from kvchat.memory.pages.files import FOLDERS, UnusablePage
from kvchat.memory.pages.folder import Contents, Folder, FolderError
from kvchat.memory.pages.page import MemoryPage, PageLine
from kvchat.memory.reconcile import SyncPlan, planned
from kvchat.memory.state import MemoryState, StaleChange

NO_LIMIT = 1 << 30
LATEST_CHANGES = 64
"""Up to this many changes are applied to the entries in memory; after more, the entries are read again."""


class Syncing:
    """What is known of the files, the state and the index. The caller keeps threads and processes apart."""

    def __init__(
        self,
        folder: Folder,
        root: Path,
        state: MemoryState,
        index: Index,
        *,
        session: str,
        clock: Callable[[], float],
    ) -> None:
        self.problems: tuple[str, ...] = ()
        self._folder = folder
        self._root = root
        self._state = state
        self._index = index
        self._session = session
        self._clock = clock
        self._seen: object = None
        """The folder's fingerprint when everything agreed; None: it is to be looked at."""
        self._pages: Mapping[str, MemoryPage] = {}
        """As they were read or written last."""
        self._held: frozenset[str] = frozenset()
        """Pages that are gone, with memories that are not taken for deleted."""
        self._closed: dict[str, str] = {}
        """Pages that are not written to now, each with the sentence why; an empty name is the whole folder."""
        self._known: tuple[int, dict[str, Entry]] = (-LATEST_CHANGES - 1, {})
        """The newest change that was looked at, and the entries as they were after it."""
        self._indexed: dict[str, str] | None = None
        """The pages in the index, with their stamps, as this kvchat left them."""
        self._indexed_at = 0

    def needed(self) -> bool:
        """Whether there may be something to do: a page or the index was changed."""
        return (
            self._seen is None or self._folder.fingerprint() != self._seen or self._index.docs(SCOPE) != self._indexed
        )

    def known(self) -> dict[str, Entry]:
        """All entries by id, as stored, newest first. Not to be changed."""
        version, (at, known) = self._newest(), self._known
        if not 0 <= version - at <= LATEST_CHANGES:
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

    def lookup(self) -> Callable[[str], Entry | None]:
        """A quick way to single entries as stored, for any thread: what is known if that is up to date."""
        at, known = self._known
        return known.get if at == self._newest() else self._state.entry

    def _newest(self) -> int:
        newest = self._state.changes(1)
        return newest[0].seq if newest else 0

    def run(self) -> bool:
        """Take up what the user did in the files, and bring the index up to date; whether anything was changed."""
        older = self._due(self._state.unwritten())
        if older and (problem := self._write_older(older)):
            self._closed, self.problems = {"": problem}, (problem,)
            return self.reindex()
        before, stored = self._folder.fingerprint(), self.known()
        contents, plan = self._planned(stored)
        problems = [_problem_sentence(problem) for problem in contents.problems]
        problems += dict.fromkeys(self._closed.values())
        changed = bool(older)
        if not plan.is_another:
            problems += self._copies(contents, stored)
            deletions = self._unknown_to_the_editor(plan, contents)
            self._pages = contents.pages
            changed |= self._apply([change for change in plan.changes if change not in deletions])
            if deletions and self._put_back(deletions, problems):
                self.run()
                self.problems = (*self.problems, *map(reconcile.put_back_sentence, deletions))
                return True
        self._seen, self.problems = before, tuple(problems)
        return self.reindex() or changed

    def _planned(self, stored: Mapping[str, Entry]) -> tuple[Contents, SyncPlan]:
        contents = self._folder.read()
        plan = planned(
            stored,
            contents,
            now=self._clock(),
            session=self._session,
            folders=[name for name in FOLDERS if (self._root / name).exists()],
            before=self._held,
        )
        self._held = frozenset(entry.page for entry in plan.held if entry.page not in contents.pages)
        if plan.is_another:
            self._closed = {"": reconcile.another_memory_sentence(self._root, contents, plan.held)}
        else:
            sentence = reconcile.held_sentence(self._root, plan.held)
            self._closed = dict.fromkeys((entry.page for entry in plan.held), sentence)
        return contents, plan

    def _apply(self, changes: Sequence[Change]) -> bool:
        """Store what the user did in the files; whether that was anything."""
        if not changes:
            return False
        with suppress(StaleChange):  # it was changed meanwhile: the next look at the files sees what is left of it
            self._state.apply(changes)
        return True

    def _put_back(self, deletions: Sequence[Change], problems: list[str]) -> bool:
        """Whether the lines could be put back."""
        back = [change for deleted in deletions for change in reconcile.put_back(deleted)]
        try:
            with self.writing(back) as write:
                self._state.apply(back, write=write)
        except (StaleChange, FolderError) as error:
            problems.append(str(error))
            return False
        return True

    def _unknown_to_the_editor(self, plan: SyncPlan, contents: Contents) -> list[Change]:
        deletions = [change for change in plan.changes if change.act is Act.DELETED]
        if not deletions:
            return []
        recent = self._state.changes(NO_LIMIT, since=self._clock() - reconcile.RECENT_SECONDS)
        ids = reconcile.unknown_to_the_editor(plan.changes, recent, contents.pages, self._pages)
        return [change for change in deletions if change.after.id in ids]

    def _due(self, unwritten: Sequence[Change]) -> list[Change]:
        """Those that can be written: a line that was deleted while its page was away waits until it is back."""
        if not unwritten:
            return []
        there = _ids(self._folder.read().pages)
        last = {change.after.id: change.after for change in unwritten}
        return [change for change in unwritten if _with_line(last[change.after.id]) or change.after.id in there]

    def away(self, changes: Sequence[Change]) -> set[str]:
        """The ids of the lines that these take out, and that are not there to be taken out: their pages are held."""
        out = {one.after.id for one in changes if _with_line(one.before) and not _with_line(one.after)}
        return out - _ids(self._pages)

    def _write_older(self, older: Sequence[Change]) -> str:
        """Write what was stored and could not be written, by kvchat 0.2 or into a page that was away; empty, or the
        sentence why it still cannot be."""
        of: dict[str, list[Change]] = defaultdict(list)
        for change in older:
            of[change.after.id].append(change)
        before = {id: changes[0].before for id, changes in of.items()}
        there = {id: before.get(id, entry) for id, entry in self.known().items()}
        contents, plan = self._planned({id: entry for id, entry in there.items() if entry is not None})
        if plan.is_another:
            return self._closed[""]
        self._pages = contents.pages
        for changes in of.values():
            seqs = [change.seq for change in changes]
            try:
                with self.writing(changes) as write:
                    self._state.written(seqs, write)
            except StaleChange:
                self._state.written(seqs)  # the user has changed the line since: it is as the file has it
            except FolderError as error:
                return str(error)
        return ""

    def reindex(self) -> bool:
        """Make the index hold what is known; whether it had to be changed."""
        changed, known = False, self.known()
        if self._indexed is None or self._indexed_at != self._known[0] or self._index.docs(SCOPE) != self._indexed:
            changed = brought_up_to_date(self._index, known.values())
            self._indexed, self._indexed_at = self._index.docs(SCOPE), self._known[0]
        return changed

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

    @contextmanager
    def writing(
        self, changes: Sequence[Change], log: Callable[[], None] = lambda: None
    ) -> Iterator[Callable[[], None]]:
        """What the block gets writes the pages as the changes leave them, and then the log; the pages are as before
        when the block fails. Raises FolderError, and StaleChange for a line that says something else by now."""
        edits = self._edits(changes)
        if not edits:
            yield log
            return
        with self._folder.changing({name: partial(_edit, lines) for name, lines in edits.items()}) as write:

            def written() -> None:
                self._pages, self._seen = {**self._pages, **write()}, None
                log()

            yield written

    def _edits(self, changes: Sequence[Change]) -> dict[str, dict[str, _LineEdit]]:
        """By page and id. Raises FolderError where nothing is to be written now."""
        of: dict[str, list[Change]] = defaultdict(list)
        for change in changes:
            of[change.after.id].append(change)
        places: dict[str, set[str]] = defaultdict(set)
        for name, page in self._pages.items():
            for line in page.entries:
                if line.entry.id in of:
                    places[line.entry.id].add(name)
        edits: dict[str, dict[str, _LineEdit]] = defaultdict(dict)
        for id, its in of.items():
            versions = [its[0].before, *(change.after for change in its)]
            live = [version for version in versions if version is not None and version.status is Status.LIVE]
            was, will = _with_line(versions[0]), _with_line(versions[-1])
            stayed = len(live) == len(versions)
            if not live or (stayed and was is not None and will is not None and _is_written(was, will)):
                continue
            texts = frozenset(version.text for version in live)
            for name in {*places[id], *([was.page] if was else []), *([will.page] if will else [])}:
                if why := self._closed.get("") or (will and name == will.page and self._closed.get(name)):
                    raise FolderError(why)
                is_there = stayed and name in (places[id] or {was.page if was else ""})
                edits[name][id] = _LineEdit(will if will and name == will.page else None, texts, its[0], is_there)
        # Pages that only lose lines come last: a kill between leaves a line in both pages, and none nowhere.
        return dict(sorted(edits.items(), key=lambda page: all(edit.entry is None for edit in page[1].values())))


class _LineEdit(Struct, frozen=True):
    """What becomes of a line."""

    entry: Entry | None
    """None: it is taken out."""
    known: frozenset[str]
    """The texts that it may have."""
    change: Change
    is_there: bool
    """Whether it has to be there."""


def _ids(pages: Mapping[str, MemoryPage]) -> set[str]:
    return {line.entry.id for page in pages.values() for line in page.entries}


def _with_line(entry: Entry | None) -> Entry | None:
    """The entry, where it has a line."""
    return entry if entry is not None and entry.status is Status.LIVE else None


def _is_written(was: Entry, will: Entry) -> bool:
    """Whether the line is up to date. A line that the user edited is not changed for its comment alone."""
    return was == will or (will.edited and (was.page, was.text, was.kind) == (will.page, will.text, will.kind))


def _edit(edits: Mapping[str, _LineEdit], page: MemoryPage) -> MemoryPage:
    texts = {line.entry.id: line.entry.text for line in page.entries}
    for id, edit in edits.items():
        if (texts[id] not in edit.known) if id in texts else edit.is_there:
            raise StaleChange(edit.change)
    return page.edited({id: edit.entry for id, edit in edits.items()})


def _problem_sentence(problem: UnusablePage) -> str:
    where = f"{problem.path}:{problem.line}" if problem.line else problem.path
    return f"{where}: {problem.sentence}" if where else problem.sentence


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

    def __init__(self, folder: Folder, title: Callable[[str], str]) -> None:
        self.problems: tuple[str, ...] = ()
        """What could not be written last, in a sentence."""
        self._folder = folder
        self._title = title

    def extraction(self, run: ExtractionRun, changes: Iterable[Change]) -> None:
        """Log one extraction. One that found nothing is not worth a line."""
        lines = [
            f"{_WORDS[change.act]}{' again' if change.act is Act.NOTED and change.before else ''}: "
            f"{_line(change.after.text)}"
            for change in changes
            if change.act in _WORDS
        ]
        lines += [f"Refused: {_line(text)} ({_line(reason)})" for text, reason in json.loads(run.refused or "[]")]
        if not lines:
            return
        when = datetime.fromtimestamp(run.created)
        heading = f"{when:%H:%M} {_line(self._title(run.conversation))} ({run.conversation[:8]})"
        self.problems = ()
        try:
            self._folder.add_to_log(f"{when:%Y-%m-%d}", run.id, lines, heading)
        except FolderError as error:
            self.problems = (f"The log of {when:%Y-%m-%d} was not written: {error}",)


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
    text = "".join(f"{len(chunk.text)} {chunk.key} {chunk.head} {chunk.text}\0" for chunk in chunks)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


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
