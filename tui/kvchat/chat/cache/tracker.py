"""The caches of the servers: who answers, what is warm, how fast it prefills, and why tokens were wasted.

A chat never fails or waits because of what is done here, and what is not known is called unknown.

In the order in which they are called:

1. `cache_of`: the `server_cache.ServerCache` of a server and model; None where its cache cannot be tracked, whose
   requests go by `sent`.
2. `watched`: hears the events of a request on their way to the screen.
3. `explained`: the figures of an answer, with the cause of wasted tokens (`cache.causes`).
4. `left`: the answers are stored: what they left in the cache is noted.
5. `warmth`, `branch_warmth`: what the server holds of a conversation now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import monotonic

from msgspec.structs import replace

from kvchat.backends.dialect import (
    Backend,
    BackendError,
    CacheAccess,
    ChatTurn,
    Emit,
    HostClass,
    Progressed,
    PromptShown,
    Replicated,
    ServerInfo,
    SlotFiles,
    StreamEvent,
    TemplateFacts,
    TextDelta,
    Waiting,
)
from kvchat.backends.kinds import kind_of
from kvchat.cache import Cache, Change, Finding, Rewind, ServerState, Shape, Tokens, Trust
from kvchat.cache.tracking import Holding, LastRead, Note, Sent, ServerIdentity, is_tested
from kvchat.chat.cache.branch_ids import ServerBranchIds
from kvchat.chat.cache.branch_requests import BranchRequests
from kvchat.chat.cache.model_file import model_in_file
from kvchat.chat.cache.server_cache import LOOK_S, ServerCache
from kvchat.chat.cache.server_notes import ServerNotes, notes_key
from kvchat.chat.cache.speeds import PrefillSpeeds
from kvchat.chat.cache.tracked_turn import EndedAnswers, SentRequest, TrackedTurn
from kvchat.chat.cache.turn_journal import TurnJournal, identity, stopped_by_model
from kvchat.chat.conversations.conversations import Conversations
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.events import ServerChanged, WarmthChanged
from kvchat.chat.ground import Ground
from kvchat.chat.server.link import Link
from kvchat.chat.server.servers import Servers
from kvchat.figures.accounting import PromptProgress, TurnFigures
from kvchat.figures.cause import Cause
from kvchat.prompt.images import has_images
from kvchat.prompt.message import Node, Role
from kvchat.prompt.request import wires_of
from kvchat.reports.warmth import UNKNOWN, Heat, Warmth
from kvchat.store import StoreError
from kvchat.text.faults import Fault
from kvchat.values import Statement

RECENT_S = 0.5
"""What a server said of itself this long ago still holds: none is started again, its model loaded, in less."""
QUICK_S = 0.1
"""A price waits no longer for a look at the server."""
TEMPLATE_S = 2.0
"""Finding out what a template does takes no longer than this; it is a dozen small requests."""


class CacheTracker:
    """What is known of the cache of every server in use."""

    def __init__(
        self,
        ground: Ground,
        conversations: Conversations,
        servers: Servers,
        requests: BranchRequests,
        speeds: PrefillSpeeds,
    ) -> None:
        self._ground = ground
        self._conversations = conversations
        self._servers = servers
        self._requests = requests
        self._speeds = speeds
        self._journal = TurnJournal(ground.timestamp)
        self.warming = ""
        """The conversation that is warmed up now; empty: none."""
        self.warmup_progress: PromptProgress | None = None
        servers.observers.append(self)

    def link_changed(self, link: Link) -> None:
        """A server of this machine that is lost loses what it held: whatever answers there next is a new process."""
        if (
            link.connector.connection.phase == "lost"
            and link.cache is None
            and link.info is not None
            and (link.info.host_class is HostClass.LOOPBACK)
            and link.connector.connection.refuses  # one that hangs comes back with all that it held
        ):
            self._journal.log.saw(link.info.base_url, "restarted")

    # -- the cache of a server ---------------------------------------------------------------------------------------

    def cache_for(self, id: str) -> ServerCache | None:
        """The cache that a conversation's next request uses; None where none is tracked, as that of another model than
        the one that a router has in use."""
        cache = self._servers.link(id).cache
        return cache if cache is not None and cache.follows(self._servers.asked_model(id)) else None

    async def cache_of(self, backend: Backend, model: str = "", *, sends: bool = False) -> ServerCache | None:
        """The cache of this server for requests that name this model; None where it does not let itself be tracked.
        Sends no text. `sends`: a request goes out at once, before which the slots are looked at anyway: who answers is
        asked for only where they do not show it."""
        link = self._servers.links.of(backend)
        async with link.meeting:
            before = link.cache
            stays = sends and before is not None and before.server is backend.info and await before.stays()
            cache = before if stays else await self._cache_of(link, backend)
            if cache is not None:
                cache.is_looked_at = stays or cache is not before
        if cache is not None:
            cache.cancelled.take_over()
        return cache if cache is not None and cache.follows(model) else None

    def looked_lately(self, id: str) -> bool:
        """Whether the server of a conversation was heard of within `RECENT_S`, or is not tracked."""
        cache = self.cache_for(id)
        return cache is None or monotonic() - cache.heard_at < RECENT_S

    async def look(self, id: str) -> bool:
        """Look who answers at the server of a conversation, if that was not heard of lately: it may have been started
        again. Whether it is known, which it is not of a server that takes longer than `QUICK_S`: the look goes on, so
        that it is the next time."""
        if self.looked_lately(id):
            return True
        looking = self._ground.in_background(self._look(id))
        await asyncio.wait({looking}, timeout=QUICK_S)
        return looking.done() and self.cache_for(id) is not None and self.looked_lately(id)

    async def _look(self, id: str) -> None:
        with suppress(BackendError):
            await self.cache_of(await self._servers.link(id).connector.ready())

    async def _cache_of(self, link: Link, backend: Backend) -> ServerCache | None:
        state = await self._state_of(link, backend) if not backend.info.replicas else None
        cache = link.cache
        known_one = cache is not None and cache.server is backend.info
        if cache is not None and known_one and cache.prompts.works:
            if state is not None:
                cache.noticed(state)
            return cache
        if cache is None and state is not None and self._may_be_several(backend.info, state):
            await self._told_apart(backend)
        if (
            known_one
            or not isinstance(backend, CacheAccess)
            or backend.info.host_class is HostClass.CLOUD
            or backend.info.replicas
        ):
            link.cache = cache if known_one else None
            from kvchat.chat.cache.shared_prefixes import SharedPrefixes

            if link.shared is None or link.shared.server is not backend.info:
                link.shared = SharedPrefixes(backend.info)
            return None
        link.shared = None
        known = link.connector.cache_shape()
        info = backend.info
        of = partial(
            Cache,
            build=info.build,
            server=info.base_url,
            is_router=info.room_for_models is not None,
            journal=self._journal.log,
        )
        if known is not None:
            simulated = of(known=known)
        else:
            model = await model_in_file(info, state.file if state is not None else "")
            simulated = of(info.slots, info.context_size, learnt=self.learnt(info), model=model)
        simulated.trust = Trust.from_json(self._ground.setting(_trust_key(info)))
        cache = ServerCache(backend, info, simulated, self._journal, self._ground)
        if known is None:
            cache.notes = ServerNotes(backend.info, self._ground, self._ids(cache), simulated, self._journal)
            cache.notes.recall()
        cache.is_brief = self._servers.links.is_brief
        cache.noticed(state or ServerState())
        if not cache.slots.state.asleep:
            await cache.look()
        for slot, held in link.connector.refilled():
            cache.simulated.slots.refilled(slot, held)
        link.cache = cache
        if cache.notes is not None and self._servers.consent.agreed_to(backend.info):
            self._ground.in_background(self._identified(cache.notes))
        self._ground.events.tell(WarmthChanged())
        return cache

    async def _state_of(self, link: Link, backend: Backend) -> ServerState | None:
        """Who answers now; another model or process at the same address is identified again: it may be a replica."""
        if not isinstance(backend, CacheAccess) or backend.info.host_class is HostClass.CLOUD:
            return None
        try:
            async with asyncio.timeout(LOOK_S):
                state = await backend.server_state()
                known = link.cache
                if known is not None and known.server is backend.info and _who(state) != _who(known.slots.state):
                    await backend.identify()
                    await self._told_apart(backend, state.process)
                    if state.has_other_file(known.slots.state):
                        known.noticed(state)  # another model by the same name: its cache is another one
                    elif backend.info == known.server:
                        known.server = backend.info  # the same server, started again
                    self._ground.events.tell(ServerChanged())
                return state
        except (BackendError, TimeoutError):
            return None

    def _may_be_several(self, info: ServerInfo, state: ServerState) -> bool:
        """Whether it is to be found out if several servers share an address: in a run that ends with its answer only
        where another one answered the last time."""
        note = Note.from_json(self._ground.setting(notes_key(info)))
        return not self._servers.links.is_brief or (note is not None and note.process not in ("", state.process))

    async def _told_apart(self, backend: Backend, met: str = "") -> None:
        """As of `Replicated`."""
        if isinstance(backend, Replicated):
            await backend.look_for_replicas(met)
            if backend.info.replicas:
                self._ground.events.tell(ServerChanged())

    async def _read_template(self, link: Link, backend: Backend) -> None:
        """Find out what the chat template does, by prompts of invented texts."""
        from kvchat.backends.template import template_facts

        facts = await template_facts(backend)
        if link.info is backend.info:
            link.template = facts

    async def _ask_template(self, link: Link) -> None:
        """Read the template when an answer has come: no request waits for it."""
        try:
            backend = await link.connector.ready()
        except BackendError:
            return
        if link.template is None and self._servers.consent.agreed_to(backend.info):
            await self._read_template(link, backend)

    async def template_facts(self, id: str) -> TemplateFacts | None:
        """What the chat template of a conversation's model does, found out now where it was not before; None where it
        is not known. A server that sleeps is not woken for it."""
        link = self._servers.link(id)
        info, cache = link.info, link.cache
        if info is None or self._servers.asked_model(id) != info.model:
            return None
        asleep = cache is not None and cache.slots.state.asleep
        if link.template is None and not asleep and self._servers.consent.agreed_to(info):
            try:
                async with asyncio.timeout(TEMPLATE_S):
                    await self._read_template(link, await link.connector.ready())
            except (BackendError, TimeoutError):
                pass
        return link.template or info.template

    async def _identified(self, notes: ServerNotes) -> None:
        """Find out the ids of what the server still holds from the last time."""
        await notes.identify()
        self._ground.events.tell(WarmthChanged())

    async def note_states(self) -> None:
        """Note what the servers hold, for the next time; the embedded engine ends with kvchat."""
        for link in self._servers.links:
            cache = link.cache
            if cache is not None and cache.notes is not None and link.info is not None and not self._ground.incognito:
                await cache.notes.noted()
                await self._ids(cache).note_down(cache.simulated.best.held)

    def _ids(self, cache: ServerCache) -> ServerBranchIds:
        return ServerBranchIds(cache, self._ground, self._conversations, self._servers, self._requests)

    def learnt(self, info: ServerInfo) -> Shape | None:
        """What was learnt about this server's cache, if anything was."""
        return Shape.from_json(self._ground.setting(_rules_key(info)))

    async def learn(self, link: Link, cache: ServerCache) -> None:
        """Keep what was learnt about this server's cache, for the next time."""
        learnt = {} if is_tested(cache.server.build) else {_trust_key(cache.server): cache.simulated.trust.to_json()}
        if link.connector.cache_shape() is None:
            learnt[_rules_key(cache.server)] = cache.simulated.best.shape.to_json()
        for key, text in learnt.items():
            if self._ground.setting(key) != text:
                await self._ground.keep_setting(key, text)

    def most_answers(self, id: str) -> int:
        """How many answers to a question one request of a conversation gives. One where a window slides in one cache
        for all slots: the server runs out of room for the others, and breaks all of them off."""
        info, cache = self._servers.link(id).info, self.cache_for(id)
        shape = cache.simulated.best.shape if cache is not None else Shape()
        slides = shape.rewind is Rewind.WINDOW and not shape.whole_window
        if slides and cache is not None and (shape.unified or not cache.simulated.guesses.settled):
            return 1
        asked_by_ids = (
            self._ground.settings.cache.token_ids
            and info is not None
            and info.vocabulary(self._servers.asked_model(id))
        )
        return 1 if info is None or asked_by_ids else info.most_answers

    # -- figures and causes ---------------------------------------------------------------------------------------

    def warms(self, id: str, progress: PromptProgress | None = None) -> None:
        """A conversation is warmed up, and this far; empty: none is any more."""
        self.warming, self.warmup_progress = id, progress

    def ended_since(self, path: Sequence[Node], server: ServerInfo) -> Cause | None:
        """Why what a server held of a branch is gone, as far as that is known before it is sent: nothing of one that
        was last answered elsewhere."""
        cause = self._journal.ended_since(path, server.base_url)
        last = next((node for node in reversed(path) if node.role is Role.ASSISTANT and node.figures is not None), None)
        if cause is None or last is None:
            return None
        try:
            found = self._ground.store.request_of(last.id)
        except StoreError:
            return None
        return cause if found is not None and found.server == server.place else None

    def playing(self, tracked: TrackedTurn) -> ServerCache | None:
        """The cache of the server of a request that is on its way; None where the server was changed meanwhile."""
        cache = self._servers.link(tracked.request.turn.session_id).cache
        return cache if cache is not None and cache.plays(tracked) else None

    async def explained(
        self, tracked: TrackedTurn, cache: ServerCache | None, figures: TurnFigures
    ) -> tuple[TurnFigures, Finding | None]:
        """The figures, and where tokens were wasted the cause."""
        request = tracked.request
        self._journal.log.reported(request.server.base_url, figures)
        block = self._journal.log.block(request.server.base_url, kind_of(request.server.kind).block)
        if cache is None and block > 1:
            figures = replace(figures, block=block)
        evidence = self._journal.evidence(request, figures, self._conversations.title, self._read_earlier)
        link = self._servers.link(request.turn.session_id)
        info = link.info
        if evidence.restarted and not evidence.now.server.embedded:
            evidence = replace(evidence, saves_slots=await _saves_slots(link))
        option = info.reasoning_option if info is not None else None
        evidence = replace(
            evidence,
            loading_seen=evidence.loading_seen or tracked.loading_seen,
            room_for_models=info.room_for_models if info is not None else None,
            can_keep_reasoning=True if option else False if cache is not None else None,
            reasoning_option=option,
        )
        if cache is not None:
            finding = cache.simulated.explain(evidence)
        else:
            from kvchat.cache import finding_of  # after the first paint

            finding = finding_of(evidence)
        if finding is None:
            return figures, None
        figures = replace(figures, cause=finding.cause.value, evidence=finding.evidence, remedy=finding.remedy)
        return figures, finding

    def left(self, conversation: OpenConversation, tracked: TrackedTurn | None, ended: EndedAnswers) -> bool:
        """The answers to a request ended: note what they left in the cache, which is the first one. Whether that cache
        is tracked."""
        answer, *others = ended.answers
        link = self._servers.link(conversation.id)
        cache = link.cache
        self._speeds.measured()
        is_tracked = cache is not None and tracked is not None and cache.plays(tracked)
        if cache is not None and tracked is not None and is_tracked:
            path = conversation.tree.path(answer.id)
            if others and any(map(_ran_out, ended.answers)):
                cache.simulated.slots.ran_out()
            cache.left(tracked, ended, self._requests.after(conversation.record, path))
            self._ground.in_background(self.learn(link, cache))
            if not link.template_asked and not self._servers.links.is_brief:
                link.template_asked = True
                self._ground.in_background(self._ask_template(link))
        elif tracked is not None:
            self._journal.answered(tracked.request, answer)
        if tracked is not None:
            for other in others:
                self._journal.answered(tracked.request, other)
        if cache is None or not cache.prompts.works:
            self._answered_untracked(link, conversation.tree.path(answer.id))
        return is_tracked

    def _answered_untracked(self, link: Link, path: Sequence[Node]) -> None:
        """An answer, the last of `path`, of a server whose cache cannot be tracked. That may have shown while it was
        asked for."""
        from kvchat.chat.cache.shared_prefixes import SharedPrefixes

        now = self._ground.timestamp()
        if link.shared is None and link.info is not None:
            link.shared = SharedPrefixes(link.info)
            link.shared.sent(path[:-1], now)
        if link.shared is not None:
            link.shared.answered(path[-1], now)

    def sent(self, backend: Backend, turn: ChatTurn, path: Sequence[Node]) -> TrackedTurn:
        """A request to a server that cannot be tracked, for what is known of it all the same."""
        server = identity(backend.info, turn.model)
        return TrackedTurn(SentRequest(turn, path, server, number=self._journal.log.next()))

    def watched(self, tracked: TrackedTurn, emit: Emit) -> Emit:
        """`emit`, that also notes when the server had to load its model first, and says with how far the prompt is read
        how long the history is and why it is read again, as far as that is known."""
        turn = tracked.request.turn
        info, cache = self._servers.link(turn.session_id).info, self.playing(tracked)
        ended = self.ended_since(tracked.request.path, info) if info is not None else None
        model = info.known(turn.model or info.model) if info is not None else None
        tracked.loading_seen = model is not None and model.loaded is False

        said: list[str] = []
        is_brief = self._servers.links.is_brief  # then what came is tokenised once, behind the prompt

        def noting(event: StreamEvent) -> None:
            if isinstance(event, Waiting) and event.phase == "loading":
                tracked.loading_seen = True
            if isinstance(event, PromptShown):
                if cache is not None:
                    cache.shown(tracked, event, "".join(said))
                return
            if is_brief and isinstance(event, TextDelta):
                said.append(event.text)
            if isinstance(event, Progressed):
                if cache is not None:
                    cache.progressed(tracked, event.progress)
                event = Progressed(replace(event.progress, shared=tracked.request.sent_before, cause=ended))
            emit(event)

        return noting

    def did(self, conversation: OpenConversation, change: Change, node_id: str | None = None) -> None:
        """The user changed what is sent: note it for the next turn. `node_id`: the message it was done to."""
        places = [n.id for n in conversation.tree.path(node_id)] if node_id in conversation.tree else []
        self._journal.did(conversation.id, change, len(places) - 1 if places else None)

    def _read_earlier(self, answer: Node) -> LastRead | None:
        """What was read for an answer before kvchat was started."""
        found, figures = self._ground.store.request_of(answer.id), answer.figures
        conversation = next((c for c in self._conversations.loaded.values() if answer.id in c.tree), None)
        info = self._servers.link(conversation.id).info if conversation is not None else None
        if found is None or info is None or figures is None or conversation is None:
            return None
        server = ServerIdentity(
            found.server, found.kind, found.build, found.model, info.embedded and found.build == info.build
        )
        wires = wires_of(conversation.tree.path(answer.id)[:-1])
        return LastRead(
            Sent(server, wires),
            figures.prompt_tokens,
            figures.predicted_tokens,
            None,
            answer.text,
            answer.message.reasoning,
            stopped=stopped_by_model(answer.state),
            calls=bool(answer.message.calls),
            window=figures.context_size,
        )

    # -- warmth ------------------------------------------------------------------------------------------------------

    def warmth(self, id: str) -> Warmth:
        """What the server holds of a conversation's branch in use, or a snapshot on the disk; of the one that is warmed
        up, what it has so far."""
        found, progress = self._held_or_kept(id), self.warmup_progress
        if id != self.warming or progress is None:
            return found
        return Warmth(Heat.PARKED, progress.processed, progress.total - progress.processed, found.since)

    def _held_or_kept(self, id: str) -> Warmth:
        found = self._held_of(id)
        record = self._conversations.listed(id)
        if found.heat is not Heat.COLD or record is None:
            return found
        kept = max((snapshot.tokens for snapshot in self._servers.link(id).connector.snapshots.known(id)), default=0)
        if kept <= (found.held or 0):
            return found
        used = record.context_used or kept
        return Warmth(Heat.PARKED, min(kept, used), max(0, used - kept), found.since, exact=False)

    def _held_of(self, id: str) -> Warmth:
        record = self._conversations.listed(id)
        conversation = self._conversations.loaded.get(id)
        if record is None or record.head is None:
            return UNKNOWN
        if self._servers.link(id).connector.connection.refuses:  # with its process went all that it held
            return Warmth(Heat.COLD, 0, record.context_used, exact=False)
        live = conversation.live if conversation is not None else None
        if live is not None and live.first_token_at is not None:  # a server answers from a slot
            return Warmth(
                Heat.WARM, live.prefill.total if live.prefill else record.context_used, 0, self._ground.timestamp()
            )
        cache = self.cache_for(id)
        if cache is None or not cache.prompts.works:
            return self.branch_warmth(id, record.head)
        if conversation is not None and live is None:
            warmth = self.branch_warmth(id, record.head)
            if warmth is not UNKNOWN:
                return warmth
        if not record.turns:
            return UNKNOWN
        found = Holding.of_owner(cache.simulated, id, record.context_used)
        if found is not None:
            return _warmth(found)
        if conversation is not None and has_images(wires_of(conversation.path())):
            return UNKNOWN  # only the server knows its tokens
        if id in cache.unfollowed:
            return UNKNOWN
        return Warmth(Heat.COLD, 0, record.context_used, exact=False)

    def branch_warmth(self, id: str, node_id: str) -> Warmth:
        """What the server holds of the branch that ends at `node_id`; unknown until its tokens were read."""
        link, conversation = self._servers.link(id), self._conversations.loaded.get(id)
        if conversation is None or node_id not in conversation.tree:
            return UNKNOWN
        cache, shared = self.cache_for(id), link.shared
        path = conversation.tree.path(node_id)
        if cache is None or not cache.prompts.works:
            return shared.warmth(path, self._ground.timestamp()) if shared else UNKNOWN
        prefix = cache.prompts.known_prefix(self._requests.after(conversation.record, path)) or Tokens()
        if not prefix:
            return UNKNOWN
        return _warmth(Holding.of_prompt(cache.simulated, prefix, id, detour=self._ground.settings.cache.detour))


HEATS = {"slot": Heat.WARM, "stored": Heat.PARKED, "nowhere": Heat.COLD}


def _warmth(found: Holding) -> Warmth:
    return Warmth(HEATS[found.place], found.tokens, found.missing, found.since, found.exact)


def _ran_out(answer: Node) -> bool:
    """Whether the server had no room for more of an answer though its window was not half full."""
    figures = answer.figures
    if figures is None or not isinstance(answer.note, Statement) or not answer.note.is_a(Fault.WINDOW_FULL):
        return False
    return (figures.context_used or 0) < (figures.context_size or 0) // 2


def _who(state: ServerState) -> tuple[str, str, str]:
    return state.model, state.build, state.process


def _trust_key(info: ServerInfo) -> str:
    """The name under which it is kept what a server, build and model have shown."""
    return f"cache trust {info.base_url} {info.build} {info.model}"


def _rules_key(info: ServerInfo) -> str:
    """The name under which the rules of a server, build and model are kept."""
    return f"cache rules {info.kind} {info.build} {info.model} {info.slots}"


async def _saves_slots(link: Link) -> bool | None:
    """Whether a server saves slots to files; None: not known."""
    try:
        backend = await link.connector.ready()
    except BackendError:
        return None
    return await backend.saves_slots() if isinstance(backend, SlotFiles) else None
