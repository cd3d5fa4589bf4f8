"""The memory as one object: what is remembered, in files, state and index, and everything that can be done with it.

The files are the truth: what the user did in them comes first, and a change that cannot be written there is not made.
Any thread may call; all kvchats on one store take turns. No memory is created in a folder whose parent is missing: the
path was mistyped, or its drive is not connected.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvchat.index.index import Hit, Index
from kvchat.memory import acts, history
from kvchat.memory.entry import PROFILE, Act, Change, ChangeReason, Entry, Fact, Kind, Status, Why
from kvchat.memory.entry import MemoryTrouble as MemoryTrouble
from kvchat.memory.ledger import EPISODES, ExtractionLedger, ExtractionRun
from kvchat.memory.pages.files import is_portable
from kvchat.memory.pages.folder import Folder, FolderError
from kvchat.memory.place import index_path, memory_folder
from kvchat.memory.state import MemoryState, StaleChange
from kvchat.memory.sync import SCOPE, Diary, Syncing, emptied
from kvchat.store import Store, StoreError
from kvchat.store.presence.locks import WriteLock

if TYPE_CHECKING:
    from kvchat.config import Settings
    from kvchat.paths import Paths
    from kvchat.store import Store

TRIES = 5
"""How often a change is tried when another writer was quicker."""


class Memories:
    """What kvchat remembers. Every method is synchronous and raises MemoryTrouble."""

    def __init__(
        self, store: Store, folder: Path, index: Index, *, session: str, clock: Callable[[], float], locks: Path
    ) -> None:
        self.folder = folder
        self.ledger = ExtractionLedger(store.database)
        self.left: tuple[str, ...] = ()
        """What the last `undo_all` left as it is, in sentences."""
        self.vector_model = ""
        """The model whose vectors a search compares; empty: whichever is there."""
        self._state = MemoryState(store.database)
        self.index = index
        self._store = store
        self._session = session
        self._clock = clock
        self._lock = threading.RLock()
        self._between_kvchats = WriteLock(locks.with_name("memory-sync.lock"))
        files = Folder(folder, locks)
        self._files = files
        self._diary = Diary(files, self._title)
        self._syncing = Syncing(files, folder, self._state, index, session=session, clock=clock)
        self._synced = False

    @classmethod
    def open(
        cls,
        store: Store,
        folder: Path,
        index_path: Path | None,
        *,
        session: str,
        clock: Callable[[], float] = time.time,
    ) -> Memories:
        """The memory in `folder`, which need not exist yet; `index_path` None: an index in memory."""
        path = store.database.path
        locks = (path or folder).with_name("memory.lock")
        with _memory_errors():
            locks.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return cls(store, folder, Index.open(index_path), session=session, clock=clock, locks=locks)

    def close(self) -> None:
        """Let go of the index and the locks; the store stays open."""
        with self._lock:
            self.index.close()
            self._files.close()
            self._between_kvchats.close()

    # Files, state and index

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the folder, in sentences, as of the last sync."""
        return (*self._syncing.problems, *self._diary.problems)

    def sync(self) -> bool:
        """Take up what the user did in the files, and bring the index up to date; whether anything changed. Costs a
        look at each page's stamp when nothing did."""
        with _memory_errors():
            if self._synced and not self._syncing.needed():
                return False
        with self._alone():
            return self._run()

    def rebuild(self) -> int:
        """Throw the memory's part of the index away and make it from the files; the entries in it."""
        with self._alone():
            emptied(self.index)
            self._run()
            return len(self._live())

    # What is there

    @property
    def is_empty(self) -> bool:
        """Whether nothing is remembered, as of the last sync."""
        return not self._live()

    def entries(self, status: Status = Status.LIVE, kind: Kind | None = None) -> list[Entry]:
        """The entries of that status, newest first."""
        with self._reading():
            found = [
                entry
                for entry in self._syncing.known().values()
                if entry.status is status and kind in (None, entry.kind)
            ]
        return sorted(found, key=lambda entry: -entry.created)

    def get(self, id_or_beginning: str) -> Entry:
        """The entry with this id or unique beginning of an id, whatever its status."""
        with self._reading():
            return self._one(id_or_beginning)

    def profile(self) -> list[Entry]:
        """The live entries of the profile, in the order of its lines."""
        with self._reading():
            entries = {entry.id: entry for entry in self._live() if entry.page == PROFILE}
            page = self._files.read().pages.get(PROFILE)
        lines = [line.entry.id for line in page.entries] if page else []
        order = {id: number for number, id in enumerate(lines)}
        return sorted(entries.values(), key=lambda entry: (order.get(entry.id, len(order)), entry.created, entry.id))

    def search(self, query: str, k: int = 20, vector: Sequence[float] | None = None) -> list[tuple[Entry, Hit]]:
        """The live entries that belong to `query`, best first, as of the last sync: it waits for nothing."""
        if not self._synced:
            self.sync()
        with _memory_errors():
            hits = self.index.search(query, k, scope=SCOPE, vector=vector, model=self.vector_model)
            entry_of = self._syncing.lookup()
            found = [(entry_of(hit.chunk.key), hit) for hit in hits]
        return [(entry, hit) for entry, hit in found if entry is not None and entry.status is Status.LIVE]

    # What the user does

    def add(
        self, text: str, kind: Kind = Kind.FACT, page: str = "", conversation: str = "", nodes: Sequence[str] = ()
    ) -> Entry:
        """Remember `text`, as the user asked. If an entry already says it, return that one, moved to `page` if one is
        named, accepted if it was proposed."""

        def change(known: dict[str, Entry]) -> list[Change]:
            return acts.added(known, text, kind, page, conversation, tuple(nodes), self._moment())

        return self._changed(change)

    def edit(self, id: str, text: str) -> Entry:
        """Give an entry another text."""
        return self._changed(lambda known: acts.edited(known, self._one(id), text, self._moment()))

    def delete(self, id: str) -> Change:
        """Take an entry out, or refuse a proposed one; its text is not noted again."""
        with self._alone():
            self._fresh()
            changes = acts.deleted(self._one(id), self._moment())
            return replace(changes[0], seq=self._apply(changes)[0])

    def accept(self, id: str) -> Entry:
        """Say yes to a proposed entry; what it corrects gives way to it."""

        def change(known: dict[str, Entry]) -> list[Change]:
            entry = self._one(id)
            return acts.accepted(known, entry, self._corrected(entry, known), self._moment())

        entry = self._changed(change)
        return self.get(entry.superseded_by) if entry.status is Status.SUPERSEDED else entry

    def move(self, id: str, page: str) -> Entry:
        """Put an entry on another page; one that there is not yet is begun."""
        return self._changed(lambda known: acts.moved(known, self._one(id), page, self._moment()))

    # What kvchat does by itself

    def store_extraction(self, run: ExtractionRun, nodes: Sequence[str], facts: Sequence[Fact]) -> list[Entry] | None:
        """Store one extraction: its facts as entries, noted or proposed, and its messages as covered. The new entries;
        None: another extraction has covered these messages meanwhile, and nothing was stored. Where a page cannot be
        written, all are proposed."""
        problem = ""
        with self._alone():
            for _ in range(TRIES):
                self._fresh()
                found = acts.extraction_changes(facts, run, self._syncing.known().values())
                changes = [one for one in found.changes if not (problem and one.after.status is Status.LIVE)]
                stored = acts.with_refused(run, found)
                try:
                    log = partial(self._diary.extraction, stored, changes)
                    with self._syncing.writing(changes, log) as write:
                        is_stored = self.ledger.cover(stored, nodes, changes, write)
                except StaleChange:
                    continue
                except FolderError as error:
                    problem = str(error)
                    facts = [replace(fact, review=fact.review or ChangeReason(Why.UNWRITTEN)) for fact in facts]
                    continue
                self._reindex()
                if problem:
                    self._syncing.problems = (*self._syncing.problems, problem)
                return found.new if is_stored else None
            raise MemoryTrouble("The memory is being changed by somebody else all the time. Try again later.")

    def propose(self, run: ExtractionRun, facts: Sequence[Fact]) -> list[Entry]:
        """Propose what a pass over messages found that an extraction has covered; the new entries. `run` says who
        found it, and is not stored."""
        with self._alone():
            self._fresh()
            found = acts.extraction_changes(facts, run, self._syncing.known().values())
            if found.changes:
                self._apply(found.changes)
            return found.new

    def store_episodes(self, episodes: Sequence[tuple[ExtractionRun, Sequence[str], Change]]) -> list[Entry]:
        """Store episodes, each with its messages, as covered, and its entry; those that were stored. Where another
        kvchat was first with a message of one, that is left out."""
        ledger, stored = ExtractionLedger(self._store.database, EPISODES), list[Entry]()
        with self._alone():
            self._fresh()
            for run, nodes, change in episodes:
                with self._syncing.writing([change]) as write:
                    if ledger.cover(run, nodes, [change], write):
                        stored.append(change.after)
            self._reindex()
        return stored

    def consolidate(self, changes: Sequence[Change]) -> int:
        """Apply those of `changes` that still hold; how many."""
        with self._alone():
            self._fresh()
            holding = acts.holding(changes, self._syncing.known())
            if holding:
                self._apply(holding)
            return len(holding)

    # The history

    def log(self, limit: int = 50, *, session: str = "", conversation: str = "", entry: str = "") -> list[Change]:
        """What happened, newest first."""
        with self._reading():
            return self._state.changes(limit, session=session, conversation=conversation, entry=entry)

    def undo(self, seq: int) -> Change:
        """Take one change back; what is given is itself a change, and can be undone."""
        with self._alone():
            self._fresh()
            change = next((one for one in self._state.changes(history.ALL) if one.seq == seq), None)
            if change is None:
                raise MemoryTrouble(f"There is no change {seq}. `kvchat memory log` lists the changes.")
            undoing = self._undoing()
            moment = self._state.changes(history.ALL, since=change.at)
            main = history.main_of(change, moment)
            done = undoing.undo(change, main, history.companions_of(main, moment))
            if done is None:
                raise MemoryTrouble(
                    f"Change {seq} has no effect any more: it was undone, or something newer took its place."
                )
            seqs = self._apply(undoing.changes, undoing.undoes)
            return replace(done, seq=seqs[undoing.changes.index(done)])

    def undo_all(self, *, session: str = "", conversation: str = "", since: float = 0.0) -> int:
        """Take back what kvchat noted, proposed, corrected or merged by itself, newest first; how many changes. With
        nothing named: in the session that noted last. What the user has chosen or edited since stays, and is listed in
        `left`."""
        with self._alone():
            self._fresh()
            if not (session or conversation or since):
                session = self._state.last_session()
            changes = self._state.changes(history.ALL, session=session, conversation=conversation, since=since)
            everything = self._state.changes(history.ALL)
            taken, left = history.by_itself(changes, history.by_entry(everything))
            moments = history.by_moment(everything)
            undoing, reasons = self._undoing(), [history.left_alone(change) for change in left]
            for change in taken:
                try:
                    undoing.undo(change, history.main_of(change, moments[change.at]), ())
                except MemoryTrouble as trouble:
                    reasons.append(trouble.sentence)
            self.left = tuple(dict.fromkeys(reasons))
            if undoing.changes:
                self._apply(undoing.changes, undoing.undoes)
            return len(set(undoing.undoes))

    # Inside

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other thread and no other kvchat changes the memory meanwhile."""
        with self._lock, _memory_errors(), self._between_kvchats.held():
            yield

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """The files' last word, if it can be had; else what is known."""
        with suppress(MemoryTrouble):
            self.sync()
        with self._lock, _memory_errors():
            yield

    def _fresh(self) -> None:
        """Sync, if there may be something to do."""
        if not self._synced or self._syncing.needed():
            self._run()

    def _run(self) -> bool:
        changed = self._syncing.run()
        self._synced = True
        return changed

    def _changed(self, change: Callable[[dict[str, Entry]], list[Change]]) -> Entry:
        """Apply what `change` makes of the entries as they are; the entry that the first of the changes is about."""
        with self._alone():
            self._fresh()
            changes = change(self._syncing.known())
            done = [one for one in changes if one.after != one.before]
            if done:
                self._apply(done)
            return self._syncing.known().get(changes[0].after.id, changes[0].after)

    def _apply(self, changes: Sequence[Change], undoes: Sequence[int] = ()) -> list[int]:
        with self._syncing.writing(changes) as write:
            away = self._syncing.away(changes)
            seqs = self._state.apply(changes, undoes=undoes, away=away, write=write)
        self._reindex()
        return seqs

    def _reindex(self) -> None:
        """The index can be rebuilt at any time: no act fails by it, and the next look at the files retries."""
        with suppress(sqlite3.Error):
            self._syncing.reindex()

    def _moment(self) -> acts.Moment:
        return acts.Moment(self._clock(), self._session)

    def _undoing(self) -> history.Undoing:
        def can_hold(page: str) -> bool:
            return is_portable(page) or (self.folder / page).exists()

        return history.Undoing(dict(self._syncing.known()), self._clock(), self._session, can_hold)

    def _live(self) -> list[Entry]:
        return [entry for entry in self._syncing.known().values() if entry.status is Status.LIVE]

    def _one(self, beginning: str) -> Entry:
        known = self._syncing.known()
        if beginning in known:
            return known[beginning]
        found = [entry for id, entry in known.items() if beginning and id.startswith(beginning)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise MemoryTrouble(f"There is no memory {beginning}. `kvchat memory list` lists them with their ids.")
        raise MemoryTrouble(f"{len(found)} memories have an id that begins with {beginning}. Give more of it.")

    def _corrected(self, entry: Entry, known: dict[str, Entry]) -> Entry | None:
        """The live entry whose place a proposed one takes."""
        seen = {entry.id}
        while True:
            proposals = [one for one in self._state.changes(history.ALL, entry=entry.id) if one.act is Act.PROPOSED]
            target = next((known[id] for one in proposals if (id := acts.corrected_by(one)) in known), None)
            if target is None or target.id in seen:
                return None
            if target.status is Status.LIVE:
                return target
            seen.add(target.id)
            entry = target

    def _title(self, conversation: str) -> str:
        try:
            return self._store.conversation(conversation).title
        except StoreError:
            return "a conversation that is gone"


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Turn what can go wrong below into the memory's own trouble."""
    try:
        yield
    except StaleChange as error:
        raise MemoryTrouble("The memory was changed by somebody else at the same moment. Try again.") from error
    except StoreError as error:
        raise MemoryTrouble(error.sentence) from error
    except FolderError as error:
        raise MemoryTrouble(str(error)) from error
    except (sqlite3.Error, OSError) as error:
        raise MemoryTrouble(f"The memory cannot be used: {error}.") from error


def open_memories(places: Paths, settings: Settings, store: Store, session: str) -> Memories | None:
    """The memory of this run, None where the run is incognito: that has none. Whether memory is switched on does not
    matter here: what was noted can be looked at all the same. Raises MemoryTrouble and StoreError."""
    if store.database.path is None:
        return None
    folder = memory_folder(places, settings)
    if settings.memory.folder.strip() and not folder.parent.is_dir() and not MemoryState(store.database).entries():
        raise MemoryTrouble(
            f"memory.folder is {folder}, but there is no folder {folder.parent}. Make that folder, "
            "connect its drive, or change the setting."
        )
    return Memories.open(store, folder, index_path(places), session=session)
