"""Snapshots of conversations: saved when idle and on quit, restored on return, proved, and given up where of no use.

No trouble with a snapshot reaches a chat, and no state is used that was not proved to be the one that was
saved. Whatever fails gives a value to tell, and the server reads the conversation as it would have without.

A save waits for a busy slot, and a restore replaces what is in one: both are for an idle server, so
the caller holds its lane. After a cancelled restore it is not known what the slot holds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum, auto
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.backends.dialect import NOT_SUPPORTED, Backend, SlotFiles
from kvchat.backends.engine.cache_kind import CacheKind, kind_of
from kvchat.backends.engine.snapshot_file import Snapshot
from kvchat.backends.engine.snapshots import Claims, SnapshotDir, SnapshotError
from kvchat.backends.engine.verdicts import Verdicts
from kvchat.backends.http.transport import unskippable
from kvchat.cache import Memory, StateProbe, Tokens
from kvchat.chat.cache.states.state_proof import RESTORE_S, StateProof, StateReturn
from kvchat.paths import PathError, reason
from kvchat.text.snapshots import SnapshotProblem, snapshot_sentence
from kvchat.values import Statement, said

if TYPE_CHECKING:
    from kvchat.backends.engine.options import EngineOptions


class SlotContent(Struct, frozen=True):
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
    ids: Tokens = Tokens()
    """Its tokens, as far as they are known; where the file tells them, that is believed."""
    memory: Memory = field(default_factory=Memory)
    """How far back the state can go, as far as it is known."""


class SavedSnapshot(Struct, frozen=True):
    snapshot: Snapshot
    ms: float
    """What saving took, the proof included; 0: it was there already."""


class Restored(Struct, frozen=True):
    """The slot now holds what the snapshot says, and nothing else."""

    slot: int
    snapshot: Snapshot
    ids: Tokens
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


class Refused(Struct, frozen=True):
    why: Statement
    slot_emptied: bool = False
    """Whether the server tried and failed; otherwise the slot holds what it held."""


class SlotOutcome(StrEnum):
    """What became of a slot that was saved or restored, apart from what it was for."""

    PROBED = auto()
    """It answered a request, and holds what it held."""
    RESTORED = auto()
    """The same, as it comes back from a file."""
    EMPTIED = auto()


SAVE_SECONDS = 20.0
QUIT_SECONDS = 10.0
"""For all slots together."""
LEAST_SAVED = 0.9
"""Of the tokens that a slot should hold: with fewer it holds something else by now."""
NOT_PROBED = StateProbe((), 0)
_FAILED = {
    StateReturn.CHANGED: SnapshotProblem.CHANGED,
    StateReturn.REFUSED: SnapshotProblem.REFUSED,
    StateReturn.UNUSED: SnapshotProblem.UNUSED,
    StateReturn.UNKNOWN: SnapshotProblem.UNPROVED,
    StateReturn.SILENT: SnapshotProblem.UNPROVED,
}
FIRST_GUESS = 300e6
"""Bytes per second of checking and restoring, before one was measured."""
TOKEN_BYTES = 32 << 10
"""Of a snapshot, before there is one."""

NOT_KEPT, NO_SERVER = said(SnapshotProblem.NOT_KEPT), said(SnapshotProblem.NO_SERVER)

log = logging.getLogger(__name__)
T = TypeVar("T")
D = TypeVar("D")


class Snapshots:
    """The snapshots of one server, in a folder of their own; None: nothing is saved (incognito, or unwanted)."""

    def __init__(
        self,
        folder: Path | None,
        notice: Callable[[Statement], None] | None = None,
        *,
        shelf: SnapshotDir | None = None,
    ) -> None:
        self._shelf = shelf or (SnapshotDir(folder) if folder else None)
        self._verdicts = Verdicts(self._shelf.folder) if self._shelf else None
        self._kind: CacheKind | None = None
        self._proof = StateProof(extends=True)
        self._given_up: Statement | None = None
        self._why_not: Statement | None = NO_SERVER if self._shelf else NOT_KEPT
        self._busy = asyncio.Lock()
        self._speed = FIRST_GUESS
        self._said: set[Statement] = set()
        self._ids: dict[tuple[str, float], Tokens] = {}
        """By the name of a snapshot, and when it was saved."""
        self.notice = notice
        """Told every problem once."""
        self.held: Callable[[], Sequence[SlotContent]] | None = None
        """What the slots hold at quit. None: not known, and every slot is saved without a name."""
        self.refilled: tuple[Restored, ...] = ()
        """What was restored when the server started."""
        self.touched: Callable[[int, SlotOutcome], None] | None = None
        """Told what became of the slot that was named."""

    @property
    def why_not(self) -> Statement | None:
        """Why snapshots are neither saved nor restored with the server in use; None when they are."""
        return self._why_not or self._given_up

    async def use(self, backend: Backend, options: EngineOptions, *, extends: bool = False) -> None:
        """Work with the embedded engine that was started with these options. `extends`: as of `StateProof`."""
        self.leave()
        shelf, verdicts = self._shelf, self._verdicts
        if shelf is None or verdicts is None or options.snapshots is None or not isinstance(backend, SlotFiles):
            self._why_not = NOT_KEPT
            return

        def look() -> tuple[CacheKind, Statement | None]:
            shelf.load()
            kind = kind_of(options.model, backend.info, options.used_threads)
            return kind, verdicts.get(kind.key)

        await self._begin(look, extends)

    async def use_server(self, backend: Backend) -> None:
        """Work with a server that is not kvchat's own, if it saves slots; once it is known whether it does, this asks
        nothing."""
        shelf, verdicts = self._shelf, self._verdicts
        if self._why_not is not NO_SERVER or shelf is None or verdicts is None:
            return
        self._why_not = NOT_KEPT
        saves = await backend.saves_slots() if isinstance(backend, SlotFiles) else None
        if saves is False:
            self._why_not = said(SnapshotProblem.NO_FOLDER)
        elif saves:
            info = backend.info
            shape = f"{info.context_size or 0:,} tokens per slot, {info.slots or 1} slots"
            kind = CacheKind(info.model, shape, info.build)

            def look() -> tuple[CacheKind, Statement | None]:
                shelf.load()
                return kind, verdicts.get(kind.key)

            await self._begin(look, extends=False)

    async def _begin(self, look: Callable[[], tuple[CacheKind, Statement | None]], extends: bool) -> None:
        if (found := await self._filed(look, None)) is not None:
            self._kind, self._given_up = found
            self._proof, self._why_not = StateProof(extends=extends), None

    def shares_cells(self, shares: bool) -> None:
        """Whether the server's slots share one cache, as of `StateProof.moves`."""
        self._proof.moves = shares

    def leave(self) -> None:
        """The server is no longer in use."""
        self._kind, self._given_up, self.refilled = None, None, ()
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

    def candidates(self, digests: Sequence[str]) -> list[Snapshot]:
        """Those that may be of most use for a path (root first): the best one, and the best one without others."""
        found = (self.best_for(digests), self.best_for(digests, whole=True))
        return list({one.name: one for one in found if one is not None}.values())

    def ids(self, snapshot: Snapshot) -> Tokens | None:
        """The tokens of a snapshot, once they were read."""
        return self._ids.get((snapshot.name, snapshot.saved))

    async def read_ids(self, digests: Sequence[str]) -> None:
        """Have the tokens of the `candidates` for a path at hand."""
        shelf, known = self._shelf, {(one.name, one.saved) for one in self.usable()}
        self._ids = {key: ids for key, ids in self._ids.items() if key in known}
        for one in self.candidates(digests):
            key = one.name, one.saved
            if shelf is None or key in self._ids:
                continue
            if (found := await self._filed(partial(shelf.token_ids, one), None)) is not None:
                self._ids[key] = found

    def claim(self, claims: Claims) -> None:
        """What the user keeps, and which conversations there are, is asked of `claims`."""
        if self._shelf is not None:
            self._shelf.claims = claims

    async def kept(self) -> dict[str, Snapshot]:
        """The snapshots that the user keeps, by conversation, for whatever server they are."""
        shelf = self._shelf
        if shelf is None:
            return {}
        async with self._busy:
            await self._filed(shelf.tidy, None)
            return await self._filed(shelf.kept, dict[str, Snapshot]())

    def saved(self, held: SlotContent) -> Snapshot | None:
        """The snapshot that has all of this."""
        return next(
            (
                one
                for one in self.known(held.conversation)
                if held.digest and one.digest == held.digest and one.tokens >= held.tokens
            ),
            None,
        )

    def seconds(self, snapshot: Snapshot) -> float:
        """What restoring it takes, by the restore before; a guess before the first."""
        return snapshot.size / self._speed

    def seconds_for(self, tokens: int) -> float:
        """About what saving or restoring `tokens` takes, in seconds."""
        return self._bytes_of(tokens) / self._speed

    def _bytes_of(self, tokens: int) -> int:
        return int(tokens * max((s.size / s.tokens for s in self.usable() if s.tokens), default=TOKEN_BYTES))

    # -- saving -------------------------------------------------------------------------------------------------------

    async def save(self, backend: Backend, held: SlotContent) -> SavedSnapshot | None:
        """Save what a slot holds; None when it was not saved."""
        return await self._save(backend, held, SAVE_SECONDS)

    async def save_on_quit(self, backend: Backend, held: Sequence[SlotContent] | None = None) -> list[SavedSnapshot]:
        """Save every slot before the server ends; what is saved already costs nothing. `held`: as the attribute of
        that name."""
        if held is None and self.held is not None:
            held = self.held()
        if held is None:
            held = [SlotContent(slot, "", "") for slot in range(backend.info.slots or 1)]
        saved: list[SavedSnapshot] = []
        end = time.monotonic() + QUIT_SECONDS
        for one in held:
            if (left := end - time.monotonic()) <= 0:
                self._tell(said(SnapshotProblem.QUIT_TOO_LONG, seconds=QUIT_SECONDS))
                break
            if (done := await self._save(backend, one, left)) is not None:
                saved.append(done)
        return saved

    async def _save(self, backend: Backend, held: SlotContent, seconds: float) -> SavedSnapshot | None:
        async with self._busy:
            shelf, kind = self._shelf, self._kind
            if (
                self.why_not
                or shelf is None
                or kind is None
                or not isinstance(backend, SlotFiles)
                or not 0 <= held.slot < (backend.info.slots or 1)
            ):
                return None
            if (same := self.saved(held)) is not None:
                touched = await self._filed(lambda: shelf.touch(same, held.slot), None)
                if touched is not None:
                    return SavedSnapshot(touched, 0.0)
            needed = self._bytes_of(held.tokens)
            if await self._filed(lambda: shelf.make_room(needed, held.conversation, held.path), False) is False:
                return None
            return await self._written(shelf, kind, backend, held, seconds)

    async def _written(
        self, shelf: SnapshotDir, kind: CacheKind, backend: SlotFiles, held: SlotContent, seconds: float
    ) -> SavedSnapshot | None:
        began = time.perf_counter()
        name = await self._filed(shelf.fresh, "")
        if not name:
            return None
        kept: Snapshot | None = None

        async def keep(draft: Snapshot, state: Tokens) -> None:
            nonlocal kept
            probe = await self._vouched(backend, draft, state)
            if probe is not None:
                whole = replace(draft, ids=shelf.ids_on_card(state), probe=probe, spread=self._proof.spread or 0.0)
                kept = await self._filed(lambda: shelf.keep(whole), None)

        try:
            done = await backend.slot_file("save", held.slot, f"{name}.bin", seconds)
            if done.status == NOT_SUPPORTED:
                self._why_not = said(SnapshotProblem.NO_FOLDER)
            elif not done:
                self._tell(said(SnapshotProblem.NOT_SAVED))
            elif done.tokens and done.tokens >= LEAST_SAVED * held.tokens:
                path = held.path if held.path[-1:] in ((), (held.digest,)) else (*held.path, held.digest)
                written = Snapshot(
                    name,
                    held.conversation,
                    held.digest,
                    path,
                    held.slot,
                    done.tokens,
                    done.size,
                    "",
                    kind.model,
                    kind.shape,
                    kind.build,
                    0.0,
                    0.0,
                    "",
                    NOT_PROBED,
                    0.0,
                    held.memory,
                )
                draft = await self._filed(lambda: shelf.sealed(written), None)
                if draft is not None and (state := await self._state_of(shelf, draft, held.ids)) is not None:
                    await unskippable(keep(draft, state))
        finally:
            if kept is None:
                await unskippable(self._discarded(shelf, name))
        if kept is None:
            return None
        ms = (time.perf_counter() - began) * 1000
        log.info("saved %d tokens (%d bytes) in %.0f ms", kept.tokens, kept.size, ms)
        return SavedSnapshot(kept, ms)

    async def _discarded(self, shelf: SnapshotDir, name: str) -> None:
        await self._filed(lambda: shelf.discard(name), None)

    async def _state_of(self, shelf: SnapshotDir, snapshot: Snapshot, known: Tokens) -> Tokens | None:
        """The tokens in a snapshot; None where they are not known: then it cannot be proved."""
        found = await self._filed(lambda: shelf.token_ids(snapshot), None)
        if found is None and len(known) >= snapshot.tokens and known.known >= snapshot.tokens:
            found = known.first(snapshot.tokens)
        return found or None

    async def _vouched(self, backend: SlotFiles, draft: Snapshot, state: Tokens) -> StateProbe | None:
        """What the slot answers that was just saved; None when it is of no use, which is mostly the end of snapshots
        for this model and build. A server that did not answer is asked again at the next save."""
        found = await self._proof.vouch(backend, draft.slot, draft.file, state)
        unsure = found is StateReturn.SILENT and self._proof.extends  # it may hold a token more
        emptied = unsure or found in (StateReturn.CHANGED, StateReturn.REFUSED)
        self._touch(
            draft.slot,
            SlotOutcome.EMPTIED if emptied else SlotOutcome.RESTORED if self._proof.restores else SlotOutcome.PROBED,
        )
        if isinstance(found, StateProbe):
            return found
        if found is StateReturn.UNKNOWN:
            self._why_not = said(SnapshotProblem.NO_PROOF)
        elif found in (StateReturn.OTHER, StateReturn.SILENT):
            log.info("slot %d is not saved: %s", draft.slot, found)
        else:
            await self._give_up(_FAILED[found])
        return None

    async def _give_up(self, problem: SnapshotProblem) -> None:
        self._given_up = why = said(problem, given_up=True)
        kind, verdicts = self._kind, self._verdicts
        if kind is not None and verdicts is not None:
            await self._filed(lambda: verdicts.put(kind.key, why), None)
        self._tell(why)

    def _touch(self, slot: int, what: SlotOutcome) -> None:
        if self.touched is not None:
            self.touched(slot, what)

    # -- restoring ----------------------------------------------------------------------------------------------------

    async def refill(self, backend: Backend) -> tuple[Restored, ...]:
        """Fill the slots of a server that was just started with the snapshots used last, each into the slot it was
        in where that is possible. Also kept in `refilled`."""
        free = list(range(backend.info.slots or 1))
        filled = []
        for snapshot in self.usable()[: len(free)]:
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
            if self.why_not or shelf is None or kind is None or not isinstance(backend, SlotFiles):
                return Refused(self.why_not or NO_SERVER)
            if not 0 <= slot < (backend.info.slots or 1):
                return Refused(said(SnapshotProblem.NO_SLOT, slot=slot))
            began = time.perf_counter()
            if not await self._filed(lambda: shelf.is_current(snapshot), False):
                return Refused(said(SnapshotProblem.GONE))
            problem = await self._filed(lambda: shelf.check(snapshot, kind), said(SnapshotProblem.UNREADABLE))
            if problem is not None:
                self._tell(problem)
                return Refused(problem)
            state = await self._filed(lambda: shelf.token_ids(snapshot), None)
            if state is None:
                return Refused(said(SnapshotProblem.NO_TOKENS))
            if not await backend.alive():  # else its silence would be laid to the snapshot
                return Refused(said(SnapshotProblem.SILENT))
            found = StateReturn.UNKNOWN

            async def proved() -> None:
                nonlocal found
                found = await self._returned(backend, slot, snapshot, state)

            await unskippable(proved())
            if found is not StateReturn.PROVED:
                await self._filed(lambda: shelf.drop(snapshot), None)
                problem = said(_FAILED[found])
                self._tell(problem)
                return Refused(problem, slot_emptied=True)
            ms = (time.perf_counter() - began) * 1000
            self._speed = snapshot.size / max(ms / 1000, 1e-3)
            snapshot = await self._filed(lambda: shelf.touch(snapshot, slot), snapshot)
            self._touch(slot, SlotOutcome.PROBED)
            log.info("restored %d tokens (%d bytes) in %.0f ms", snapshot.tokens, snapshot.size, ms)
            return Restored(slot, snapshot, state, ms)

    async def _returned(self, backend: SlotFiles, slot: int, snapshot: Snapshot, state: Tokens) -> StateReturn:
        done = await backend.slot_file("restore", slot, snapshot.file, RESTORE_S)
        if not done:
            return StateReturn.REFUSED
        if (done.tokens, done.size) != (snapshot.tokens, snapshot.size):  # a part of it was taken
            await backend.erase_slot(slot, RESTORE_S)
            return StateReturn.REFUSED
        return await self._proof.returned(backend, slot, snapshot.file, state, snapshot.probe, snapshot.spread)

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
        """Work on the disk in a thread; `otherwise` when it failed, which the user learns."""
        try:
            return await asyncio.to_thread(work)
        except SnapshotError as error:
            self._tell(error.problem)
        except PathError as error:
            self._tell(said(SnapshotProblem.NO_WRITE, sentence=str(error)))
        except OSError as error:
            self._tell(said(SnapshotProblem.FOLDER_UNUSABLE, reason=reason(error)))
        return otherwise

    def _tell(self, problem: Statement) -> None:
        if problem not in self._said:
            self._said.add(problem)
            log.warning("%s", snapshot_sentence(problem))
            if self.notice is not None:
                self.notice(problem)
