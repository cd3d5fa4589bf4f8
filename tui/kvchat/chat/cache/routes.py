"""The way to a prefix: how a request finds in the cache what it needs, and the snapshots that keep it there.

The rule: saving happens while nobody waits; a snapshot is restored only where the simulator of the server's cache says
that it is quicker than to prefill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kvchat.backends.dialect import Backend, BackendError
from kvchat.backends.engine.snapshot_file import Snapshot
from kvchat.cache.accounting import TurnFigures
from kvchat.cache.llamacpp.cache_config import Rewind
from kvchat.cache.llamacpp.planner import DETOUR, Option, Plan, Restorable, Way, plan
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.cache.speed import SpeedFit
from kvchat.cache.tokens import Tokens
from kvchat.chat.cache.server_cache import ServerCache, TrackedTurn
from kvchat.chat.cache.snapshots import Refused, SlotContent
from kvchat.chat.cache.tracker import CacheTracker
from kvchat.chat.conversations import ConversationObserver, Conversations
from kvchat.chat.events import Noticed
from kvchat.chat.ground import Ground
from kvchat.chat.server.link import Link
from kvchat.chat.server.servers import Servers
from kvchat.prompt.message import Node
from kvchat.text.snapshots import snapshot_sentence

DETOUR_S = 2.0
"""A detour that takes longer than this is given up: the request goes out as it is."""
PLAN_S = 1.0
"""How long the token ids of a prefix are waited for where a snapshot may be restored."""
IDLE_S = 60.0
"""How long nothing is asked before the conversation used last is saved."""
FAST = SpeedFit(1 / 4000)
"""A server's speed before it was measured: rather too fast, so that a snapshot is only restored where it pays."""
WORTH_SAVING = 256
"""Tokens that were prefilled since the last save."""


class Routes(ConversationObserver):
    """Chooses the way of every request, and saves and restores the states of conversations."""

    def __init__(self, ground: Ground, conversations: Conversations, servers: Servers, tracker: CacheTracker) -> None:
        self._ground = ground
        self._conversations = conversations
        self._links = servers.links
        self._tracker = tracker
        self._saving: asyncio.Task[None] | None = None
        self._saved: dict[str, int] = {}
        """Tokens in the last snapshot of a conversation."""
        self._unchecked: dict[str, Snapshot] = {}
        """Restored snapshots, by conversation, until a turn has shown that they work."""
        self._links.snapshots.held = self._held
        self._links.snapshots.notice = lambda problem: ground.events.tell(
            Noticed(snapshot_sentence(problem), "warning"))
        conversations.observers.append(self)

    # -- the way --------------------------------------------------------------------------------------------------

    async def planned(self, backend: Backend, cache: ServerCache, tracked: TrackedTurn) -> int | None:
        """Choose how to send a turn and carry out what comes before it; the slot to pin the request to."""
        turn, path = tracked.turn, tracked.extended
        before = turn.extended
        prefix = cache.prompts.known_prefix(before)
        if prefix is None and self._snapshot(cache, path) is not None:
            try:
                async with asyncio.timeout(PLAN_S):  # a snapshot saves more than its ids take to read
                    prefix = await cache.prompts.prefix(before)
            except TimeoutError:
                pass
        if prefix:
            tracked.plan = self.plan(cache, path, prefix)
            await self.prepare(backend, cache, tracked.plan.chosen, turn.session_id, path, prefix)
        return tracked.plan.slot if tracked.plan else None

    async def _detour(self, cache: ServerCache) -> None:
        """A tiny unrelated prompt, so that the server looks up what it has parked."""
        try:
            async with asyncio.timeout(DETOUR_S):
                ids = await cache.access.tokens_of("0 1 2 3 4 5 6 7 8 9")
        except (BackendError, TimeoutError):
            return
        prompt = Tokens([*reversed(list(ids))]).first(len(DETOUR))
        cache.side_request("side", "", prompt)
        try:
            async with asyncio.timeout(DETOUR_S):
                await cache.access.prefill(prompt, lambda _: None)
            cache.simulator.end(Tokens.unknown(1))
        except (BackendError, TimeoutError):
            cache.side_request_cut(None)
        except asyncio.CancelledError:
            cache.side_request_cut(None)
            raise

    def plan(self, cache: ServerCache, path: Sequence[Node], prefix: Tokens, *, idle: bool = False) -> Plan:
        """The cheapest way to have `prefix`, which `path` renders to, in the cache; it is shown as the last plan."""
        cache.plan = self.options(cache, path, prefix, idle=idle)
        return cache.plan

    def options(self, cache: ServerCache, path: Sequence[Node], prefix: Tokens, *, idle: bool = False) -> Plan:
        """As `plan`, for somebody who only wants to know."""
        return plan(
            cache.simulator.best, prefix, detour=self._ground.settings.cache.detour, idle=idle, busy=cache.busy,
            restorable=self._restorable(cache, path))

    def kept_tokens(self, cache: ServerCache, path: Sequence[Node]) -> int:
        """Tokens of a branch that its best snapshot holds."""
        found = self._restorable(cache, path)
        return found.tokens if found is not None else 0


    def _snapshot(self, cache: ServerCache, path: Sequence[Node]) -> Snapshot | None:
        """The snapshot that is of most use for a branch."""
        whole = cache.simulator.best.shape.rewind is not Rewind.ANYWHERE
        return self._links.snapshots.best_for(_digests(path), whole=whole)

    def _restorable(self, cache: ServerCache, path: Sequence[Node]) -> Restorable | None:
        snapshots = self._links.snapshots
        engine = self._links.engine
        if engine is None or engine.cache is not cache:
            return None
        found = self._snapshot(cache, path)
        if found is None:
            return None
        speed = self._tracker.speed_fit() or FAST
        kept = found.tokens if found.shared(_digests(path)) == len(found.path) else 0
        return Restorable(kept, int(snapshots.seconds(found) / speed.alpha)) if kept else None

    async def prepare(self, backend: Backend, cache: ServerCache, option: Option, id: str,
                      path: Sequence[Node], prefix: Tokens) -> None:
        """Carry out what comes before the request."""
        if option.way is Way.DETOUR:
            await self._detour(cache)
        elif option.way is Way.RESTORE and option.slot is not None:
            await self._restore(backend, cache, option.slot, id, path, prefix)

    async def _restore(self, backend: Backend, cache: ServerCache, slot: int, id: str, path: Sequence[Node],
                       prefix: Tokens) -> None:
        snapshots = self._links.snapshots
        found = self._snapshot(cache, path)
        if found is None:
            return
        done = await snapshots.restore(backend, slot, found)
        if isinstance(done, Refused):
            if done.slot_emptied:
                cache.simulator.cleared(slot)
            return
        held = done.ids if done.ids is not None else prefix.first(done.tokens)
        cache.simulator.restored(slot, Held(held, id, self._ground.timestamp()))
        cache.holds(id, found.path)
        self._unchecked[id] = found
        self._saved[id] = found.tokens

    async def checked(self, tracked: TrackedTurn, figures: TurnFigures) -> None:
        """Judge a restored snapshot by the turn after it."""
        found = self._unchecked.pop(tracked.turn.session_id, None)
        if found is not None and figures.cached_tokens is not None:
            expected = tracked.prediction.cached if tracked.prediction else found.tokens
            await self._links.snapshots.checked(found, figures.cached_tokens, min(found.tokens, expected))

    async def deleting(self, id: str) -> None:
        """The snapshots of a conversation go with it."""
        await self._links.snapshots.forget([id])

    # -- saving ---------------------------------------------------------------------------------------------------

    def _held(self) -> list[SlotContent]:
        """What the slots hold of our conversations, for saving."""
        engine = self._links.engine
        cache, info = (engine.cache, engine.info) if engine is not None else (None, None)
        if cache is None:
            return [SlotContent(slot, "", "") for slot in range((info and info.slots) or 1)]
        found = []
        for slot, state in enumerate(cache.simulator.best.slots):
            path = cache.heads.get(state.owner, ()) if state is not None else ()
            if state is not None and path and self._is_kept(state.owner):
                found.append(SlotContent(slot, state.owner, path[-1], len(state.tokens), path))
        return found

    def _is_kept(self, id: str) -> bool:
        """Whether the conversation exists, outside the trash."""
        return self._conversations.listed(id) is not None

    def save_soon(self) -> None:
        """Save the conversation used last, when nothing has been asked for a while."""
        if self._saving is not None:
            self._saving.cancel()
        self._saving = None
        if not self._links.snapshots.why_not:
            self._saving = asyncio.create_task(self._save_when_idle())

    def rest(self) -> set[asyncio.Task[None]]:
        """Save no more; the task that is ended by that."""
        if self._saving is not None:
            self._saving.cancel()
        return {self._saving} if self._saving is not None else set()

    async def _save_when_idle(self) -> None:
        await asyncio.sleep(IDLE_S)
        engine = self._links.engine
        for held in self._held() if engine is not None else ():
            if engine is not None and held.tokens >= self._saved.get(held.conversation, 0) + WORTH_SAVING:
                await engine.lane.in_spare_time(self._save(engine, held))

    def saves_on(self, cache: ServerCache) -> bool:
        """Whether states can be saved on this server."""
        engine = self._links.engine
        return engine is not None and engine.cache is cache and not self._links.snapshots.why_not

    async def save_owned(self, link: Link, cache: ServerCache, owner: str, path: Sequence[Node]) -> None:
        """Save the slot that holds what was prefilled last for `owner`, as the state of `path` or of its beginning.
        Runs in the lane."""
        for slot, state in enumerate(cache.simulator.best.slots):
            if state is not None and state.owner == owner:
                digests = _digests(path)
                await self._save(link, SlotContent(slot, owner, digests[-1], len(state.tokens), digests))

    async def _save(self, engine: Link, held: SlotContent) -> None:
        backend = await engine.connector.ready()
        saved = await self._links.snapshots.save(backend, held.slot, held.conversation, held.digest, held.tokens,
                                                 path=held.path)
        if saved is not None:
            self._saved[held.conversation] = saved.snapshot.tokens


def _digests(path: Sequence[Node]) -> tuple[str, ...]:
    return tuple(node.digest.hex() for node in path)
