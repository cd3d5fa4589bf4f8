"""The rail of a conversation: how much of each message the next request would take from the cache, and from where.

It shows what the planner would do now. The server is asked for nothing but the token ids of a branch that is
looked at for the first time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from kvchat.backends.dialect import ChatTurn
from kvchat.cache.tracking import taken_by
from kvchat.chat.cache.routes import Routes
from kvchat.chat.cache.server_cache import ServerCache
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.events import WarmthChanged
from kvchat.prompt.extents import ends_of
from kvchat.prompt.message import Node, Role
from kvchat.reports.rail import NO_WORD, Cached, Stretch, Where
from kvchat.reports.warmth import Heat, Warmth

PLACES = {Heat.WARM: Where.SLOT, Heat.PARKED: Where.STORED, Heat.COLD: Where.NOWHERE}


class Rail:
    """Tells it of open conversations."""

    def __init__(self, core: Core, routes: Routes) -> None:
        self._core = core
        self._routes = routes
        self.reading = ""
        """The last message of the branch whose token ids are being asked for, or were last."""

    def stretches(self, id: str) -> Mapping[str, Stretch]:
        """By message of the branch in use, where its tokens are."""
        conversation = self._core.conversations.loaded[id]
        path, live = conversation.path(), conversation.live
        if live is not None and live.first_token_at is not None:  # a server answers from a slot
            return {node.id: Stretch(Where.SLOT) for node in path}
        total = live.prefill.total if live is not None and live.prefill is not None else None
        begun = live is not None and live.continued is not None
        found = self.cached(conversation).stretches(ends_of(path, total, begun=begun))
        if live is not None and not begun:
            found[-1:] = [NO_WORD]  # nothing of the answer is anywhere yet
        return {node.id: stretch for node, stretch in zip(path, found, strict=True)}

    def cached(self, conversation: OpenConversation) -> Cached:
        """What the next request would take from the cache; of one that runs, or of a warm-up, what is in by now."""
        live, path = conversation.live, conversation.path()
        progress = live.prefill if live is not None else None
        if live is None and conversation.id == self._core.tracker.warming:
            progress = self._core.tracker.warmup_progress
        if progress is not None:
            return Cached(progress.processed, Where.SLOT)
        if live is not None and live.continued is None:  # its question and reply are on no server yet, nor is a result
            path = path[: -1 if path[-1].role is Role.TOOL else -2]
        cache = self._core.tracker.cache_for(conversation.id)
        if cache is None or not cache.prompts.works or not path:
            return _by_size(self._core.tracker.warmth(conversation.id), path)
        turn = self._core.branch_requests.after(conversation.record, path)
        prefix = cache.prompts.known_prefix(turn)
        if not prefix:
            self._read(cache, turn, path[-1].id)
            return _by_messages(cache, conversation.id, path)
        chosen = self._routes.options(cache, conversation.id, path, prefix).chosen
        tokens, place = taken_by(cache.simulated, prefix, chosen)
        return Cached(tokens, Where.SLOT if place == "slot" else Where.STORED)

    def look_again(self, id: str) -> None:
        """The user comes back to the window: others may have used the slots of its server meanwhile."""
        cache = self._core.servers.link(id).cache
        if cache is None or cache.slots.state.asleep or cache.simulated.running is not None:
            return

        async def look() -> None:
            await cache.look()
            self._core.events.tell(WarmthChanged())

        self._core.in_background(look())

    def _read(self, cache: ServerCache, turn: ChatTurn, tip: str) -> None:
        """Ask for the token ids of a branch, once, in the background."""
        if tip == self.reading or cache.slots.state.asleep or not self._core.servers.consent.agreed_to(cache.server):
            return
        self.reading = tip

        async def read() -> None:
            if await cache.prompts.prefix(turn):
                self._core.events.tell(WarmthChanged())

        self._core.in_background(read())


def _by_messages(cache: ServerCache, id: str, path: Sequence[Node]) -> Cached:
    """Where the prompt's token ids are not known: as many of its messages as a slot was last known to hold."""
    held = cache.heads.get(id)
    if held is None:
        return Cached()
    common = sum(1 for _ in takewhile(lambda pair: pair[0].digest.hex() == pair[1], zip(path, held, strict=False)))
    return Cached(ends_of(path)[common - 1] if common else 0, Where.SLOT)


def _by_size(warmth: Warmth, path: Sequence[Node]) -> Cached:
    """Of a server that cannot be followed: as much as it is estimated to hold."""
    if warmth.held is None or warmth.heat is Heat.UNKNOWN:
        return Cached()
    whole = warmth.held + (warmth.to_prefill or 0)
    tokens = warmth.held * ends_of(path)[-1] // whole if path and whole else 0
    return Cached(tokens, PLACES[warmth.heat])
