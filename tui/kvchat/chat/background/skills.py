"""Looking for skills in what an extraction has gone through, where the settings say so.

The rule: it follows the extraction in the same lane, as a suffix of the conversation's own prompt and never in another
form; each extraction is looked at once. What is found waits for the person's yes.
"""

from __future__ import annotations

import time
from itertools import takewhile
from typing import TYPE_CHECKING

from kvchat.chat.background.extraction import EXTRACTION
from kvchat.chat.background.jobs import How, Jobs, Outcome, Place
from kvchat.chat.cache.warm_up import WarmUp
from kvchat.chat.conversations import ConversationObserver, Conversations
from kvchat.chat.events import MemoriesNoted
from kvchat.chat.ground import Ground
from kvchat.chat.server.lane import Lane
from kvchat.chat.server.servers import Servers
from kvchat.memory.entry import Status, new_id
from kvchat.memory.ledger import UNASKED, Cell, Ledger
from kvchat.prompt.message import State
from kvchat.store.conversations import SKILLS_TO
from kvchat.store.jobs import Job, JobReason
from kvchat.text.notes import note_sentence

if TYPE_CHECKING:
    from kvchat.chat.background.memory_service import MemoryService
    from kvchat.chat.background.side_requests import SideRequests
    from kvchat.memory.entry import Entry, Fact
    from kvchat.memory.memories import Memories

SKILLS = "skills"
ROOM = 1000
"""Tokens that the instruction and its answer take, at most."""


class Skills(ConversationObserver):
    """Jobs of the kind `skills`; their subject is a conversation."""

    kind = SKILLS

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
        if await self._ground.keeper.call(lambda: self._new_cells(id)):
            await self._ground.keeper.call(
                lambda: self._ground.store.jobs.put(SKILLS, id, time.time(), JobReason.NEW_MEMORIES))
            self._jobs.changed()

    def _new_cells(self, id: str) -> list[Cell]:
        """The extractions of a conversation that were not looked at yet, newest first."""
        last = self._ground.setting(SKILLS_TO + id)
        return list(takewhile(lambda cell: cell.id != last, Ledger(self._ground.store.database).cells(id)))

    def _wanted(self, id: str) -> bool:
        record = self._conversations.record(id)
        return (self._ground.settings.memory.skills and record is not None and record.trashed is None
                and self._memory.is_on(id))

    async def deleting(self, id: str) -> None:
        await self._jobs.drop(SKILLS, id)

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
        from kvchat.memory.learning.skills import ANSWER_TOKENS, checked, instruction, practice, schema

        id = job.subject
        conversation, link = self._conversations.get(id), self._servers.link(id)
        if not self._wanted(id):
            return Outcome(How.DONE)
        if conversation is None or link.lane is not lane or not self._side_requests.can_ask(link, conversation, ROOM):
            return Outcome(How.CALLED_OFF)
        cells = await self._ground.keeper.call(lambda: self._new_cells(id))
        # One that no model was asked about held nothing, or was said while memory was off.
        asked_about = [cell.id for cell in cells if cell.model not in ("", UNASKED)]
        among = await self._ground.keeper.call(
            lambda: Ledger(self._ground.store.database).covered_by(asked_about))
        found = practice(conversation.path(), among)
        if not found.promising:
            return await self._looked_at(id, cells)
        answer, began = await self._jobs.in_lane(lane, lambda: self._side_requests.at_the_end(
            SKILLS, link, conversation, instruction(found), schema(found), ANSWER_TOKENS))
        if answer is None:
            return Outcome(How.CALLED_OFF if began else How.BUSY)
        if self._conversations.looked_at not in ("", id):
            self._warm_up.soon(self._conversations.looked_at, 0.0)  # it may have been pushed out
        if answer.state in (State.ERROR, State.INTERRUPTED):
            return Outcome(How.FAILED, note_sentence(answer.note))
        known = await self._memory.with_memories(_skills)
        facts = checked(answer.text, found, known)
        if facts is None:
            return Outcome(How.USELESS, "no JSON with a list of skills in it")
        if facts and self._wanted(id):
            await self._propose(id, facts, answer.model)
        return await self._looked_at(id, cells)

    async def _looked_at(self, id: str, cells: list[Cell]) -> Outcome:
        if cells:
            await self._ground.keep_setting(SKILLS_TO + id, cells[0].id)
        return Outcome(How.DONE)

    async def _propose(self, id: str, facts: list[Fact], model: str) -> None:
        by = Cell(new_id(), id, self._ground.timestamp(), model=model, session=self._memory.session)
        entries = await self._memory.with_memories(lambda m: m.proposed(by, facts))
        if entries:
            self._ground.events.tell(MemoriesNoted(id, (), tuple(entry.id for entry in entries)))


def _skills(memories: Memories) -> list[Entry]:
    """Those there are, the proposed and the deleted ones too."""
    return [entry for status in (Status.LIVE, Status.PENDING, Status.DELETED)
            for entry in memories.entries(status) if entry.is_skill]
