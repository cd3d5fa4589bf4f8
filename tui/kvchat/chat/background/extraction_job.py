"""One extraction: the messages that it covers, the one request, and the memories that are stored of its answer.

The request extends what the server holds of the conversation; its answer is data that is checked before anything is
stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvchat.chat.background.extraction import EXTRACTION, Extraction
from kvchat.chat.background.jobs import JobPlace, JobResult, Jobs, Outcome
from kvchat.chat.background.memory_service import MemoryService
from kvchat.chat.background.side_requests import THINKING
from kvchat.chat.background.spare_time import SpareTime
from kvchat.chat.background.workplace import REST_TIMES, Workplace
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.events import MemoriesNoted
from kvchat.chat.server.lane import Lane
from kvchat.chat.server.link import Link
from kvchat.memory.entry import Status
from kvchat.memory.ledger import EMPTY, FACTS, UNASKED, ExtractionRun, rest_of
from kvchat.prompt.branching import instructed
from kvchat.prompt.message import Node, Role, new_id, node
from kvchat.prompt.request import Parameters
from kvchat.store import StoreError
from kvchat.store.jobs import Job, JobReason
from kvchat.text.memory import refusal

if TYPE_CHECKING:
    from kvchat.chat.background.side_requests import SideRequests
    from kvchat.chat.background.titles import Titles
    from kvchat.memory.learning.extraction import ExtractionPassage, Findings

APART_BYTES = 16000
"""Bytes of messages that one extraction covers, where they are sent in a prompt of their own."""
SEARCHED = 4000
"""Characters of the messages that known entries are looked up by."""
KNOWN = 5
"""Known entries that an extraction may correct."""
LATER_S = 1.0
"""Seconds by which other conversations have rested later than the shown one, so that it comes first."""


class ExtractionJob:
    """Does the jobs of the kind `extraction`; their subject is a conversation."""

    kind = EXTRACTION

    def __init__(
        self,
        core: Core,
        jobs: Jobs,
        extraction: Extraction,
        workplace: Workplace,
        memory: MemoryService,
        side_requests: SideRequests,
        spare_time: SpareTime,
        titles: Callable[[], Titles],
    ) -> None:
        """`titles` is called when one is worked on."""
        self._core = core
        self._jobs = jobs
        self._extraction = extraction
        self._workplace = workplace
        self._memory = memory
        self._side_requests = side_requests
        self._spare_time = spare_time
        self._titles = titles
        jobs.register(self)

    async def place_of(self, job: Job) -> JobPlace | None:
        id, settings = job.subject, self._core.settings.memory
        record = self._core.conversations.record(id)
        link = self._workplace.of(id) if record is not None else None
        busy = self._core.conversations.is_taken(id) or self._core.conversations.answered_elsewhere(id)
        if link is None or not self._extraction.wanted(record) or busy:
            return None
        if job.why == JobReason.ASKED:
            return JobPlace(link.lane, 0.0)
        conversation = self._core.conversations.loaded.get(id)
        own, is_open = link is self._core.servers.link(id), self._core.conversations.looked_at == id
        extends = own and conversation is not None and self._side_requests.extends(conversation, in_slot=not is_open)
        idle, ready = rest_of(JobReason.RESTS, settings), 0.0
        if job.why != JobReason.MOST:  # what its `due` says is of the last answer but one when the next has just ended
            rest = rest_of(job.why, settings) if extends else idle * self._workplace.rest_times(link)
            if not is_open and not (extends and job.why == JobReason.LEFT):
                rest += LATER_S
            ready = self._jobs.rested_at(link.lane.quiet_since, rest)
        if extends or ready > time.time() or self._workplace.spares_open(link):
            return JobPlace(link.lane, ready)
        return JobPlace(link.lane, self._jobs.rested_at(link.lane.quiet_since, REST_TIMES * idle))

    async def retried(self, subject: str) -> None:
        """It is due as it is."""

    async def work_on(self, job: Job, lane: Lane) -> Outcome:
        from kvchat.memory.learning.extraction import Findings, checked  # after the first paint
        from kvchat.memory.learning.title import title_field

        id = job.subject
        if not self._extraction.wanted(self._core.conversations.record(id)):
            return Outcome(JobResult.DONE)
        conversation = self._core.conversations.load(id)
        path, pending = await self._extraction.waiting(conversation)
        if not pending:
            return Outcome(JobResult.DONE)
        link = self._workplace.of(id)
        busy = self._core.conversations.is_taken(id) or self._core.conversations.answered_elsewhere(id)
        if link is None or link.lane is not lane or busy:
            return Outcome(JobResult.CALLED_OFF)
        shown = path[-1].id == conversation.record.head
        by_itself = (
            link is not self._core.servers.link(id) or not shown or not self._side_requests.extends(conversation)
        )
        titled = self._core.settings.titles.by_model and self._titles().wanted(conversation)
        passage = await self._passage(path, pending, by_itself, titled)
        if not passage.promising:
            return await self._noted(conversation, passage, Findings([], []), UNASKED)
        answer = await self._spare_time.answer(
            lane, lambda: self._answer_about(link, conversation, path, passage, by_itself), "" if by_itself else id
        )
        if isinstance(answer, Outcome):
            return answer
        findings = checked(answer.text, passage)
        if passage.title:
            await self._titles().take(conversation, title_field(answer.text))
        if findings.useless:
            return Outcome(JobResult.USELESS, refusal(findings.useless.why))
        return await self._noted(conversation, passage, findings, answer.model)

    async def _passage(
        self, path: Sequence[Node], pending: Sequence[Node], by_itself: bool, title: bool
    ) -> ExtractionPassage:
        """What is extracted now: all that is pending, unless it is too much at once. `title`: one is asked for too."""
        from kvchat.memory.learning.extraction import passage

        wanted = list(pending[: self._core.settings.memory.most_messages])
        while by_itself and len(wanted) > 1 and sum(len(node.message.typed.encode()) for node in wanted) > APART_BYTES:
            wanted.pop()
        said = " ".join(node.message.typed for node in wanted if node.role is Role.USER)[:SEARCHED]
        known = await self._memory.with_memories(
            lambda m: [entry for entry, _ in m.search(said, KNOWN) if not (entry.is_skill or entry.is_episode)]
        )
        return passage(path, wanted, known, title=title)

    async def _answer_about(
        self,
        link: Link,
        conversation: OpenConversation,
        path: Sequence[Node],
        passage: ExtractionPassage,
        by_itself: bool,
    ) -> Node:
        """The one request. Runs in the lane."""
        from kvchat.memory.learning.extraction import TEMPERATURE, instruction, own_prompt, schema

        now = self._core.timestamp()
        thinks = any(known.message.reasoning for known in path)
        sent = [] if by_itself else instructed(path, instruction(passage), now)
        for message in own_prompt(passage) if by_itself else ():
            sent.append(node(sent[-1] if sent else None, message, now))
        parameters = Parameters(
            temperature=TEMPERATURE,
            max_tokens=passage.answer_tokens * (THINKING if thinks else 1),
            response_format=schema(passage),
        )
        return await self._side_requests.settled(EXTRACTION, link, conversation, sent, parameters, by_itself=by_itself)

    async def _noted(
        self, conversation: OpenConversation, passage: ExtractionPassage, findings: Findings, model: str = ""
    ) -> Outcome:
        """Note what was found; the messages are covered with it, at once."""
        from kvchat.memory.acts import refused_as_stored

        try:  # another kvchat may have switched it off, or deleted the conversation
            stored = await self._core.writer.call(lambda: self._core.store.conversation(conversation.id))
        except StoreError:
            return Outcome(JobResult.DONE)
        if not self._extraction.wanted(stored):
            return Outcome(JobResult.DONE)
        nodes = [node.id for _, node in passage.turns]
        refused = refused_as_stored(findings.refused)
        outcome, now = FACTS if findings.facts else EMPTY, self._core.timestamp()
        run = ExtractionRun(
            new_id(), conversation.id, now, outcome, model, self._memory.session, len(findings.facts), refused
        )
        entries = await self._memory.with_memories(lambda m: m.store_extraction(run, nodes, findings.facts))
        if entries:
            noted = tuple(entry.id for entry in entries if entry.status is Status.LIVE)
            pending = tuple(entry.id for entry in entries if entry.status is Status.PENDING)
            self._core.events.tell(MemoriesNoted(conversation.id, noted, pending))
        self._extraction.look_at(conversation)
        return Outcome(JobResult.DONE)
