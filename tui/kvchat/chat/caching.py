"""The server's cache beside the conversations: what is warm, how a turn is sent, and why it was read again.

The rule: a chat never fails or waits for what is done here; what is not known is said to be unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from kvchat.backends.dialect import Backend, BackendError, CacheAccess, ChatTurn, HostClass, ServerInfo
from kvchat.cache.accounting import NOISE, TurnFigures
from kvchat.cache.candidates import Candidates, guesses, shape_from_json, shape_to_json
from kvchat.cache.causes import explain
from kvchat.cache.planner import DETOUR, worth_a_salt
from kvchat.cache.speed import SpeedFit, fit, samples_of
from kvchat.cache.tokens import NO_TOKENS, Tokens
from kvchat.cache.twin import Twin
from kvchat.cache.warmth import UNKNOWN, Heat, Warmth
from kvchat.chat.conversations import ConversationList
from kvchat.chat.events import WarmthChanged
from kvchat.chat.following import FollowedTurn, Following
from kvchat.chat.live import OpenConversation
from kvchat.chat.recalling import noted, recall
from kvchat.chat.sharing import SharedPrefixes
from kvchat.prompt.message import Message, Node
from kvchat.prompt.request import wires_of
from kvchat.store import StoreError

TAG_S = 0.3
"""A new conversation waits no longer than this for the question whether it needs a tag."""
TAG, TEMPLATE = 6, 4
"""About how many tokens a tag has, and the chat template in front of it."""


class Caching(ConversationList):
    """Following the cache of the server in use."""

    _following: Following | None = None
    _shared: SharedPrefixes | None = None
    """The prefixes sent to a server that cannot be followed."""

    async def _follow(self, backend: Backend) -> Following | None:
        """The follower of this server's cache; None where it does not let itself be followed."""
        following = self._following
        if following is not None and following.server is backend.info:
            return following
        self._following = None
        if not isinstance(backend, CacheAccess) or backend.info.host_class is HostClass.CLOUD:
            if self._shared is None or self._shared.server is not backend.info:
                self._shared = SharedPrefixes(backend.info)
            return None
        self._shared = None
        known = self._connector.cache_shape()
        learnt = shape_from_json(self._store.setting(_rules_key(backend.info)) or "")
        shapes = [known] if known is not None else guesses(backend.info.slots, learnt)
        following = Following(backend, backend.info, Candidates(shapes), now=lambda: self._clock().timestamp(),
                              changed=lambda: self._tell(WarmthChanged()))
        await following.look()
        for slot, held in self._connector.refilled():
            following.twin.restored(slot, held)
        self._following = following
        if known is None and self._store.setting(_states_key(backend.info)):
            self._in_background(self._recalled(following))
        self._tell(WarmthChanged())
        return following

    async def _recalled(self, following: Following) -> None:
        """Find out what the server still holds from the last time."""
        await recall(following, self._store.setting(_states_key(following.server)) or "", self._prefix_of)
        self._tell(WarmthChanged())

    async def _prefix_of(self, id: str, digests: Sequence[str]) -> Tokens | None:
        """The token ids of a branch of a conversation, named by its messages' digests."""
        following = self._following
        try:
            turn = self._turn_at(await self._opened(id), digests)
        except StoreError:
            return None
        return await following.prefix(turn) if following is not None and turn is not None else None

    def _known_prefix_of(self, id: str, digests: Sequence[str]) -> Tokens | None:
        following, conversation = self._following, self._open.get(id)
        turn = self._turn_at(conversation, digests) if conversation is not None else None
        return following.known_prefix(turn) if following is not None and turn is not None else None

    def _turn_at(self, conversation: OpenConversation, digests: Sequence[str]) -> ChatTurn | None:
        """The request that goes on after the branch with these messages."""
        wanted = digests[-1] if digests else ""
        end = next((node for node in conversation.tree if node.digest.hex() == wanted), None)
        return self._turn_after(conversation, conversation.tree.path(end.id)) if end is not None else None

    async def _note_states(self) -> None:
        """Note what the server holds, for the next time; the embedded engine ends with kvchat."""
        following = self._following
        if following is not None and self._connector.cache_shape() is None and not self.incognito:
            key, note = _states_key(following.server), noted(following, self._known_prefix_of)
            try:
                await self._keeper.write(lambda: self._store.set_setting(key, note))
            except StoreError:
                pass  # the next start reads a little more

    async def _learn(self, following: Following) -> None:
        """Keep what was learnt about this server's cache, for the next time."""
        if following.twin.settled and self._connector.cache_shape() is None:
            key, text = _rules_key(following.server), shape_to_json(following.twin.best.shape)
            if self._store.setting(key) != text:
                await self._keeper.write(lambda: self._store.set_setting(key, text))

    async def _wants_tag(self, system: Message) -> bool:
        following = self._following
        if following is None or not self.settings.cache.salt or not self._connector.info:
            return False
        try:
            async with asyncio.timeout(TAG_S):
                prefix = await following.prefix(ChatTurn((system.wire(),), "", self._connector.info.model))
        except TimeoutError:
            return False
        if not prefix:
            return False
        tagged = prefix.first(TEMPLATE) + Tokens.unknown(len(prefix) + TAG - TEMPLATE)
        return worth_a_salt(following.twin.best, prefix, tagged)

    # -- a turn ---------------------------------------------------------------------------------------------------

    def _turn_after(self, conversation: OpenConversation, path: Sequence[Node]) -> ChatTurn:
        """The request that goes on after `path`, as far as the prompt depends on it."""
        info = self._connector.info
        record = conversation.record
        model = record.model or self.settings.server.model or (info.model if info else "")
        options = dict(record.template_options)
        if info is not None and info.preserves_reasoning and record.turns == 0:
            options.setdefault("preserve_reasoning", True)
        return ChatTurn(wires_of(path), record.id, model, template_options=options)

    async def _detour(self, following: Following) -> None:
        """A tiny unrelated prompt, so that the server looks up what it has parked."""
        try:
            ids = await following.access.tokens_of("0 1 2 3 4 5 6 7 8 9")
            prompt = Tokens([*reversed(list(ids))]).first(len(DETOUR))
            following.side_request("side", "", prompt)
            await following.access.read_ahead(prompt, lambda _: None)
            following.twin.end(Tokens.unknown(1))
        except BackendError:
            following.twin.cut(0)

    async def _explained(self, followed: FollowedTurn | None, figures: TurnFigures | None) -> TurnFigures | None:
        """The figures with the prediction and, where tokens were read again, the cause."""
        following = self._following
        if following is None or followed is None or figures is None:
            return figures
        figures = await following.ended(followed, figures) or figures
        await self._checked(followed, figures)
        if (figures.avoidable_tokens or 0) <= NOISE or figures.first_read:
            return figures
        speed = self.speed_fit()
        evidence = following.evidence(followed, figures, self._title)
        start = figures.cached_tokens or 0
        finding = explain(replace(
            evidence, seconds=speed.seconds(start, start + (figures.avoidable_tokens or 0)) if speed else None))
        if finding is None:
            return figures
        return replace(figures, cause=finding.cause.value, evidence=finding.sentence, remedy=finding.remedy or None)

    async def _checked(self, followed: FollowedTurn, figures: TurnFigures) -> None:
        """Look what came of what was done for this turn."""

    def _title(self, id: str) -> str:
        return next((record.title for record in self.conversations() if record.id == id), "")

    def speed_fit(self) -> SpeedFit | None:
        """The server's prefill speed, from its last answers."""
        info = self._connector.info
        if info is None:
            return None
        answers = samples_of(reversed(self._store.speed_samples(info.base_url, info.model, 40)))
        ahead = reversed(self._store.warmup_samples(info.base_url, info.model))
        return fit([*ahead, *answers])

    # -- what is warm ---------------------------------------------------------------------------------------------

    def _twin(self) -> Twin | None:
        return self._following.twin.best if self._following is not None else None

    def warmth(self, id: str) -> Warmth:
        """What the server holds of a conversation's branch in use."""
        record = next((record for record in self.conversations() if record.id == id), None)
        conversation = self._open.get(id)
        if record is None or record.head is None:
            return UNKNOWN
        if self._following is None:
            return self.branch_warmth(id, record.head)
        if conversation is not None and conversation.live is None:
            found = self.branch_warmth(id, record.head)
            if found is not UNKNOWN:
                return found
        if not record.turns:
            return UNKNOWN
        states = [(held, True) for held in self._following.twin.best.slots if held is not None and held.owner == id]
        states += [(held, False) for held in self._following.twin.best.parked if held.owner == id]
        if not states:
            return Warmth(Heat.COLD, 0, record.context_used)
        held, in_slot = max(states, key=lambda item: len(item[0].tokens))
        size = len(held.tokens)
        missing = max(0, (record.context_used or size) - 1 - size)
        heat = Heat.WARM if in_slot and missing <= NOISE else Heat.PARKED
        return Warmth(heat, size, missing, held.at)

    def branch_warmth(self, id: str, node_id: str) -> Warmth:
        """What the server holds of the branch that ends at `node_id`; unknown until its tokens were read."""
        following, conversation = self._following, self._open.get(id)
        if conversation is None or node_id not in conversation.tree:
            return UNKNOWN
        path = conversation.tree.path(node_id)
        if following is None:
            return self._shared.warmth(path, id, self._clock().timestamp()) if self._shared else UNKNOWN
        prefix = following.known_prefix(self._turn_after(conversation, path)) or NO_TOKENS
        if not prefix:
            return UNKNOWN
        found = following.twin.best.predict(prefix)
        missing = max(0, len(prefix) - found.cached - 1)
        twin = following.twin.best
        owned = [held for held in (*twin.slots, *twin.parked) if held is not None and held.owner == id]
        since = max((held.at for held in owned), default=None)
        if missing <= NOISE:
            return Warmth(Heat.WARM if found.source == "slot" else Heat.PARKED, found.cached, missing, since)
        if found.best * 4 >= len(prefix) or found.best > found.cached:
            return Warmth(Heat.PARKED, found.best, missing, since)
        return Warmth(Heat.COLD, found.cached, missing, since)


def _rules_key(info: ServerInfo) -> str:
    """The name under which the rules of a server, build and model are kept."""
    return f"cache rules {info.kind} {info.build} {info.model} {info.slots}"


def _states_key(info: ServerInfo) -> str:
    """The name under which is noted what a server holds."""
    return f"cache states {info.base_url} {info.build} {info.model} {info.slots}"
