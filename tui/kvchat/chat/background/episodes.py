"""Summing up what was talked about, topic by topic, where the settings say so.

The rule: it follows the extraction in the same lane, as a suffix of the conversation's own prompt and never in another
form, and takes only what an extraction has looked at. Every message is in one episode, or waits for it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kvchat.chat.background.extraction import EXTRACTION
from kvchat.chat.background.jobs import How, Jobs, Outcome, Place
from kvchat.chat.cache.warm_up import WarmUp
from kvchat.chat.conversations import ConversationObserver, Conversations
from kvchat.chat.events import MemoriesChanged
from kvchat.chat.ground import Ground
from kvchat.chat.server.lane import Lane
from kvchat.chat.server.servers import Servers
from kvchat.memory import ledger
from kvchat.memory.ledger import Ledger
from kvchat.prompt.message import Node, State
from kvchat.store.jobs import Job, JobReason
from kvchat.text.notes import note_sentence

if TYPE_CHECKING:
    from kvchat.chat.background.memory_service import MemoryService
    from kvchat.chat.background.side_requests import SideRequests
    from kvchat.memory.learning.episodes import Part

EPISODES = "episodes"
ROOM = 1000
"""Tokens that the instruction and its answer take, at most."""


class Episodes(ConversationObserver):
    """Jobs of the kind `episodes`; their subject is a conversation."""

    kind = EPISODES

    def __init__(self, ground: Ground, conversations: Conversations, servers: Servers, warm_up: WarmUp, jobs: Jobs,
                 memory: MemoryService, side_requests: SideRequests) -> None:
        self._ground = ground
        self._conversations = conversations
        self._servers = servers
        self._warm_up = warm_up
        self._jobs = jobs
        self._memory = memory
        self._side_requests = side_requests
        jobs.register(self)
        jobs.observers.append(self._after)
        conversations.observers.append(self)

    # -- when

    def _after(self, job: Job, how: How) -> None:
        if job.kind == EXTRACTION and how is How.DONE and self._wanted(job.subject):
            self._ground.in_background(self._put_if_due(job.subject))

    async def _put_if_due(self, id: str) -> None:
        conversation = self._conversations.get(id)
        if conversation is not None and (await self._ended_part(conversation.path())).turns:
            await self._ground.keeper.call(
                lambda: self._ground.store.jobs.put(EPISODES, id, time.time(), JobReason.NEW_MEMORIES))
            self._jobs.changed()

    async def _ended_part(self, path: list[Node]) -> Part:
        """What is to be summed up of a branch."""
        from kvchat.memory.learning.episodes import ended_part

        def waiting() -> list[Node]:
            database = self._ground.store.database
            looked_at = Ledger(database).gone_through(path)
            return [one for one in Ledger(database, ledger.EPISODES).pending(path) if one.id in looked_at]

        pending = await self._ground.keeper.call(waiting)
        return ended_part(path, pending, self._ground.timestamp(), self._ground.settings.memory.most_messages)

    def _wanted(self, id: str) -> bool:
        record = self._conversations.record(id)
        return (self._ground.settings.memory.episodes and record is not None and record.trashed is None
                and self._memory.is_on(id))

    async def deleting(self, id: str) -> None:
        await self._jobs.drop(EPISODES, id)

    async def retried(self, subject: str) -> None:
        """It is due as it is."""

    async def place_of(self, job: Job) -> Place | None:
        id = job.subject
        link, conversation = self._servers.link(id), self._conversations.get(id)
        if not self._wanted(id):
            return Place(link.lane, 0.0)  # it only leaves the queue
        if conversation is None or not self._side_requests.can_ask(link, conversation, ROOM):
            return None
        return Place(link.lane, self._jobs.rested_at(link.lane.quiet_since, self._ground.settings.memory.rest_seconds))

    # -- doing it

    async def work_on(self, job: Job, lane: Lane) -> Outcome:
        from kvchat.memory.learning.episodes import ANSWER_TOKENS, checked, instruction, schema, stored

        id = job.subject
        conversation, link = self._conversations.get(id), self._servers.link(id)
        if not self._wanted(id):
            return Outcome(How.DONE)
        if conversation is None or link.lane is not lane or not self._side_requests.can_ask(link, conversation, ROOM):
            return Outcome(How.CALLED_OFF)
        part = await self._ended_part(conversation.path())
        if not part.turns:
            return Outcome(How.DONE)
        answer, began = await self._jobs.in_lane(lane, lambda: self._side_requests.at_the_end(
            EPISODES, link, conversation, instruction(part), schema(part), ANSWER_TOKENS))
        if answer is None:
            return Outcome(How.CALLED_OFF if began else How.BUSY)
        if self._conversations.looked_at not in ("", id):
            self._warm_up.soon(self._conversations.looked_at, 0.0)  # it may have been pushed out
        if answer.state in (State.ERROR, State.INTERRUPTED):
            return Outcome(How.FAILED, note_sentence(answer.note))
        found = checked(answer.text, part)
        if not found:
            return Outcome(How.USELESS, "no JSON with a list of episodes in it")
        if self._wanted(id):
            now, session = self._ground.timestamp(), self._memory.session
            made = [stored(one, id, answer.model, session, now) for one in found]
            if await self._memory.with_memories(lambda m: m.episodes_noted(made)):
                self._ground.events.tell(MemoriesChanged())
            await self._put_if_due(id)  # there may be more than one pass takes
        return Outcome(How.DONE)
