"""Snapshots of conversations: saved when idle and on quit, restored on return, checked, and given up where of no use.

The rule: no trouble with a snapshot reaches a chat. Whatever fails gives a value to tell, and the server reads the
conversation as it would have without.

A save waits for a busy slot, and a restore replaces what is in one: both are for a server that nobody is using, so
the caller holds its lane. After a cancelled restore it is not known what the slot holds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, runtime_checkable

from kvchat.backends.dialect import NOT_SUPPORTED, Backend, ServerInfo, SlotFile
from kvchat.backends.engine.cache_kind import CacheKind, kind_of
from kvchat.backends.engine.snapshot_file import Snapshot
from kvchat.backends.engine.snapshots import Claims, SnapshotError, SnapshotShelf
from kvchat.backends.engine.verdicts import Verdict, Verdicts
from kvchat.backends.transport import unskippable
from kvchat.cache.causes.cause import Argument, Statement, said
from kvchat.cache.tokens import Tokens
from kvchat.paths import PathError, reason
from kvchat.text.snapshots import SnapshotProblem, snapshot_sentence

if TYPE_CHECKING:
    from kvchat.backends.engine.options import EngineOptions

@runtime_checkable
class SlotServer(Protocol):
    """A backend whose slots can be saved."""

    @property
    def info(self) -> ServerInfo: ...

    async def alive(self) -> bool: ...

    async def slot_file(self, action: Literal["save", "restore"], slot: int, file: str, seconds: float) -> SlotFile: ...


@dataclass(frozen=True, slots=True)
class SlotContent:
    """What a slot holds, as the caller knows it."""

    slot: int
    conversation: str
    digest: str
    """Of the last message in the slot, hex."""
    tokens: int = 0
    """0: not known. With a figure, a slot that holds less than nine tenths of it is not saved."""
    path: tuple[str, ...] = ()
    """The digests of all messages up to it, root first; without it the snapshot replaces every other one of the
    conversation."""


@dataclass(frozen=True, slots=True)
class Saved:
    snapshot: Snapshot
    ms: float
    """What saving took, the checksum included; 0: it was there already."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The slot now holds what the snapshot says, and nothing else."""

    slot: int
    snapshot: Snapshot
    ids: Tokens | None
    """The tokens, where the file's form is known."""
    ms: float
    """What it took, the check included."""

    @property
    def conversation(self) -> str:
        return self.snapshot.conversation

    @property
    def digest(self) -> str:
        return self.snapshot.digest

    @property
    def tokens(self) -> int:
        return self.snapshot.tokens


@dataclass(frozen=True, slots=True)
class Refused:
    why: Statement | str
    slot_emptied: bool = False
    """Whether the server tried and failed; otherwise the slot holds what it held."""


SAVE_SECONDS = 20.0
RESTORE_SECONDS = 60.0
QUIT_SECONDS = 10.0
"""For all slots together."""
LEAST_CACHED = 0.9
"""Of a restored snapshot's tokens: with fewer it did not work."""
FIRST_GUESS = 300e6
"""Bytes per second of checking and restoring, before one was measured."""

NOT_KEPT, NO_SERVER = said(SnapshotProblem.NOT_KEPT), said(SnapshotProblem.NO_SERVER)

log = logging.getLogger(__name__)
Problem = Statement | str
"""A `SnapshotProblem`; a sentence where an earlier version stored it, or the file system's own part says it."""
T = TypeVar("T")
D = TypeVar("D")


class Snapshots:
    """The snapshots of one run of kvchat, in a folder of their own; None: nothing is saved (incognito, or unwanted)."""

    def __init__(self, folder: Path | None, notice: Callable[[Problem], None] | None = None, *,
                 shelf: SnapshotShelf | None = None) -> None:
        self._shelf = shelf or (SnapshotShelf(folder) if folder else None)
        self._verdicts = Verdicts(self._shelf.folder) if self._shelf else None
        self._kind: CacheKind | None = None
        self._verdict = Verdict()
        self._why_not: Statement | None = NO_SERVER if self._shelf else NOT_KEPT
        self._busy = asyncio.Lock()
        self._speed = FIRST_GUESS
        self._said: set[Problem] = set()
        self.notice = notice
        """Told every problem once."""
        self.held: Callable[[], Sequence[SlotContent]] | None = None
        """What the slots hold at quit. None: nobody knows, and every slot is saved without a name."""
        self.refilled: tuple[Restored, ...] = ()
        """What was restored when the server started."""

    @property
    def why_not(self) -> Problem | None:
        """Why snapshots are neither saved nor restored with the server in use; None when they are."""
        return self._why_not or self._verdict.why

    async def use(self, backend: Backend, options: EngineOptions) -> None:
        """Work with the embedded engine that was started with these options. The folder of any other server is not
        ours: its files could be neither checked nor removed."""
        self.leave()
        shelf, verdicts = self._shelf, self._verdicts
        if shelf is None or verdicts is None or options.snapshots is None or not isinstance(backend, SlotServer):
            self._why_not = NOT_KEPT
            return

        def look() -> tuple[CacheKind, Verdict]:
            shelf.load()
            kind = kind_of(options.model, backend.info)
            return kind, verdicts.get(kind.key)

        if (found := await self._filed(look, None)) is not None:
            self._kind, self._verdict = found
            self._why_not = None

    def leave(self) -> None:
        """The server is no longer in use."""
        self._kind, self._verdict, self.refilled = None, Verdict(), ()
        self._why_not = NO_SERVER if self._shelf else NOT_KEPT

    # -- what there is, from memory -----------------------------------------------------------------------------------

    def usable(self) -> list[Snapshot]:
        """The snapshots for the server in use, used last first."""
        if self.why_not or self._shelf is None:
            return []
        return [snapshot for snapshot in self._shelf.snapshots if snapshot.kind == self._kind]

    def known(self, conversation: str) -> list[Snapshot]:
        """Those of a conversation, used last first."""
        return [snapshot for snapshot in self.usable() if snapshot.conversation == conversation]

    def best_for(self, digests: Sequence[str], *, whole: bool = False) -> Snapshot | None:
        """The snapshot with the most messages of a path (root first); None when none has any. Of equals it is the
        one with the fewest others. `whole`: only one without others, for a cache that cannot go back."""
        best, rank = None, (0, 0)
        for snapshot in self.usable():
            shared = snapshot.shared(digests)
            others = max(0, len(snapshot.path) - shared)
            if shared and (shared, -others) > rank and not (whole and others):
                best, rank = snapshot, (shared, -others)
        return best

    def claim(self, claims: Claims) -> None:
        """What the person keeps, and which conversations there are, is asked of `claims`."""
        if self._shelf is not None:
            self._shelf.claims = claims

    async def kept(self) -> dict[str, Snapshot]:
        """The snapshots that the person keeps, by conversation, for whatever server they are."""
        shelf = self._shelf
        if shelf is None:
            return {}
        async with self._busy:
            await self._filed(shelf.tidy, None)
            return await self._filed(shelf.kept, dict[str, Snapshot]())

    def has(self, held: SlotContent) -> bool:
        """Whether this is saved for the server in use."""
        return any(snapshot.digest == held.digest and snapshot.tokens >= held.tokens
                   for snapshot in self.known(held.conversation))

    def seconds(self, snapshot: Snapshot) -> float:
        """What restoring it takes, by the restore before; a guess before the first."""
        return snapshot.size / self._speed

    # -- saving -------------------------------------------------------------------------------------------------------

    async def save(self, backend: Backend, slot: int, conversation: str, digest: str, tokens: int = 0, *,
                   path: Sequence[str] = ()) -> Saved | None:
        """Save what a slot holds (see `SlotContent`); None when it was not saved."""
        return await self._save(backend, SlotContent(slot, conversation, digest, tokens, tuple(path)), SAVE_SECONDS)

    async def save_on_quit(self, backend: Backend, held: Sequence[SlotContent] | None = None) -> list[Saved]:
        """Save every slot before the server ends; what is saved already costs nothing. `held`: as the attribute of
        that name."""
        if held is None and self.held is not None:
            held = self.held()
        if held is None:
            held = [SlotContent(slot, "", "") for slot in range(backend.info.slots or 1)]
        saved: list[Saved] = []
        end = time.monotonic() + QUIT_SECONDS
        for one in held:
            if (left := end - time.monotonic()) <= 0:
                self._tell(said(SnapshotProblem.QUIT_TOO_LONG, seconds=QUIT_SECONDS))
                break
            if (done := await self._save(backend, one, left)) is not None:
                saved.append(done)
        return saved

    async def _save(self, backend: Backend, held: SlotContent, seconds: float) -> Saved | None:
        async with self._busy:
            shelf, kind = self._shelf, self._kind
            if self.why_not or shelf is None or kind is None or not isinstance(backend, SlotServer) \
                    or not 0 <= held.slot < (backend.info.slots or 1):
                return None
            same = next((s for s in self.known(held.conversation) if held.digest and s.digest == held.digest), None)
            if same is not None and same.tokens >= held.tokens:
                touched = await self._filed(lambda: shelf.touch(same, held.slot), None)
                if touched is not None:
                    return Saved(touched, 0.0)
            needed = int(held.tokens * max((s.size / s.tokens for s in self.usable() if s.tokens), default=0.0))
            if await self._filed(lambda: shelf.make_room(needed, held.conversation, held.path), False) is False:
                return None
            return await self._written(shelf, kind, backend, held, seconds)

    async def _written(self, shelf: SnapshotShelf, kind: CacheKind, backend: SlotServer, held: SlotContent,
                       seconds: float) -> Saved | None:
        began = time.perf_counter()
        name = shelf.fresh()
        kept: Snapshot | None = None

        async def keep(draft: Snapshot) -> None:
            nonlocal kept
            kept = await self._filed(lambda: shelf.keep(draft), None)

        try:
            done = await backend.slot_file("save", held.slot, f"{name}.bin", seconds)
            if done.status == NOT_SUPPORTED:
                self._why_not = said(SnapshotProblem.NO_FOLDER)
            elif not done:
                self._tell(said(SnapshotProblem.NOT_SAVED))
            elif done.tokens and done.tokens >= LEAST_CACHED * held.tokens:
                path = held.path if held.path[-1:] in ((), (held.digest,)) else (*held.path, held.digest)
                await unskippable(keep(Snapshot(
                    name, held.conversation, held.digest, path, held.slot, done.tokens, done.size, 0,
                    kind.model, kind.shape, kind.build, 0.0, 0.0)))
        finally:
            if kept is None:
                shelf.discard(name)
        if kept is None:
            return None
        ms = (time.perf_counter() - began) * 1000
        log.info("saved %d tokens (%d bytes) in %.0f ms", kept.tokens, kept.size, ms)
        return Saved(kept, ms)

    # -- restoring ----------------------------------------------------------------------------------------------------

    async def refill(self, backend: Backend) -> tuple[Restored, ...]:
        """Fill the slots of a server that was just started with the snapshots used last, each into the slot it was
        in where that is possible. Also kept in `refilled`."""
        free = list(range(backend.info.slots or 1))
        filled = []
        for snapshot in self.usable()[:len(free)]:
            slot = snapshot.slot if snapshot.slot in free else free[0]
            done = await self.restore(backend, slot, snapshot)
            if isinstance(done, Restored):
                filled.append(done)
                free.remove(slot)
        self.refilled = tuple(filled)
        return self.refilled

    async def restore(self, backend: Backend, slot: int, snapshot: Snapshot) -> Restored | Refused:
        """Put a snapshot into a slot, whose content is lost."""
        async with self._busy:
            shelf, kind = self._shelf, self._kind
            if self.why_not or shelf is None or kind is None or not isinstance(backend, SlotServer):
                return Refused(self.why_not or NO_SERVER)
            if not 0 <= slot < (backend.info.slots or 1):
                return Refused(said(SnapshotProblem.NO_SLOT, slot=slot))
            began = time.perf_counter()
            problem = await self._filed(lambda: shelf.check(snapshot, kind), said(SnapshotProblem.UNREADABLE))
            if problem is not None:
                self._tell(problem)
                return Refused(problem)
            check_ms = (time.perf_counter() - began) * 1000
            if not await backend.alive():  # else its silence would be laid to the snapshot
                return Refused(said(SnapshotProblem.SILENT))
            done = await backend.slot_file("restore", slot, snapshot.file, RESTORE_SECONDS)
            if not done or done.tokens != snapshot.tokens:
                await self._filed(lambda: shelf.drop(snapshot), None)
                return Refused(await self._failed(SnapshotProblem.REFUSED, name=kind.name), slot_emptied=True)
            ms = (time.perf_counter() - began) * 1000
            self._speed = snapshot.size / max(ms / 1000, 1e-3)
            ids = await self._filed(lambda: shelf.token_ids(snapshot), None)
            snapshot = await self._filed(lambda: shelf.touch(snapshot, slot), snapshot)
            log.info("restored %d tokens (%d bytes) in %.0f ms, the check %.0f", snapshot.tokens, snapshot.size, ms,
                     check_ms)
            return Restored(slot, snapshot, ids, ms)

    async def checked(self, snapshot: Snapshot, cached: int, expected: int | None = None) -> Problem | None:
        """Judge a restore by the tokens that the next turn reused of the `expected` ones (None: all in the
        snapshot). What is to be told when it did not work; snapshots may then be given up for this model and build."""
        wanted = snapshot.tokens if expected is None else expected
        if wanted <= 0:  # says nothing
            return None
        if cached >= LEAST_CACHED * wanted:
            if not self._verdict.worked or self._verdict.failures:
                await self._remember(self._verdict.after(True, None))
            return None
        if (shelf := self._shelf) is not None:
            await self._filed(lambda: shelf.drop(snapshot), None)
        return await self._failed(SnapshotProblem.NO_HELP, reused=cached, wanted=wanted)

    async def _failed(self, problem: SnapshotProblem, **arguments: Argument) -> Problem:
        verdict = self._verdict.after(False, said(problem, given_up=True, **arguments))
        await self._remember(verdict)
        why = verdict.why or said(problem, **arguments)
        self._tell(why)
        return why

    async def _remember(self, verdict: Verdict) -> None:
        self._verdict = verdict
        kind, verdicts = self._kind, self._verdicts
        if kind is not None and verdicts is not None:
            await self._filed(lambda: verdicts.put(kind.key, verdict), None)

    # -- removing -----------------------------------------------------------------------------------------------------

    async def forget(self, conversations: Collection[str]) -> None:
        """Remove the snapshots of these conversations, for whatever server they are, and those without a name."""
        shelf, gone = self._shelf, frozenset(conversations)
        if shelf is not None and gone:
            async with self._busy:
                await self._filed(lambda: shelf.remove(gone), None)

    async def tidy(self) -> None:
        """Keep the bounds, and clear leftovers away."""
        if (shelf := self._shelf) is not None:
            async with self._busy:
                await self._filed(shelf.tidy, None)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _filed(self, work: Callable[[], T], otherwise: D) -> T | D:
        """Work on the disk in a thread; `otherwise` when it failed, of which the person is told."""
        try:
            return await asyncio.to_thread(work)
        except SnapshotError as error:
            self._tell(error.problem)
        except PathError as error:
            self._tell(str(error))
        except OSError as error:
            self._tell(said(SnapshotProblem.FOLDER_UNUSABLE, reason=reason(error)))
        return otherwise

    def _tell(self, problem: Problem) -> None:
        if problem not in self._said:
            self._said.add(problem)
            log.warning("%s", snapshot_sentence(problem))
            if self.notice is not None:
                self.notice(problem)
