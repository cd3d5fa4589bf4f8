"""Saving what the slots of servers hold of our conversations, and what stays of that: the kept ones and the trunks.

Saving happens while no request waits, or where a request would cost another conversation much more: what it overwrites
is saved first, if the user keeps it or to prefill it once more took longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from kvchat.backends.dialect import Backend
from kvchat.cache import PlannedWay, Rewind, Tokens
from kvchat.cache.tracking import WORTH
from kvchat.chat.cache.server_cache import ServerCache
from kvchat.chat.cache.states.snapshots import NO_SERVER, SlotContent, SlotOutcome, Snapshots
from kvchat.chat.conversations.conversations import ConversationObserver
from kvchat.chat.core import Core
from kvchat.chat.events import ConversationsChanged, Noticed, ServiceEvent
from kvchat.chat.ground import Ground
from kvchat.chat.server.link import Link
from kvchat.figures.accounting import NOISE
from kvchat.figures.speed import SpeedFit
from kvchat.prompt.message import Node
from kvchat.reports.kept import Keep
from kvchat.store import StoreError
from kvchat.text.snapshots import SnapshotProblem, snapshot_sentence
from kvchat.values import Statement, said

GB = 1_000_000_000
IDLE_S = 60.0
"""How long nothing is asked before the conversation used last is saved."""
FAST = SpeedFit(1 / 4000)
"""A server's speed before it was measured: rather too fast, so that a snapshot is only restored where it pays."""
WORTH_SAVING = 256
"""Tokens that were prefilled since the last save."""
SAVE_S = 2.0
"""A save in front of a request that takes longer than this is given up."""
WORTH_WAITING = 4
"""A request waits for a save that is this many times quicker than to prefill what is lost without it."""
SPARE_S = 2.0
"""Saving kept states in front of a request takes no longer than this."""
SPARE_TOKENS = 64
"""So many may be prefilled for it."""

Settle = Callable[[Backend, ServerCache, str, Sequence[Node], Tokens], Awaitable[None]]
"""Has a slot hold just a branch of a conversation (`chat.cache.warm_up.WarmUp.prefill_now`)."""


class KeptClaims:
    """What is kept, and the claims on the shelf of snapshots (`backends.engine.snapshots.Claims`), which asks in its
    thread."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._store = ground.store
        self._known: Mapping[str, Keep] | None = None
        """By id. None: it is to be read."""
        self._paths: Mapping[str, Sequence[str]] = {}
        ground.events.subscribe(self._heard)

    def all(self) -> Mapping[str, Keep]:
        """What is kept, by the ids of conversations and trunks, the oldest first."""
        if self._known is None:
            try:
                self._known = {kept.id: kept for kept in self._store.kept.all()}
            except StoreError:
                return {}
        return self._known

    def conversations(self) -> Mapping[str, Keep]:
        """The conversations that are kept."""
        return {id: kept for id, kept in self.all().items() if not kept.name}

    def look_again(self) -> None:
        """Something else is kept, or the trash was emptied."""
        self._known = None

    def _heard(self, event: ServiceEvent) -> None:
        if isinstance(event, ConversationsChanged):
            self.look_again()

    def paths(self) -> Mapping[str, Sequence[str]]:
        """By id: the digests of the messages whose state stays, root first; the last known ones where the store cannot
        be read."""
        try:
            self._paths = self._store.kept.paths()
        except StoreError:
            pass
        return self._paths

    def most_bytes(self) -> int:
        return GB * self._ground.settings.cache.kept_gb

    def title(self, id: str) -> str:
        try:
            record = self._store.known(id)
        except StoreError:
            record = None
        kept = self.all().get(id)
        return record.title if record is not None else kept.name if kept is not None else ""


class StateSaver(ConversationObserver):
    """Saves the states of conversations, and removes them with these."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._links = core.servers.links
        self.claims = KeptClaims(core)
        self._settle: Settle | None = None
        self._saving: asyncio.Task[None] | None = None
        self._saved: dict[str, int] = {}
        """Tokens in the last snapshot of a conversation."""
        self._links.snapshots.claim(self.claims)
        self._links.snapshots.held = self._at_quit
        self._links.snapshots.notice = self._notice
        core.conversations.observers.append(self)

    def settle_by(self, settle: Settle) -> None:
        """Have the little that a slot lacks of a kept conversation prefilled by this, before it is saved."""
        self._settle = settle

    def _notice(self, problem: Statement) -> None:
        self._core.events.tell(Noticed(snapshot_sentence(problem), "warning"))

    async def ready(self, backend: Backend, *, known_only: bool = False) -> None:
        """Have the snapshots of a server at hand: once, it is asked whether it saves slots. `known_only`: one that was
        not found to do so before is not asked."""
        link = self._links.of(backend)
        snapshots = await link.connector.with_snapshots(backend, known_only=known_only)
        snapshots.notice, snapshots.touched = self._notice, partial(self._touched, link)
        snapshots.claim(self.claims)
        if (cache := link.cache) is not None:
            snapshots.shares_cells(cache.simulated.best.shape.unified)

    def snapshots(self, cache: ServerCache) -> Snapshots | None:
        """The snapshots of the server that has this cache; None where none can be used now: while it works for somebody
        else, no state can be proved."""
        link = self._links.with_cache(cache)
        if link is None or cache.slots.busy or link.connector.snapshots.why_not:
            return None
        return link.connector.snapshots

    def why_not(self, id: str) -> Statement | None:
        """Why the states of a conversation cannot be saved; None where they can, or its server is not known yet."""
        link = self._core.servers.link(id)
        snapshots = link.connector.snapshots if link.info is not None else self._links.snapshots
        if link.info is None:
            return snapshots.why_not if snapshots.why_not != NO_SERVER else None
        other = snapshots.why_not and not link.connector.runs_engine
        return said(SnapshotProblem.OTHER_SERVER) if other else snapshots.why_not

    async def deleting(self, id: str) -> None:
        """The snapshots of a conversation go with it; those of one that is kept when it is gone for good."""
        if id not in self.claims.all():
            await self._links.forget([id])

    def _touched(self, link: Link, slot: int, what: SlotOutcome) -> None:
        """A slot was saved or restored: play on the cache of its server what that did to it."""
        cache = link.cache
        if cache is None:
            return
        if what is SlotOutcome.EMPTIED:
            cache.simulated.slots.cleared(slot)
        elif what is SlotOutcome.RESTORED:
            cache.simulated.slots.put_back(slot)
        cache.probed(slot)

    # -- what slots hold

    def _at_quit(self) -> list[SlotContent]:
        """What the engine's slots hold of our conversations, for saving."""
        engine = self._links.engine
        cache, info = (engine.cache, engine.info) if engine is not None else (None, None)
        if cache is None:
            return [SlotContent(slot, "", "") for slot in range((info and info.slots) or 1)]
        return self.contents(cache)

    def contents(self, cache: ServerCache) -> list[SlotContent]:
        """What the slots hold of our conversations."""
        found = (self.content(cache, slot) for slot in range(len(cache.simulated.best.slots)))
        return [held for held in found if held is not None]

    def content(self, cache: ServerCache, slot: int) -> SlotContent | None:
        """What a slot holds of one of our conversations; None where it holds something else, or it is not known of
        which branch."""
        state = cache.simulated.best.slots[slot]
        path = cache.heads.get(state.owner, ()) if state is not None else ()
        if state is None or not path or state.tip not in ("", path[-1]) or not self._is_listed(state.owner):
            return None
        return SlotContent(slot, state.owner, path[-1], len(state.tokens), path, state.tokens, state.memory)

    def _is_listed(self, id: str) -> bool:
        """Whether the conversation exists, outside the trash."""
        return self._core.conversations.listed(id) is not None

    def whole(self, cache: ServerCache, id: str, path: Sequence[Node], prefix: Tokens) -> SlotContent | None:
        """The slot that holds just this branch of a conversation, of which every prompt begins with `prefix`, in a form
        from which it can go on after it was restored."""
        simulator, branch = cache.simulated.best, digests(path)
        found = simulator.predict(prefix)
        state = simulator.slots[found.slot]
        if (
            found.source != "slot"
            or len(prefix) - 1 - found.cached > NOISE
            or state is None
            or state.owner != id
            or (cache.heads.get(id) != branch)
        ):
            return None
        if simulator.shape.rewind is Rewind.WINDOW and len(state.tokens) < len(prefix):
            return None  # a file has the window alone: the server goes on from a checkpoint, made by a prefill
        return SlotContent(found.slot, id, branch[-1], len(state.tokens), branch, state.tokens, state.memory)

    # -- before a request overwrites a slot

    async def spare(self, backend: Backend, cache: ServerCache, id: str) -> None:
        """Save the kept states of other conversations than `id` that its request may overwrite. Whoever calls has the
        lane."""
        link = self._links.with_cache(cache)
        if link is None or self.snapshots(cache) is None:
            return
        others = [held for held in self.contents(cache) if held.conversation != id]
        kept = self.claims.all() if others else {}
        for held in others:
            goes_on = held.conversation in kept and not kept[held.conversation].node
            if goes_on and not link.connector.snapshots.saved(held):
                try:
                    async with asyncio.timeout(SPARE_S):
                        await self._save_settled(link, backend, cache, held.conversation)
                except TimeoutError:
                    return

    async def _save_settled(self, link: Link, backend: Backend, cache: ServerCache, id: str) -> None:
        """Save what a slot holds of a conversation where little is missing of its settled form. Whoever calls has the
        lane."""
        conversation = self._core.conversations.load(id)
        path = conversation.path()
        prefix = cache.prompts.known_prefix(self._core.branch_requests.after(conversation.record, path))
        if not prefix or digests(path) != cache.heads.get(id):
            return
        if self.whole(cache, id, path, prefix) is None:
            found = cache.simulated.best.predict(prefix)
            if self._settle is None or found.source != "slot" or len(prefix) - found.cached > SPARE_TOKENS:
                return
            await self._settle(backend, cache, id, path, prefix)
        if (held := self.whole(cache, id, path, prefix)) is not None:
            await self.save_in(link, held)

    async def give_way(self, backend: Backend, cache: ServerCache, option: PlannedWay, idle: bool) -> None:
        """Save the state that gives way to a request, where that is less work than to prefill it once more."""
        snapshots = self.snapshots(cache)
        held = self.content(cache, option.takes) if option.takes is not None else None
        if snapshots is None or held is None or snapshots.saved(held):
            return
        cost = self.as_tokens(cache, 2 * snapshots.seconds_for(held.tokens))
        if option.lost > max(WORTH, cost * (1 if idle else WORTH_WAITING)):
            try:
                async with asyncio.timeout(None if idle else SAVE_S):
                    await self._save(backend, snapshots, held)
            except TimeoutError:
                pass

    def as_tokens(self, cache: ServerCache, seconds: float) -> int:
        """How many tokens the server prefills in that time."""
        return int(seconds / (self._core.speeds.at(cache.server.place, cache.server.model) or FAST).alpha)

    # -- in spare time

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
            if cache is None or self.snapshots(cache) is None:
                continue
            for held in self.contents(cache):
                if held.tokens >= self._saved.get(held.conversation, 0) + WORTH_SAVING:
                    await link.lane.in_spare_time(self._save_at_rest(link, cache, held))

    async def _save_at_rest(self, link: Link, cache: ServerCache, held: SlotContent) -> None:
        """Save what a slot holds; a sliding window with a checkpoint behind the answer, where the next turn goes on."""
        if cache.simulated.best.shape.rewind is Rewind.WINDOW:
            await self._save_settled(link, await link.connector.ready(), cache, held.conversation)
        await self.save_in(link, held)  # nothing more where that was done

    # -- saving

    async def save_owned(self, link: Link, cache: ServerCache, owner: str, path: Sequence[Node]) -> None:
        """Save the slot that holds what was prefilled last for `owner`, as the state of `path` or of its beginning.
        Runs in the lane."""
        for slot, state in enumerate(cache.simulated.best.slots):
            if state is not None and state.owner == owner:
                whole = digests(path)
                tokens, memory = state.tokens, state.memory
                await self.save_in(link, SlotContent(slot, owner, whole[-1], len(tokens), whole, tokens, memory))

    async def save_in(self, link: Link, held: SlotContent) -> None:
        backend = await link.connector.ready()
        await self._save(backend, link.connector.snapshots, held)

    async def _save(self, backend: Backend, snapshots: Snapshots, held: SlotContent) -> None:
        saved = await snapshots.save(backend, held)
        if saved is not None:
            self._saved[held.conversation] = saved.snapshot.tokens

    def put_back(self, id: str, tokens: int) -> None:
        """A conversation was put back from a snapshot of `tokens` tokens: it is saved when it has more."""
        self._saved[id] = tokens


def digests(path: Sequence[Node]) -> tuple[str, ...]:
    return tuple(node.digest.hex() for node in path)
