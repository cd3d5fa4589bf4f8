"""The way to a prefix: how a request finds in the cache what it needs.

A snapshot is restored only where the simulator of the server's cache says that it is quicker than to prefill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from kvchat.backends.dialect import Backend, BackendError
from kvchat.backends.engine.snapshot_file import Snapshot
from kvchat.cache import Held, Plan, PlannedWay, Rewind, Tokens, Way
from kvchat.cache.tracking import DETOUR, WORTH, Restorable
from kvchat.chat.cache.server_cache import ServerCache
from kvchat.chat.cache.states.snapshots import Refused, Snapshots
from kvchat.chat.cache.states.state_saver import StateSaver, digests
from kvchat.chat.cache.tracked_turn import PreparedRequest
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.prompt.message import Node

DETOUR_S = 2.0
"""A detour that takes longer than this is given up: the request goes out as it is."""
OWN_PROMPT = 1000
"""About the tokens of a prompt in the background that is no conversation's."""
PLAN_S = 1.0
"""How long the token ids of a prompt are waited for where a snapshot may be restored, a state is to be saved, or
a question is asked again."""


class Routes:
    """Chooses the way of every request, and carries out what comes before it."""

    def __init__(self, core: Core, saver: StateSaver) -> None:
        self._core = core
        self._saver = saver

    # -- the way --------------------------------------------------------------------------------------------------

    async def planned(self, backend: Backend, cache: ServerCache, prepared: PreparedRequest) -> int | None:
        """Choose how to send a turn and carry out what comes before it; the slot to pin the request to."""
        turn, path = prepared.turn, prepared.extended
        before = turn.extended
        await self._saver.ready(backend, known_only=cache.is_brief)
        await self._saver.spare(backend, cache, turn.session_id)
        if prepared.kind == "side" and self._next_of_open(cache, turn.session_id):
            prompt = cache.prompts.known_prompt(turn) or await self._read(cache.prompts.prompt(turn))
            if prompt and (way := self._way_sparing(cache, turn.session_id, prompt)) is not None:
                await self.prepare(backend, cache, way, turn.session_id, path)
                return way.slot if way.way is Way.PIN else None
        prefix = cache.prompts.known_prefix(before)
        if prefix is None:
            snapshots, simulated = self._saver.snapshots(cache), cache.simulated
            others_return = simulated.best.shape.gives_own_slots and any(
                simulated.journal.returns_for(turn.session_id, simulated.server).values()
            )
            is_saved = snapshots is not None and (snapshots.candidates(digests(path)) or self._saver.contents(cache))
            if others_return or is_saved:
                prefix = await self._read(cache.prompts.prefix(before))  # what is saved is more than reading ids takes
        if prefix and prepared.asked_before:  # what holds the question, too, is not lost
            prefix = cache.prompts.known_prompt(turn) or await self._read(cache.prompts.prompt(turn)) or prefix
        if not prefix:
            return None
        await self.look_up(cache, path)
        chosen = self.plan(cache, turn.session_id, path, prefix)
        await self.prepare(backend, cache, chosen.chosen, turn.session_id, path)
        return chosen.slot

    def spares_open(self, cache: ServerCache, conversation: OpenConversation | None = None) -> bool:
        """Whether a request in the background for a conversation takes nothing of the one that is looked at, and
        prefills next to nothing but what it adds; None: a prompt of its own, whatever that prefills."""
        if conversation is None:
            return self._way_sparing(cache, "", Tokens.unknown(OWN_PROMPT)) is not None
        path = conversation.path()
        prefix = cache.prompts.known_prefix(self._core.branch_requests.after(conversation.record, path))
        way = self._way_sparing(cache, conversation.id, prefix) if prefix else None
        return not prefix or (way is not None and way.tokens <= max(WORTH, len(prefix) // 4))

    def _way_sparing(self, cache: ServerCache, id: str, prompt: Tokens) -> PlannedWay | None:
        """The cheapest way to send `prompt`, of conversation `id` or of none, that takes nothing of the one that is
        looked at; None: there is none."""
        keep = self._next_of_open(cache, id) or Tokens()
        return cache.simulated.way_sparing(prompt, keep, detour=self._core.settings.cache.detour)

    def _next_of_open(self, cache: ServerCache, id: str) -> Tokens | None:
        """What the next question begins with in the conversation that is looked at, where that is another one than `id`
        and is known to ask this server."""
        open = self._core.conversations.loaded.get(self._core.conversations.looked_at)
        if open is None or open.id == id or self._core.servers.link(open.id).cache is not cache:
            return None
        return cache.prompts.known_prefix(self._core.branch_requests.after(open.record, open.path()))

    async def _read(self, asked: Awaitable[Tokens | None]) -> Tokens | None:
        try:
            async with asyncio.timeout(PLAN_S):
                return await asked
        except TimeoutError:
            return None

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
            cache.simulated.ended(Tokens.unknown(1))
        except (BackendError, TimeoutError):
            cache.side_request_cut(None)
        except asyncio.CancelledError:
            cache.side_request_cut(None)
            raise

    def plan(self, cache: ServerCache, id: str, path: Sequence[Node], prefix: Tokens, *, idle: bool = False) -> Plan:
        """The cheapest way to have `prefix`, which `path` of a conversation renders to, in the cache; it is shown as
        the last plan."""
        cache.plan = self.options(cache, id, path, prefix, idle=idle)
        return cache.plan

    def options(self, cache: ServerCache, id: str, path: Sequence[Node], prefix: Tokens, *, idle: bool = False) -> Plan:
        """As `plan`, for somebody who only wants to know."""
        snapshots = self._saver.snapshots(cache)
        return cache.simulated.before(
            prefix,
            id,
            detour=self._core.settings.cache.detour,
            restorable=self._restorable(cache, snapshots, path, prefix) if snapshots is not None else None,
            secured=self._secured(cache, snapshots) if snapshots is not None else None,
            idle=idle,
        )

    async def look_up(self, cache: ServerCache, path: Sequence[Node]) -> None:
        """Have the tokens of the snapshots at hand that may be of use for a branch, which `options` goes by."""
        if (snapshots := self._saver.snapshots(cache)) is not None:
            await snapshots.read_ids(digests(path))

    def saved_tokens(self, cache: ServerCache, path: Sequence[Node]) -> int:
        """Tokens of a branch that its best snapshot without other messages holds."""
        snapshots = self._saver.snapshots(cache)
        found = snapshots.candidates(digests(path)) if snapshots is not None else ()
        return max((one.tokens for one in found if _is_whole(one, path)), default=0)

    def _restorable(
        self, cache: ServerCache, snapshots: Snapshots, path: Sequence[Node], prefix: Tokens
    ) -> Restorable | None:
        """The snapshot of which the server reuses most for `prefix`, which `path` renders to."""
        candidates = snapshots.candidates(digests(path))
        found = [(self._reused(cache, snapshots.ids(one), one, path, prefix), one) for one in candidates]
        tokens, best = max(found, key=lambda pair: pair[0], default=(0, None))
        if best is None or not tokens:
            return None
        # What the user keeps comes back wherever it holds more: a restore takes a moment whatever its size.
        is_kept = best.conversation in self._saver.claims.all()
        cost = 0 if is_kept else self._saver.as_tokens(cache, snapshots.seconds(best))
        return Restorable(tokens, cost, best.name)

    def _reused(
        self, cache: ServerCache, ids: Tokens | None, snapshot: Snapshot, path: Sequence[Node], prefix: Tokens
    ) -> int:
        """Tokens of `prefix` that the server reuses of a snapshot with these `ids`, as far as is known.

        Of one with other messages too a model that cannot go back at will goes on from a checkpoint, where the files of
        the server's build have these and its rules are known.
        """
        guesses = [cache.simulated.best]
        if not (whole := _is_whole(snapshot, path)):
            guesses.append(cache.simulated.guesses.modest(prefix))
        goes_back = all(guess.shape.rewind is Rewind.ANYWHERE for guess in guesses)
        if ids is None or not (goes_back or (cache.simulated.is_sure and snapshot.memory.checkpoints)):
            return snapshot.tokens if whole else 0
        return min(guess.reused_of(Held(ids, "", 0.0, snapshot.memory), prefix) for guess in guesses)

    def _secured(self, cache: ServerCache, snapshots: Snapshots) -> dict[int, int]:
        """By slot whose state is in a snapshot, or can be put into one: what that and restoring it cost, in tokens."""
        found = dict[int, int]()
        for held in self._saver.contents(cache):
            seconds = snapshots.seconds_for(held.tokens)
            found[held.slot] = self._saver.as_tokens(cache, seconds if snapshots.saved(held) else 2 * seconds)
        return found

    async def prepare(
        self,
        backend: Backend,
        cache: ServerCache,
        option: PlannedWay,
        id: str,
        path: Sequence[Node],
        *,
        idle: bool = False,
    ) -> None:
        """Carry out what comes before the request. `idle`: no request waits for it."""
        await self._saver.give_way(backend, cache, option, idle)
        if option.way is Way.DETOUR:
            await self._detour(cache)
        elif option.way is Way.RESTORE and option.slot is not None:
            await self._restore(backend, cache, option, option.slot, id)

    async def _restore(self, backend: Backend, cache: ServerCache, option: PlannedWay, slot: int, id: str) -> None:
        snapshots, name = self._saver.snapshots(cache), option.restores.name if option.restores is not None else ""
        found = next((one for one in snapshots.usable() if one.name == name), None) if snapshots is not None else None
        if snapshots is None or found is None:
            return
        done = await snapshots.restore(backend, slot, found)
        if isinstance(done, Refused):
            if done.slot_emptied:
                cache.simulated.slots.cleared(slot)
            return
        cache.restored(slot, Held(done.ids, id, self._core.timestamp(), done.snapshot.memory, found.digest))
        cache.holds(id, found.path)
        self._saver.put_back(id, found.tokens)


def _is_whole(snapshot: Snapshot, path: Sequence[Node]) -> bool:
    """Whether a branch has all the messages of a snapshot."""
    return snapshot.shared(digests(path)) >= len(snapshot.path)
