"""Kept states: conversations, or branches of them, whose state the user wants to stay.

What is kept is a row of the store, and its snapshot is protected by that row alone. It is saved while the
server is idle, again after every turn where it follows the conversation, and never dropped to make room: where there is
none, the user learns what to release. Only a request that would overwrite it before it is saved waits for that.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kvchat.backends.dialect import BackendError
from kvchat.chat.cache.states.snapshots import SlotContent, Snapshots
from kvchat.chat.cache.states.state_saver import StateSaver
from kvchat.chat.cache.warm_up import REST_S, WarmUp
from kvchat.chat.conversations.conversations import ConversationObserver
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.events import ConversationChanged, ConversationsChanged
from kvchat.chat.server.link import Link
from kvchat.prompt.message import Node, Role, State
from kvchat.reports.kept import Keep
from kvchat.store import StoreError
from kvchat.text.format import size
from kvchat.text.problems import ChatProblem
from kvchat.text.snapshots import SnapshotProblem, snapshot_sentence

if TYPE_CHECKING:
    from kvchat.reports.cache_report import KeptRoom

log = logging.getLogger(__name__)


class KeptStates(ConversationObserver):
    """Keeps and releases them, and saves them."""

    def __init__(
        self,
        core: Core,
        saver: StateSaver,
        warm_up: WarmUp,
    ) -> None:
        self._core = core
        self._store = core.store
        self._claims = saver.claims
        self._saver = saver
        self._warm_up = warm_up
        self._links = core.servers.links
        self._saving: dict[str, asyncio.Task[None]] = {}
        """By conversation."""
        core.conversations.observers.append(self)
        core.servers.observers.append(self)

    # -- what is kept -------------------------------------------------------------------------------------------------

    async def room(self) -> KeptRoom:
        """What is kept, with what is saved of it and the room that it takes."""
        from kvchat.reports.cache_report import KeptRoom, KeptState

        self._claims.look_again()  # the trash may have been emptied
        rows, found = self._claims.conversations(), list[KeptState]()
        paths = await asyncio.to_thread(self._claims.paths)
        saved = await self._links.kept(paths)
        for id, kept in rows.items():
            snapshots = self._snapshots(id)
            usable = None if snapshots.why_not else snapshots.usable()
            record, snapshot, path = self._store.known(id), saved.get(id), paths.get(id, ())
            found.append(
                KeptState(
                    kept,
                    record.title if record is not None else "",
                    record is not None and record.trashed is not None,
                    snapshot.tokens if snapshot else None,
                    snapshot.size if snapshot else None,
                    snapshot is None or usable is None or snapshot in usable,
                    snapshot is not None and len(snapshot.path) == len(path),
                )
            )
        return KeptRoom(tuple(found), self._claims.most_bytes())

    async def keep(self, id: str, node: str = "") -> None:
        """Keep the state of a conversation, as it goes on; or that up to the turn of the message `node`, unless that is
        the last one. Raises ChatError."""
        conversation = self._core.conversations.load(id)
        if self._core.incognito:
            raise ChatError(ChatProblem.KEEP_INCOGNITO)
        if conversation.record.turns == 0:
            raise ChatError(ChatProblem.KEEP_EMPTY)
        if why := self._saver.why_not(id):
            off = why is not None and why.is_a(SnapshotProblem.NOT_KEPT)
            raise ChatError(ChatProblem.KEEP_OFF) if off else ChatError.of(snapshot_sentence(why))
        node = _end_of_turn(conversation, node) if node else ""
        await self._must_fit(conversation)
        kept = Keep(id, node, self._core.timestamp())
        try:
            await self._core.writer.call(lambda: self._store.kept.put(kept))
        except StoreError as error:
            raise ChatError.of(error) from None
        self._changed(id)
        self._save_soon(id, prefills=True)

    async def switch(self, id: str, node: str = "") -> None:
        """Keep it, or no longer where just that is kept. Raises ChatError."""
        now = self._claims.conversations().get(id)
        if now is not None and (not node or _end_of_turn(self._core.conversations.load(id), node) == now.node):
            await self.release(id)
        else:
            await self.keep(id, node)

    async def release(self, id: str) -> None:
        """Keep it no longer: its state is a snapshot like any other again. Raises ChatError."""
        if (task := self._saving.pop(id, None)) is not None:
            task.cancel()
        try:
            await self._core.writer.call(lambda: self._store.kept.remove(id))
        except StoreError as error:
            raise ChatError.of(error) from None
        await self._links.snapshots.tidy()
        if (record := self._store.known(id)) is None or record.trashed is not None:
            await self._links.forget([id])
        self._changed(id)

    async def _must_fit(self, conversation: OpenConversation) -> None:
        """Raises ChatError where the kept states have no room for one of this conversation, by what the others take
        for a token."""
        room, id = await self.room(), conversation.id
        known = self._snapshots(id).usable()
        each = max((snapshot.size / snapshot.tokens for snapshot in known if snapshot.tokens), default=0.0)
        own = max((snapshot.size for snapshot in known if snapshot.conversation == id), default=0)
        needed = max(own, int(each * (conversation.record.context_used or 0)), 1)
        others = [state for state in room.states if state.kept.id != id]
        if sum(state.size or 0 for state in others) + needed > room.most:
            largest = max(others, key=lambda state: state.size or 0, default=None)
            if largest is None:
                raise ChatError(ChatProblem.KEEP_NO_ROOM, room=size(room.most))
            raise ChatError(
                ChatProblem.KEEP_NO_ROOM_BUT, room=size(room.most), title=largest.title, frees=size(largest.size or 0)
            )

    def _snapshots(self, id: str) -> Snapshots:
        """Those of the server of a conversation."""
        return self._core.servers.link(id).connector.snapshots

    def _changed(self, id: str) -> None:
        self._core.events.tell(ConversationsChanged())
        self._core.events.tell(ConversationChanged(id))

    # -- saving -------------------------------------------------------------------------------------------------------

    def turn_ended(self, conversation: OpenConversation, answer: Node) -> None:
        """A kept conversation goes on: so does its state."""
        self._follow(conversation.id)

    def opened(self, id: str, before: str) -> None:
        """What is kept and was not saved yet is saved when the server has it: it may be warmed up now."""
        self._follow(id, looked_at=True)

    def link_changed(self, link: Link) -> None:
        """A server is there: so for what is looked at."""
        looked_at = self._core.conversations.looked_at
        if link.connector.connection.phase == "ready" and looked_at and self._core.servers.link() is link:
            self._follow(looked_at, looked_at=True)

    def _follow(self, id: str, *, looked_at: bool = False) -> None:
        if id not in self._saving and (kept := self._claims.conversations().get(id)) is not None:
            self._save_soon(id, prefills=looked_at and bool(kept.node), rests=looked_at)

    def _save_soon(self, id: str, *, prefills: bool, rests: bool = False) -> None:
        """Save it when its server is idle. `prefills`: also where no slot holds it; else only what its settled form
        lacks there. `rests`: when it was looked at for a while, and is warmed up."""
        if (task := self._saving.pop(id, None)) is not None:
            task.cancel()
        self._saving[id] = task = asyncio.create_task(self._save(id, prefills, rests))
        task.add_done_callback(lambda task: self._done(id, task))

    def _done(self, id: str, task: asyncio.Task[None]) -> None:
        if self._saving.get(id) is task:
            del self._saving[id]

    def rest(self) -> set[asyncio.Task[None]]:
        """Save no more; the tasks that are ended by that."""
        tasks = {*self._saving.values()}
        for task in tasks:
            task.cancel()
        return tasks

    async def settled(self) -> None:
        """Return when nothing waits to be saved."""
        while self._saving:
            await asyncio.wait(self._saving.values())

    async def _save(self, id: str, prefills: bool, rests: bool) -> None:
        try:
            if rests:
                await asyncio.sleep(REST_S)
                await self._warm_up.ended()
            while not await self._saved(id, prefills):
                pass
        except (BackendError, StoreError) as error:
            log.info("a kept state was not saved: %s", error)
        except Exception:
            log.exception("a kept state was not saved")

    async def _saved(self, id: str, prefills: bool) -> bool:
        """Try once; whether there is nothing to do any more."""
        link = self._core.servers.link(id)
        await link.lane.freed()
        kept, connector = self._claims.conversations().get(id), link.connector
        if kept is None or connector.connection.phase != "ready":
            return True
        conversation = self._core.conversations.load(id)
        path = conversation.path()
        if kept.node:
            if kept.node not in conversation.tree:
                return True
            path = conversation.tree.path(kept.node)
        if path[-1].state is State.STREAMING or self._snapshots(id).saved(SlotContent(0, id, path[-1].digest.hex())):
            return True
        backend = await connector.ready()
        cache = await self._core.tracker.cache_of(backend)
        await self._saver.ready(backend)
        if cache is None or self._saver.why_not(id):
            return True
        await cache.settled()
        prefix = await cache.prompts.prefix(self._core.branch_requests.after(conversation.record, path))
        if not prefix:
            return True
        held = self._saver.whole(cache, id, path, prefix)
        if held is None:
            owns = any(state is not None and state.owner == id for state in cache.simulated.best.slots)
            if not prefills and (kept.node or not owns):
                return True
            if kept.node and not await self._save_head(link, id):
                return False
            if not await link.lane.in_spare_time(self._warm_up.prefill_now(backend, cache, id, path, prefix)):
                return False
            held = self._saver.whole(cache, id, path, prefix)
        if held is None or self._snapshots(id).saved(held):
            return True
        done = await link.lane.in_spare_time(self._saver.save_in(link, held))
        if done:
            self._changed(id)
            looked_at = self._core.conversations.looked_at
            if looked_at and (kept.node or looked_at != id):
                self._warm_up.soon(looked_at)  # another branch has the slot now
        return done

    async def _save_head(self, link: Link, id: str) -> bool:
        """Save what a slot holds of a conversation before another branch of it is prefilled there; whether that came
        to its end."""
        cache = link.cache
        held = next((held for held in self._saver.contents(cache) if held.conversation == id), None) if cache else None
        if held is None or self._snapshots(id).saved(held):
            return True
        return await link.lane.in_spare_time(self._saver.save_in(link, held))


def _end_of_turn(conversation: OpenConversation, node: str) -> str:
    """The answer of the turn that a message belongs to; empty for the last one. Raises ChatError."""
    tree, path = conversation.tree, {one.id for one in conversation.path()}
    question, answer = tree.turn_of(node)
    if answer is None:
        answers = [child for child in tree.children(question.id) if child.role is Role.ASSISTANT]
        answer = next((one for one in answers if one.id in path), answers[-1] if answers else None)
    if answer is None or answer.state is State.STREAMING:
        raise ChatError(ChatProblem.KEEP_NO_ANSWER)
    return "" if answer.id == conversation.record.head else answer.id
