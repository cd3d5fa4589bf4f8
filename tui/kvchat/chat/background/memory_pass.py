"""A kind of job that reads a conversation after each extraction of it.

It is done in the same lane, as a suffix of the conversation's own prompt and never in another form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from kvchat.chat.background.jobs import JobPlace, JobResult, Jobs, Outcome
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.server.lane import Lane
from kvchat.prompt.message import Node
from kvchat.store.jobs import Job, JobReason

if TYPE_CHECKING:
    from kvchat.chat.background.memory_service import MemoryService
    from kvchat.chat.background.side_requests import SideRequests
    from kvchat.chat.background.spare_time import SpareTime

ROOM = 1000
"""Tokens that the instruction and its answer take, at most."""


class MemoryJob(Struct, frozen=True):
    """What is asked at the end of a conversation, and what is done with the answer."""

    prompt: str
    schema: Mapping[str, Any]
    """`response_format` for the answer."""
    answer_tokens: int
    take: Callable[[Node], Awaitable[Outcome]]


class MemoryPass(ABC):
    """The jobs of one kind; their subject is a conversation."""

    kind: str

    def __init__(
        self, core: Core, jobs: Jobs, memory: MemoryService, side_requests: SideRequests, spare_time: SpareTime
    ) -> None:
        self._core = core
        self._memory = memory
        self._side_requests = side_requests
        self._spare_time = spare_time
        jobs.register(self)

    @abstractmethod
    def is_switched_on(self) -> bool:
        """Whether the settings want it."""

    @abstractmethod
    async def is_due(self, id: str) -> bool:
        """Whether there is something to do in a conversation."""

    @abstractmethod
    async def next_job(self, conversation: OpenConversation) -> MemoryJob | None:
        """What is to be asked now; None: nothing."""

    def wanted(self, id: str) -> bool:
        """Whether it may be done for a conversation."""
        record = self._core.conversations.record(id)
        return self.is_switched_on() and record is not None and record.trashed is None and self._memory.is_on(id)

    def follow(self, id: str) -> None:
        """An extraction of a conversation is done."""
        if self.wanted(id):
            self._core.in_background(self.put_if_due(id))

    async def put_if_due(self, id: str) -> None:
        if await self.is_due(id):
            await self._spare_time.put(self.kind, id, JobReason.NEW_MEMORIES)

    async def retried(self, subject: str) -> None:  # noqa: B027  nothing more to do
        """It is due as it is."""

    async def place_of(self, job: Job) -> JobPlace | None:
        return (
            self._spare_time.place(job.subject, ROOM)
            if self.wanted(job.subject)
            else (self._spare_time.exit(job.subject))
        )

    async def work_on(self, job: Job, lane: Lane) -> Outcome:
        if not self.wanted(job.subject):
            return Outcome(JobResult.DONE)
        found = self._spare_time.found(job.subject, lane, ROOM)
        if found is None:
            return Outcome(JobResult.CALLED_OFF)
        link, conversation = found
        asked = await self.next_job(conversation)
        if asked is None:
            return Outcome(JobResult.DONE)
        answer = await self._spare_time.answer(
            lane,
            lambda: self._side_requests.at_the_end(
                self.kind, link, conversation, asked.prompt, asked.schema, asked.answer_tokens
            ),
            job.subject,
        )
        return answer if isinstance(answer, Outcome) else await asked.take(answer)
