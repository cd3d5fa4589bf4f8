"""Summaries written at rest, where the settings say so: a full window is compacted without a wait.

The rule: the request is that of a compaction, whose plan leaves room for it, and is only made where it extends what
the server holds of the conversation; it never runs beside an answer. A summary is of one head: when that has moved, it
is of no use.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kvchat.chat.background.jobs import How, Jobs, Outcome, Place
from kvchat.chat.compactor import Compactor
from kvchat.chat.conversations.conversations import ConversationObserver, Conversations
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.errors import ChatError
from kvchat.chat.ground import Ground
from kvchat.chat.server.lane import Lane
from kvchat.chat.server.servers import Servers
from kvchat.chat.turns.turns import Turns
from kvchat.prompt.message import Node
from kvchat.store.jobs import Job, JobReason

if TYPE_CHECKING:
    from kvchat.chat.background.side_requests import SideRequests
    from kvchat.chat.background.spare_time import SpareTime

SUMMARY = "summary"


class Summaries(ConversationObserver):
    """Jobs of the kind `summary`; their subject is a conversation."""

    kind = SUMMARY

    def __init__(
        self,
        ground: Ground,
        conversations: Conversations,
        servers: Servers,
        turns: Turns,
        jobs: Jobs,
        side_requests: SideRequests,
        compactor: Compactor,
        spare_time: SpareTime,
    ) -> None:
        self._ground = ground
        self._conversations = conversations
        self._servers = servers
        self._jobs = jobs
        self._side_requests = side_requests
        self._compactor = compactor
        self._spare_time = spare_time
        jobs.register(self)
        turns.observers.append(self)
        conversations.observers.append(self)

    # -- when

    def turn_ended(self, conversation: OpenConversation, answer: Node) -> None:
        if self._wanted(conversation):
            self._soon(conversation.id)

    def opened(self, id: str, before: str) -> None:
        conversation = self._conversations.get(id)
        if conversation is not None and conversation.context_used and self._may_be_wanted(conversation):
            self._soon(id)  # how full the window is, is known when its server is

    async def retried(self, subject: str) -> None:
        """It is due as it is."""

    def _soon(self, id: str) -> None:
        if self._jobs.enabled:
            self._ground.in_background(self._spare_time.put(SUMMARY, id, JobReason.RESTS))

    def _may_be_wanted(self, conversation: OpenConversation) -> bool:
        settings, link = self._ground.settings, self._servers.link(conversation.id)
        return (
            settings.cache.summary_at_rest
            and conversation.record.trashed is None
            and self._compactor.ready(conversation) is None
            and (settings.memory.on_cloud or not self._servers.is_on_the_internet(link))
        )

    def _wanted(self, conversation: OpenConversation) -> bool:
        return self._may_be_wanted(conversation) and self._servers.is_nearly_full(conversation)

    async def place_of(self, job: Job) -> Place | None:
        conversation = self._conversations.get(job.subject)
        wanted = conversation is not None and self._may_be_wanted(conversation)
        return self._spare_time.place(job.subject, 0) if wanted else self._spare_time.exit(job.subject)

    # -- doing it

    async def work_on(self, job: Job, lane: Lane) -> Outcome:
        conversation = self._conversations.get(job.subject)
        if conversation is None or not self._wanted(conversation):
            return Outcome(How.DONE)
        found = self._spare_time.found(job.subject, lane, 0)
        if found is None:
            return Outcome(How.CALLED_OFF)
        link, _ = found
        head = conversation.record.head
        try:
            plan, path, parameters = self._compactor.request(conversation)
        except ChatError:  # a single turn fills it
            return Outcome(How.DONE)
        answer = await self._spare_time.answer(
            lane, lambda: self._side_requests.settled(SUMMARY, link, conversation, path, parameters), conversation.id
        )
        if isinstance(answer, Outcome):
            return answer
        if conversation.record.head != head:
            return Outcome(How.CALLED_OFF)
        try:
            self._compactor.keep(conversation, plan, answer)
        except ChatError as error:
            return Outcome(How.USELESS, str(error))
        if self._compactor.by_itself and self._compactor.is_enough(conversation):
            with suppress(ChatError):  # something goes on there: it is ready for the person
                await self._compactor.compact(conversation.id)
        return Outcome(How.DONE)
