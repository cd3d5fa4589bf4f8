"""The way to a prefix: how a request finds in the cache what it needs, and the snapshots that keep it there.

The rule: a snapshot is restored only where the simulator of the server's cache says that it is quicker than to prefill.
Saving happens while nobody waits, or where a request that is waited for would cost another conversation much more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from kvchat.backends.dialect import Backend, BackendError
from kvchat.backends.engine.snapshot_file import Snapshot
from kvchat.cache.causes.cause import Statement
from kvchat.cache.llamacpp.cache_config import Rewind
from kvchat.cache.llamacpp.checkpoints import Memory
from kvchat.cache.llamacpp.planner import DETOUR, WORTH, Option, Plan, Restorable, Way, plan
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.cache.speed import SpeedFit
from kvchat.cache.tokens import Tokens
from kvchat.chat.cache.server_cache import ServerCache, TrackedTurn
from kvchat.chat.cache.snapshots import Refused, SlotContent, Snapshots, Touch
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
"""How long the token ids of a prefix are waited for where a snapshot may be restored, or a state is to be saved."""
IDLE_S = 60.0
"""How long nothing is asked before the conversation used last is saved."""
FAST = SpeedFit(1 / 4000)
"""A server's speed before it was measured: rather too fast, so that a snapshot is only restored where it pays."""
WORTH_SAVING = 256
"""Tokens that were prefilled since the last save."""
SAVE_S = 2.0
"""A save in front of a request that takes longer than this is given up."""
WORTH_WAITING = 4
"""A person waits for a save that is so many times quicker than to prefill what is lost without it."""


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
        self._memories: dict[str, Memory] = {}
        """By the name of a snapshot of this run: how far back its state can go."""
        self._links.snapshots.held = self._held
        self._links.snapshots.notice = self._notice
        conversations.observers.append(self)

    def _notice(self, problem: Statement | str) -> None:
        self._ground.events.tell(Noticed(snapshot_sentence(problem), "warning"))

    async def ready(self, backend: Backend) -> None:
        """Have the snapshots of a server at hand: once, it is asked whether it saves slots."""
        link = self._links.of(backend)
        snapshots = await link.connector.with_snapshots(backend)
        snapshots.notice, snapshots.touched = self._notice, partial(self._touched, link)

    # -- the way --------------------------------------------------------------------------------------------------

    async def planned(self, backend: Backend, cache: ServerCache, tracked: TrackedTurn) -> int | None:
        """Choose how to send a turn and carry out what comes before it; the slot to pin the request to."""
        turn, path = tracked.turn, tracked.extended
        before = turn.extended
        await self.ready(backend)
        prefix = cache.prompts.known_prefix(before)
        if prefix is None and (self._snapshot(cache, path) is not None or self._secured(cache)):
            try:
                async with asyncio.timeout(PLAN_S):  # a snapshot saves more than its ids take to read
                    prefix = await cache.prompts.prefix(before)
            except TimeoutError:
                pass
        if prefix:
            tracked.plan = self.plan(cache, path, prefix)
            await self.prepare(backend, cache, tracked.plan.chosen, turn.session_id, path)
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
            restorable=self._restorable(cache, path), secured=self._secured(cache))

    def kept_tokens(self, cache: ServerCache, path: Sequence[Node]) -> int:
        """Tokens of a branch that its best snapshot holds."""
        found = self._restorable(cache, path)
        return found.tokens if found is not None else 0

    def _snapshots(self, cache: ServerCache) -> Snapshots | None:
        """The snapshots of the server that has this cache; None where none can be used now: while it works for somebody
        else, no state can be proved."""
        link = self._links.with_cache(cache)
        if link is None or cache.busy or link.connector.snapshots.why_not:
            return None
        return link.connector.snapshots

    def _snapshot(self, cache: ServerCache, path: Sequence[Node]) -> Snapshot | None:
        """The snapshot that is of most use for a branch."""
        snapshots, whole = self._snapshots(cache), cache.simulator.best.shape.rewind is not Rewind.ANYWHERE
        return snapshots.best_for(_digests(path), whole=whole) if snapshots is not None else None

    def _restorable(self, cache: ServerCache, path: Sequence[Node]) -> Restorable | None:
        snapshots, found = self._snapshots(cache), self._snapshot(cache, path)
        if snapshots is None or found is None or found.shared(_digests(path)) < len(found.path):
            return None
        return Restorable(found.tokens, self._as_tokens(cache, snapshots.seconds(found)))

    def _secured(self, cache: ServerCache) -> dict[int, int]:
        """By slot whose state is in a snapshot, or can be put into one: what that and restoring it cost, in tokens."""
        snapshots, found = self._snapshots(cache), dict[int, int]()
        for slot in range(len(cache.simulator.best.slots)) if snapshots is not None else ():
            held = self._content(cache, slot)
            if snapshots is not None and held is not None:
                seconds = snapshots.seconds_for(held.tokens)
                found[slot] = self._as_tokens(cache, seconds if snapshots.saved(held) else 2 * seconds)
        return found

    def _as_tokens(self, cache: ServerCache, seconds: float) -> int:
        """How many tokens the server prefills in that time."""
        return int(seconds / (self._tracker.speed_at(cache.server.place, cache.server.model) or FAST).alpha)

    async def prepare(self, backend: Backend, cache: ServerCache, option: Option, id: str, path: Sequence[Node], *,
                      idle: bool = False) -> None:
        """Carry out what comes before the request. `idle`: nobody waits for it."""
        await self._save_first(backend, cache, option, idle)
        if option.way is Way.DETOUR:
            await self._detour(cache)
        elif option.way is Way.RESTORE and option.slot is not None:
            await self._restore(backend, cache, option.slot, id, path)

    async def _save_first(self, backend: Backend, cache: ServerCache, option: Option, idle: bool) -> None:
        """Save the state that gives way to a request, where that is less work than to prefill it once more."""
        snapshots = self._snapshots(cache)
        held = self._content(cache, option.takes) if option.takes is not None else None
        if snapshots is None or held is None or snapshots.saved(held):
            return
        cost = self._as_tokens(cache, 2 * snapshots.seconds_for(held.tokens))
        if option.lost > max(WORTH, cost * (1 if idle else WORTH_WAITING)):
            try:
                async with asyncio.timeout(None if idle else SAVE_S):
                    await self._save(backend, snapshots, held)
            except TimeoutError:
                pass

    async def _restore(self, backend: Backend, cache: ServerCache, slot: int, id: str, path: Sequence[Node]) -> None:
        snapshots, found = self._snapshots(cache), self._snapshot(cache, path)
        if snapshots is None or found is None:
            return
        done = await snapshots.restore(backend, slot, found)
        if isinstance(done, Refused):
            if done.slot_emptied:
                cache.simulator.cleared(slot)
            return
        cache.simulator.restored(slot, Held(
            done.ids, id, self._ground.timestamp(), self._memories.get(found.name, Memory()), found.digest))
        cache.holds(id, found.path)
        self._saved[id] = found.tokens

    async def deleting(self, id: str) -> None:
        """The snapshots of a conversation go with it."""
        await self._links.forget([id])

    def _touched(self, link: Link, slot: int, what: Touch) -> None:
        """A slot was saved or restored: play on the cache of its server what that did to it."""
        cache = link.cache
        if cache is None:
            return
        if what is Touch.EMPTIED:
            cache.simulator.cleared(slot)
        elif what is Touch.RESTORED:
            cache.simulator.put_back(slot)
        cache.probed(slot)

    # -- saving ---------------------------------------------------------------------------------------------------

    def _held(self) -> list[SlotContent]:
        """What the engine's slots hold of our conversations, for saving."""
        engine = self._links.engine
        cache, info = (engine.cache, engine.info) if engine is not None else (None, None)
        if cache is None:
            return [SlotContent(slot, "", "") for slot in range((info and info.slots) or 1)]
        return self._contents(cache)

    def _contents(self, cache: ServerCache) -> list[SlotContent]:
        """What the slots hold of our conversations."""
        found = (self._content(cache, slot) for slot in range(len(cache.simulator.best.slots)))
        return [held for held in found if held is not None]

    def _content(self, cache: ServerCache, slot: int) -> SlotContent | None:
        """What a slot holds of one of our conversations; None where it holds something else, or it is not known of
        which branch."""
        state = cache.simulator.best.slots[slot]
        path = cache.heads.get(state.owner, ()) if state is not None else ()
        if state is None or not path or state.tip not in ("", path[-1]) or not self._is_kept(state.owner):
            return None
        return SlotContent(slot, state.owner, path[-1], len(state.tokens), path, state.tokens)

    def _is_kept(self, id: str) -> bool:
        """Whether the conversation exists, outside the trash."""
        return self._conversations.listed(id) is not None

    def save_soon(self) -> None:
        """Save the conversations used last, when nothing has been asked for a while."""
        if self._saving is not None:
            self._saving.cancel()
        self._saving = None
        if any(not link.connector.snapshots.why_not for link in self._links):
            self._saving = asyncio.create_task(self._save_when_idle())

    async def ended(self) -> None:
        """Return when nothing is saved, or is to be."""
        if self._saving is not None:
            await asyncio.wait({self._saving})

    def rest(self) -> set[asyncio.Task[None]]:
        """Save no more; the task that is ended by that."""
        if self._saving is not None:
            self._saving.cancel()
        return {self._saving} if self._saving is not None else set()

    async def _save_when_idle(self) -> None:
        await asyncio.sleep(IDLE_S)
        for link in self._links:
            cache = link.cache
            for held in self._contents(cache) if cache is not None and self._snapshots(cache) is not None else ():
                if held.tokens >= self._saved.get(held.conversation, 0) + WORTH_SAVING:
                    await link.lane.in_spare_time(self._save_in(link, held))

    def saves_on(self, cache: ServerCache) -> bool:
        """Whether states can be saved on this server."""
        return self._snapshots(cache) is not None

    async def save_owned(self, link: Link, cache: ServerCache, owner: str, path: Sequence[Node]) -> None:
        """Save the slot that holds what was prefilled last for `owner`, as the state of `path` or of its beginning.
        Runs in the lane."""
        for slot, state in enumerate(cache.simulator.best.slots):
            if state is not None and state.owner == owner:
                digests = _digests(path)
                await self._save_in(link, SlotContent(slot, owner, digests[-1], len(state.tokens), digests,
                                                      state.tokens))

    async def _save_in(self, link: Link, held: SlotContent) -> None:
        backend = await link.connector.ready()
        await self._save(backend, link.connector.snapshots, held)

    async def _save(self, backend: Backend, snapshots: Snapshots, held: SlotContent) -> None:
        saved = await snapshots.save(backend, held.slot, held.conversation, held.digest, held.tokens, path=held.path,
                                     ids=held.ids)
        if saved is not None:
            self._saved[held.conversation] = saved.snapshot.tokens
            cache = self._links.of(backend).cache
            state = cache.simulator.best.slots[held.slot] if cache is not None else None
            if state is not None and saved.ms:
                self._memories[saved.snapshot.name] = state.memory


def _digests(path: Sequence[Node]) -> tuple[str, ...]:
    return tuple(node.digest.hex() for node in path)
