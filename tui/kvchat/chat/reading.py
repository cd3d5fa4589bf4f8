"""Reading ahead: what a person is about to need is read into the server's cache while they read or type.

The rule: only committed text, as a strict prefix of what will be sent; only while nothing else uses the server; ended
at once by any real request. What it costs is counted in a line of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from kvchat.backends.dialect import Backend, BackendError, HostClass, ServerInfo, WarmUp
from kvchat.cache.accounting import PromptProgress
from kvchat.cache.llamacpp.plan import Option, Way
from kvchat.cache.llamacpp.planner import WORTH
from kvchat.cache.speed import SpeedSample
from kvchat.cache.tokens import Tokens
from kvchat.cache.warmth import Heat, Warmth
from kvchat.chat.events import WarmthChanged
from kvchat.chat.following import FollowedTurn, Following
from kvchat.chat.link import Link
from kvchat.chat.live import OpenConversation
from kvchat.chat.power import on_battery
from kvchat.chat.probing import probe, unused
from kvchat.chat.question_builder import QuestionBuilder
from kvchat.chat.restoring import Restoring
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.message import Node, State

REST_S = 1.0
"""How long a conversation is looked at before it is read ahead."""

QUIT_S = 1.5
PLAN_S = 1.0
TOLD_S = 0.25
"""How often the screen is told how far a conversation is read ahead."""

log = logging.getLogger(__name__)


class Reading(Restoring):
    """Reading ahead of the person."""

    reads_ahead = False
    """Whether a person is there to read ahead for: the app sets it."""
    warming = ""
    """The conversation that is being read ahead; empty: none."""
    warmup_progress: PromptProgress | None = None
    _rest: asyncio.Task[None] | None = None
    questions: QuestionBuilder
    _probed: tuple[Following, ...] = ()
    """The servers whose cache was probed, or refused to be."""
    _told_at = 0.0

    async def open(self, id: str) -> OpenConversation:
        """The conversation, loaded. Opening it marks it as read, and it is read ahead when it is rested on. Raises
        UnknownConversation."""
        conversation = await super().open(id)
        self.warm_soon(conversation.id)
        return conversation

    def _link_changed(self, link: Link) -> None:
        super()._link_changed(link)
        if link.connector.connection.phase == "lost" and link.following is None and link.info is not None and (
                link.info.host_class is HostClass.LOOPBACK):
            self._journal.saw(link.info.base_url, "restarted")  # whatever answers there next is a new process
        if link.connector.connection.phase == "ready" and self.looked_at and self.link() is link:
            self.warm_soon(self.looked_at)

    def warmth(self, id: str) -> Warmth:
        """What the server holds of a conversation; of the one that is being read ahead, what it has so far."""
        found, progress = super().warmth(id), self.warmup_progress
        if id != self.warming or progress is None:
            return found
        return Warmth(Heat.PARKED, progress.processed, progress.total - progress.processed, found.since)

    def typing_began(self, id: str) -> None:
        """The person begins to write: see whether the server still holds the conversation, else read it ahead."""
        self.warm_soon(id)

    def prepare(self, id: str, blocks: Sequence[ContextBlock]) -> None:
        """These blocks will stand in front of the next question: they are read ahead while it is typed."""
        if self.questions.prepare(id, blocks):
            self.warm_soon(id)

    def warm_soon(self, id: str, rest: float | None = None) -> None:
        """Read the conversation ahead when it has been looked at for `rest` seconds (None: `REST_S`)."""
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if self.reads_ahead:
            self._rest = asyncio.create_task(self._warm_when_rested(id, REST_S if rest is None else rest))

    async def _warm_when_rested(self, id: str, rest: float) -> None:
        await asyncio.sleep(rest)
        try:
            await self._warm(id)
        except BackendError as error:
            log.info("reading ahead failed: %s", error.sentence)
        except Exception:
            log.exception("reading ahead failed")

    async def _warm(self, id: str) -> None:
        conversation = self.open_conversations.get(id)
        if conversation is None or self.looked_at != id or id in self._answering:
            return
        link = self.link(id)
        if link.connector.connection.phase != "ready" or not link.lane.is_free:
            return
        backend = await link.connector.ready()
        following = await self.follow(backend)  # first: a server that was started anew holds nothing any more
        if not self.settings.cache.warm_up:
            return
        if not self.settings.cache.warm_up_on_battery and await asyncio.to_thread(on_battery):
            return
        if not self.agreed_to(backend.info, id):
            return
        if following is None:
            if isinstance(backend, WarmUp) and self.destination(backend.info, id).host_class is not HostClass.CLOUD:
                await self._warm_unfollowed(link, backend, conversation)
            return
        await following.settled()
        await following.cancelled.free()
        if await self._is_strange(link, following):
            await link.lane.in_spare_time(self._probe(link, following))
        busy = (await following.look()).busy
        if busy and link.lane.works_in_background and self.warmth(id).heat is not Heat.WARM:
            await link.lane.stop_background()
            await following.settled()
            await following.cancelled.free()
            busy = (await following.look()).busy
        if busy:
            return  # somebody else is being answered
        path = conversation.path()
        if not path or path[-1].state is State.STREAMING:
            return
        prefix = await following.prefix(self.turn_after(conversation, path), await self.questions.begun(conversation))
        self.tell(WarmthChanged())
        if not prefix:
            return
        chosen = self._way(following, path, prefix, idle=True).chosen
        if chosen.way is not Way.AS_IS or chosen.tokens > WORTH:
            await link.lane.in_spare_time(self._read_ahead(backend, following, id, path, prefix, chosen))

    async def _warm_unfollowed(self, link: Link, backend: WarmUp, conversation: OpenConversation) -> None:
        """Have a server read a conversation whose cache cannot be followed: where it holds it already, that costs a
        token."""
        path = conversation.path()
        if len(path) < 3 or path[-1].state not in (State.DONE, State.LENGTH) or link.info is None:
            return
        held = self.branch_warmth(conversation.id, path[-1].id).heat is Heat.WARM
        if not held or link.info.replicas:  # what a replica still holds, only it can tell
            await link.lane.in_spare_time(self._read_messages(link, link.info, backend, conversation, path))

    async def _read_messages(self, link: Link, info: ServerInfo, backend: WarmUp, conversation: OpenConversation,
                             path: Sequence[Node]) -> None:
        started, id = time.monotonic(), conversation.id
        self.warming = id
        self.tell(WarmthChanged())
        try:
            turn = replace(self.turn_after(conversation, path), parameters=conversation.record.parameters)
            figures = await backend.read_messages(turn)
        finally:
            self.warming = ""
            self.tell(WarmthChanged())
        now = self.clock().timestamp()
        if link.shared is not None and link.shared.server is info:
            link.shared.read(path, id, now)
        prompt, cached = figures.prompt_tokens, figures.cached_tokens
        if prompt is not None and cached is not None and not figures.estimated:
            self._count(id, info, SpeedSample(cached, prompt, time.monotonic() - started))

    async def _is_strange(self, link: Link, following: Following) -> bool:
        """Whether nothing is known of how this server's cache works, and nobody has used it yet."""
        if following in self._probed:
            return False
        return (link.connector.cache_shape() is None and self._learnt(following.server) is None
                and not following.state.asleep and await unused(following))

    async def _probe(self, link: Link, following: Following) -> None:
        self._probed = (*self._probed, following)
        try:
            await probe(following, lambda read: self._spent("", following, read))
        except BackendError as error:
            log.info("the server's cache was not probed: %s", error.sentence)
        await self._learn(link, following)

    async def _read_ahead(self, backend: Backend, following: Following, id: str, path: Sequence[Node], prefix: Tokens,
                          chosen: Option) -> None:
        """The request of a warm-up. A cancel ends it; what was read stays in the cache."""
        await self._prepared(backend, following, chosen, id, path, prefix)
        slot = chosen.slot if chosen.way is Way.PIN else None
        prediction = following.side_request("warm-up", id, prefix, slot, path[-1].digest.hex())
        read: int | None = None
        cached, started = prediction.cached, time.monotonic()
        self.warming = id
        cause = self._journal.ended_since(path, following.server.base_url)
        self.warmup_progress = PromptProgress(len(prefix), cached, cached, cause=cause)

        def progressed(progress: PromptProgress) -> None:
            nonlocal read, cached
            read, cached = progress.processed, progress.cached
            self.warmup_progress = replace(progress, cause=cause)
            if time.monotonic() - self._told_at >= TOLD_S:
                self._told_at = time.monotonic()
                self.tell(WarmthChanged())

        try:
            done = await following.access.read_ahead(prefix, progressed, slot)
            read = len(prefix)
            following.twin.end(Tokens.unknown(1))
            following.journal.read_whole(following.server.base_url)
            following.holds(id, tuple(node.digest.hex() for node in path))
            if done.cached_tokens is not None:
                cached = done.cached_tokens
                following.twin.reported(cached)
        except (asyncio.CancelledError, BackendError):
            seconds, heard, read = time.monotonic() - started, read or 0, None

            def came(count: int) -> None:
                end = max(heard, min(count, len(prefix)))
                share = (end - cached) / (heard - cached) if heard > cached else 1.0
                self._spent(id, following, SpeedSample(cached, end, seconds * share))

            following.side_request_cut(heard or None, came)
            raise
        finally:
            self.warming, self.warmup_progress = "", None
            if read is not None:
                self._spent(id, following, SpeedSample(cached, read, time.monotonic() - started))
            self.tell(WarmthChanged())
        await following.look()

    def _spent(self, id: str, following: Following, read: SpeedSample) -> None:
        """Note what was read ahead."""
        for link in self.links:
            if link.following is following:
                link.speed = None
        self._count(id, following.server, read)

    def _count(self, id: str, info: ServerInfo, read: SpeedSample) -> None:
        now = self.clock().timestamp()
        if read.end > read.start:
            self.in_background(self.keeper.write(
                lambda: self.store.record_warmup(id, now, info.place, info.model, read)))

    async def _rest_now(self) -> None:
        """End what is done beside the conversations, and wait until what the last answer left is known."""
        tasks = {task for task in (self._rest, self._saving) if task is not None}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*(self._left_alone(link) for link in self.links))
        if tasks:
            await asyncio.wait(tasks, timeout=QUIT_S)
        if self._beside:
            _, late = await asyncio.wait(self._beside, timeout=QUIT_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=QUIT_S)

    async def _left_alone(self, link: Link) -> None:
        await link.lane.stop_spare()
        if link.following is not None:
            await link.following.settled(QUIT_S)

    async def planned(self, backend: Backend, following: Following, followed: FollowedTurn) -> int | None:
        """Choose how to send a turn and carry out what comes before it; the slot to pin the request to."""
        turn, path = followed.turn, followed.path[:-1]
        before = replace(turn, wires=turn.wires[:-1])
        prefix = following.known_prefix(before)
        if prefix is None and self._snapshot(following, path) is not None:
            try:
                async with asyncio.timeout(PLAN_S):  # a snapshot saves more than its ids take to read
                    prefix = await following.prefix(before)
            except TimeoutError:
                pass
        if prefix:
            followed.plan = self._way(following, path, prefix)
            await self._prepared(backend, following, followed.plan.chosen, turn.session_id, path, prefix)
        return followed.plan.slot if followed.plan else None

    def _left(self, conversation: OpenConversation, followed: FollowedTurn | None, answer: Node) -> None:
        """An answer ended: note what it left in the cache, and read ahead what its settled form lacks there."""
        link = self.link(conversation.id)
        following, link.speed = link.following, None
        if followed is not None and followed.finding is not None:
            conversation.findings[answer.id] = followed.finding
        if following is not None and followed is not None and following.plays(followed):
            path = conversation.tree.path(answer.id)
            following.left(followed, answer, self.turn_after(conversation, path))
            self.in_background(self._learn(link, following))
            self._save_soon()
        elif followed is not None:
            followed.closed.set()
            self._journal.answered(followed, answer)
        if (following is None or not following.works) and link.shared is not None:
            link.shared.answered(answer, self.clock().timestamp())
        self.questions.forget(conversation.id)
        for observer in self.turn_observers:
            observer.turn_ended(conversation, answer)
        if self.looked_at:
            self.warm_soon(self.looked_at)
