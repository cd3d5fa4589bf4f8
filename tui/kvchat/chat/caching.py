"""The server's cache beside the conversations: who answers, what is warm, how fast it reads.

The rule: a chat never fails or waits for what is done here; what is not known is said to be unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kvchat.backends.dialect import (
    Backend,
    BackendError,
    CacheAccess,
    ChatTurn,
    HostClass,
    ServerInfo,
    ServerState,
    TemplateFacts,
)
from kvchat.cache.accounting import NOISE
from kvchat.cache.llamacpp.candidates import Candidates, guesses, shape_from_json, shape_to_json
from kvchat.cache.llamacpp.planner import DETOUR, worth_a_salt
from kvchat.cache.llamacpp.shape import Shape
from kvchat.cache.llamacpp.twin import Twin
from kvchat.cache.speed import SpeedFit, fit, samples_of
from kvchat.cache.tokens import NO_TOKENS, Tokens
from kvchat.cache.warmth import UNKNOWN, Heat, Warmth
from kvchat.chat.conversations import ConversationList
from kvchat.chat.events import ServerChanged, WarmthChanged
from kvchat.chat.evidence import Journal
from kvchat.chat.following import Following
from kvchat.chat.link import Link
from kvchat.chat.live import OpenConversation
from kvchat.chat.looking import LOOK_S
from kvchat.chat.recalling import Notebook, Recollection
from kvchat.prompt.message import Message, Node
from kvchat.prompt.request import wires_of
from kvchat.store import StoreError

TAG_S = 0.3
"""A new conversation waits no longer than this for the question whether it needs a tag."""
DETOUR_S = 2.0
"""A detour that takes longer than this is given up: the request goes out as it is."""
TEMPLATE_S = 2.0
"""Finding out what a template does takes no longer than this; it is a dozen small requests."""
TAG, TEMPLATE = 6, 4
"""About how many tokens a tag has, and the chat template in front of it."""


class Caching(ConversationList):
    """Following the cache of the server in use."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._journal = Journal(lambda: self.clock().timestamp())

    async def follow(self, backend: Backend) -> Following | None:
        """The follower of this server's cache; None where it does not let itself be followed. Sends no text."""
        link = self.links.of(backend)
        async with link.meeting:
            following = await self._followed_by(link, backend)
        if following is not None and (note := self.setting(_cancelled_key(following.server))):
            following.cancelled.take_over(note)
        return following

    async def _followed_by(self, link: Link, backend: Backend) -> Following | None:
        state = await self._state_of(link, backend) if not backend.info.replicas else None
        following = link.following
        known_one = following is not None and following.server is backend.info
        if following is not None and known_one and following.works:
            following.noticed(state or following.state)
            return following
        if (known_one or not isinstance(backend, CacheAccess) or backend.info.host_class is HostClass.CLOUD
                or backend.info.replicas):
            link.following = following if known_one else None
            from kvchat.chat.sharing import SharedPrefixes

            if link.shared is None or link.shared.server is not backend.info:
                link.shared = SharedPrefixes(backend.info)
            return None
        link.shared = None
        known = link.connector.cache_shape()
        shapes = [known] if known is not None else guesses(backend.info.slots, self._learnt(backend.info))
        following = Following(backend, backend.info, Candidates(shapes), now=lambda: self.clock().timestamp(),
                              changed=lambda: self.tell(WarmthChanged()), journal=self._journal,
                              note=partial(self._note_cancelled, _cancelled_key(backend.info)))
        if known is None:
            following.keep(Notebook(
                _states_key(backend.info), self.setting, None if self.incognito else self._note_down,
                self.in_background, partial(self._known_prefix_of, following)), partial(self._prefix_of, following))
        following.noticed(state or ServerState())
        if not following.state.asleep:
            await following.look()
        for slot, held in link.connector.refilled():
            following.twin.restored(slot, held)
        link.following = following
        if not following.state.asleep and self.agreed_to(backend.info):
            self.in_background(self._read_template(link, backend))
        if following.recollection is not None and self.agreed_to(backend.info):
            self.in_background(self._identified(following.recollection))
        self.tell(WarmthChanged())
        return following

    async def _state_of(self, link: Link, backend: Backend) -> ServerState | None:
        """Who answers now; another model or process at the same address is identified anew: it may be a replica."""
        if not isinstance(backend, CacheAccess) or backend.info.host_class is HostClass.CLOUD:
            return None
        try:
            async with asyncio.timeout(LOOK_S):
                state = await backend.server_state()
                known = link.following
                if known is not None and known.server is backend.info and _who(state) != _who(known.state):
                    await backend.identify()
                    if backend.info == known.server:
                        known.server = backend.info  # the same server, started anew
                    self.tell(ServerChanged())
                return state
        except (BackendError, TimeoutError):
            return None

    async def _read_template(self, link: Link, backend: Backend) -> None:
        """Find out what the chat template does, by prompts of invented texts."""
        from kvchat.backends.template import template_facts

        facts = await template_facts(backend)
        if link.info is backend.info:
            link.template = facts

    async def template_facts(self, id: str) -> TemplateFacts | None:
        """What the chat template of a conversation's model does, found out now where it was not before; None where it
        cannot be told. A server that sleeps is not woken for it."""
        link = self.link(id)
        info, following = link.info, link.following
        if info is None or self.asked_model(id) != info.model:
            return None
        asleep = following is not None and following.state.asleep
        if link.template is None and not asleep and self.agreed_to(info):
            try:
                async with asyncio.timeout(TEMPLATE_S):
                    await self._read_template(link, await link.connector.ready())
            except (BackendError, TimeoutError):
                pass
        return link.template or info.template

    async def _identified(self, recollection: Recollection) -> None:
        """Find out the ids of what the server still holds from the last time."""
        await recollection.identify()
        self.tell(WarmthChanged())

    async def _prefix_of(self, following: Following, id: str, tip: str) -> Tokens | None:
        """The token ids of a branch of a conversation, named by the digest of its last message."""
        if not self.agreed_to(following.server):
            return None
        try:
            turn = self._turn_at(await self.opened(id), tip)
        except StoreError:
            return None
        return await following.prefix(turn) if turn is not None else None

    def _known_prefix_of(self, following: Following, id: str, tip: str) -> Tokens | None:
        conversation = self.open_conversations.get(id)
        turn = self._turn_at(conversation, tip) if conversation is not None else None
        return following.known_prefix(turn) if turn is not None else None

    def _turn_at(self, conversation: OpenConversation, tip: str) -> ChatTurn | None:
        """The request that goes on after the branch with this last message."""
        end = next((node for node in conversation.tree if node.digest.hex() == tip), None)
        return self.turn_after(conversation, conversation.tree.path(end.id)) if end is not None else None

    async def _note_down(self, name: str, note: str) -> None:
        """Keep a note of a server."""
        try:
            await self.keeper.write(lambda: self.store.set_setting(name, note))
        except StoreError:
            pass  # the next start reads a little more

    async def _note_states(self) -> None:
        """Note what the servers hold, for the next time; the embedded engine ends with kvchat."""
        for link in self.links:
            if link.following is not None and link.info is not None:
                await link.following.noted_now()

    def _note_cancelled(self, key: str, note: str) -> None:
        """Note for other kvchats on this store which slots still compute what was cancelled; empty: none does."""
        self.in_background(self.keeper.write(lambda: self.store.set_setting(key, note or None)))

    def _learnt(self, info: ServerInfo) -> Shape | None:
        """What was learnt about this server's cache, if anything was."""
        return shape_from_json(self.setting(_rules_key(info)))

    async def _learn(self, link: Link, following: Following) -> None:
        """Keep what was learnt about this server's cache, for the next time."""
        if following.twin.settled and link.connector.cache_shape() is None:
            key, text = _rules_key(following.server), shape_to_json(following.twin.best.shape)
            if self.setting(key) != text:
                await self.keeper.write(lambda: self.store.set_setting(key, text))

    async def _wants_tag(self, link: Link, system: Message) -> bool:
        following = link.following
        if following is None or not self.settings.cache.salt or following.server is not link.info:
            return False
        if not self.agreed_to(following.server):
            return False
        try:
            async with asyncio.timeout(TAG_S):
                prefix = await following.prefix(ChatTurn((system.wire(),), "", following.server.model))
        except TimeoutError:
            return False
        if not prefix:
            return False
        tagged = prefix.first(TEMPLATE) + Tokens.unknown(len(prefix) + TAG - TEMPLATE)
        return worth_a_salt(following.twin.best, prefix, tagged, detour=self.settings.cache.detour)

    # -- a turn ---------------------------------------------------------------------------------------------------

    def turn_after(self, conversation: OpenConversation, path: Sequence[Node]) -> ChatTurn:
        """The request that goes on after `path`, as far as the prompt depends on it."""
        record = conversation.record
        info = self.link(record.id).info
        model = self.asked_model(record.id)
        options = dict(record.template_options)
        if info is not None and info.preserves_reasoning and record.turns == 0:
            options.setdefault("preserve_reasoning", True)
        return ChatTurn(wires_of(path), record.id, model, template_options=options,
                        system_in_user=record.system_in_user)

    async def _detour(self, following: Following) -> None:
        """A tiny unrelated prompt, so that the server looks up what it has parked."""
        try:
            async with asyncio.timeout(DETOUR_S):
                ids = await following.access.tokens_of("0 1 2 3 4 5 6 7 8 9")
        except (BackendError, TimeoutError):
            return
        prompt = Tokens([*reversed(list(ids))]).first(len(DETOUR))
        following.side_request("side", "", prompt)
        try:
            async with asyncio.timeout(DETOUR_S):
                await following.access.read_ahead(prompt, lambda _: None)
            following.twin.end(Tokens.unknown(1))
        except (BackendError, TimeoutError):
            following.side_request_cut(None)
        except asyncio.CancelledError:
            following.side_request_cut(None)
            raise

    def title(self, id: str) -> str:
        """The title of a conversation in the list; empty where there is none."""
        record = self.listed(id)
        return record.title if record is not None else ""

    def speed_fit(self, id: str = "") -> SpeedFit | None:
        """The prefill speed of a conversation's server (without an id: of the one that is looked at), from its last
        answers."""
        return self.speed_of(self.link(id))

    def speed_of(self, link: Link) -> SpeedFit | None:
        info = link.info
        if info is None:
            return None
        if link.speed is None or link.speed[0] is not info:
            try:
                answers = samples_of(reversed(self.store.speed_samples(info.place, info.model, 40)))
                ahead = reversed(self.store.warmup_samples(info.place, info.model))
                link.speed = info, fit([*ahead, *answers])
            except StoreError:
                return None
        return link.speed[1]

    @property
    def saving(self) -> Callable[[int], float] | None:
        """The seconds that reading so many tokens from the beginning takes; None until it was measured."""
        speed = self.speed_fit()
        return (lambda tokens: speed.seconds(0, tokens)) if speed is not None else None

    def setting(self, key: str) -> str:
        """A value kept in the store; empty where there is none, or it cannot be read."""
        try:
            return self.store.setting(key) or ""
        except StoreError:
            return ""

    # -- what is warm ---------------------------------------------------------------------------------------------

    def _twin(self, id: str) -> Twin | None:
        following = self.link(id).following
        return following.twin.best if following is not None else None

    def warmth(self, id: str) -> Warmth:
        """What the server holds of a conversation's branch in use, or a snapshot on the disk."""
        found = self._held_of(id)
        record = self.listed(id)
        if found.heat is not Heat.COLD or record is None:
            return found
        kept = max((snapshot.tokens for snapshot in self.link(id).connector.snapshots.known(id)), default=0)
        if kept <= (found.held or 0):
            return found
        used = record.context_used or kept
        return Warmth(Heat.PARKED, min(kept, used), max(0, used - kept), found.since)

    def _held_of(self, id: str) -> Warmth:
        record = self.listed(id)
        conversation = self.open_conversations.get(id)
        if record is None or record.head is None:
            return UNKNOWN
        following = self.link(id).following
        if following is None or not following.works:
            return self.branch_warmth(id, record.head)
        if conversation is not None and conversation.live is None:
            found = self.branch_warmth(id, record.head)
            if found is not UNKNOWN:
                return found
        if not record.turns:
            return UNKNOWN
        states = [(held, True) for held in following.twin.best.slots if held is not None and held.owner == id]
        states += [(held, False) for held in following.twin.best.parked if held.owner == id]
        if not states:
            return Warmth(Heat.COLD, 0, record.context_used)
        held, in_slot = max(states, key=lambda item: len(item[0].tokens))
        size = len(held.tokens)
        missing = max(0, (record.context_used or size) - 1 - size)
        heat = Heat.WARM if in_slot and missing <= NOISE else Heat.PARKED
        return Warmth(heat, size, missing, held.at)

    def branch_warmth(self, id: str, node_id: str) -> Warmth:
        """What the server holds of the branch that ends at `node_id`; unknown until its tokens were read."""
        link, conversation = self.link(id), self.open_conversations.get(id)
        if conversation is None or node_id not in conversation.tree:
            return UNKNOWN
        following, shared = link.following, link.shared
        path = conversation.tree.path(node_id)
        if following is None or not following.works:
            return shared.warmth(path, id, self.clock().timestamp()) if shared else UNKNOWN
        prefix = following.known_prefix(self.turn_after(conversation, path)) or NO_TOKENS
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


def _who(state: ServerState) -> tuple[str, str, str]:
    return state.model, state.build, state.process


def _rules_key(info: ServerInfo) -> str:
    """The name under which the rules of a server, build and model are kept."""
    return f"cache rules {info.kind} {info.build} {info.model} {info.slots}"


def _cancelled_key(info: ServerInfo) -> str:
    """The name under which is noted which slots of a server still compute a cancelled request."""
    return f"cancelled slots {info.place}"


def _states_key(info: ServerInfo) -> str:
    """The name under which is noted what a server holds."""
    return f"cache states {info.base_url} {info.build} {info.model} {info.slots}"
