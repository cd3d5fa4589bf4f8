"""Summaries written at rest, where the setting says so: a full window is compacted without a wait.

The request is that of a compaction, and is only made where it extends what the server holds of the conversation,
behind all other jobs, never on battery. Any key ends it. Its summary stays prepared until the user compacts; nothing
is put in place by itself. It is lost with the process, and written again at the next rest.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kvchat.chat.background.jobs import SUMMARY, JobPlace, JobResult, Jobs, Outcome
from kvchat.chat.cache.warm_up import on_battery
from kvchat.chat.compactor import Compactor
from kvchat.chat.conversations.conversations import ConversationObserver
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.server.lane import Lane
from kvchat.chat.turns.turns import Turns
from kvchat.prompt.message import Node
from kvchat.store.jobs import Job, JobReason

if TYPE_CHECKING:
    from kvchat.chat.background.side_requests import SideRequests
    from kvchat.chat.background.spare_time import SpareTime


class Summaries(ConversationObserver):
    """Jobs of the kind `summary`; their subject is a conversation."""

    kind = SUMMARY

    def __init__(
        self,
        core: Core,
        turns: Turns,
        jobs: Jobs,
        side_requests: SideRequests,
        compactor: Compactor,
        spare_time: SpareTime,
    ) -> None:
        self._core = core
        self._jobs = jobs
        self._side_requests = side_requests
        self._compactor = compactor
        self._spare_time = spare_time
        jobs.register(self)
        turns.observers.append(self)
        core.conversations.observers.append(self)

    def turn_ended(self, conversation: OpenConversation, answer: Node) -> None:
        if self._is_due(conversation):
            self._put(conversation.id)

    def opened(self, id: str, before: str) -> None:
        conversation = self._core.conversations.get(id)
        if conversation is not None and conversation.context_used and self._may_ask(conversation):
            self._put(id)  # how full the window is, is known once its server answers

    async def retried(self, subject: str) -> None:
        """It is due as it is."""

    def _put(self, id: str) -> None:
        if self._jobs.enabled:
            self._core.in_background(self._spare_time.put(SUMMARY, id, JobReason.RESTS))

    def _may_ask(self, conversation: OpenConversation) -> bool:
        settings, link = self._core.settings, self._core.servers.link(conversation.id)
        return (
            settings.cache.summary_at_rest
            and conversation.record.trashed is None
            and (settings.memory.on_cloud or not self._core.servers.is_on_the_internet(link))
        )

    def _is_due(self, conversation: OpenConversation) -> bool:
        return self._may_ask(conversation) and self._compactor.wants_summary(conversation)

    async def place_of(self, job: Job) -> JobPlace | None:
        conversation = self._core.conversations.get(job.subject)
        if conversation is None or not self._may_ask(conversation):
            return self._spare_time.exit(job.subject)
        if await asyncio.to_thread(on_battery):
            return None
        return self._spare_time.place(job.subject, 0)

    async def work_on(self, job: Job, lane: Lane) -> Outcome:
        conversation = self._core.conversations.get(job.subject)
        if conversation is None or not self._is_due(conversation):
            return Outcome(JobResult.DONE)
        found = self._spare_time.found(job.subject, lane, 0)
        if found is None:
            return Outcome(JobResult.CALLED_OFF)
        link, _ = found
        try:
            plan, path, parameters = self._compactor.request(conversation)
        except ChatError:  # there is no room for it
            return Outcome(JobResult.DONE)
        head = conversation.record.head or ""
        answer = await self._spare_time.answer(
            lane, lambda: self._side_requests.settled(SUMMARY, link, conversation, path, parameters), conversation.id
        )
        if isinstance(answer, Outcome):
            return answer
        try:
            self._compactor.prepare(conversation, head, plan, answer)
        except ChatError as error:
            return Outcome(JobResult.USELESS, str(error))
        return Outcome(JobResult.DONE)
