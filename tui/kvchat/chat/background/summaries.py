"""Summaries written at rest, where the settings say so: a full window is compacted without a wait.

The rule: the request is that of a compaction, whose plan leaves room for it, and is only made where it extends what
the server holds of the conversation; it never runs beside an answer. A summary is of one head: when that has moved, it
is of no use.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from kvchat.chat.background.jobs import How, Jobs, Outcome, Place
from kvchat.chat.cache.warm_up import WarmUp
from kvchat.chat.compactor import Compactor
from kvchat.chat.conversations import ConversationObserver, Conversations
from kvchat.chat.errors import ChatError
from kvchat.chat.ground import Ground
from kvchat.chat.live import OpenConversation
from kvchat.chat.server.lane import Lane
from kvchat.chat.server.servers import Servers
from kvchat.chat.turns import Turns
from kvchat.prompt.message import Node, State
from kvchat.store.jobs import Job, JobReason
from kvchat.text.notes import note_sentence

if TYPE_CHECKING:
    from kvchat.chat.background.side_requests import SideRequests

SUMMARY = "summary"


class Summaries(ConversationObserver):
    """Jobs of the kind `summary`; their subject is a conversation."""

    kind = SUMMARY

    def __init__(self, ground: Ground, conversations: Conversations, servers: Servers, warm_up: WarmUp, turns: Turns,
                 jobs: Jobs, side_requests: SideRequests, compactor: Compactor) -> None:
        self._ground = ground
        self._conversations = conversations
        self._servers = servers
        self._warm_up = warm_up
        self._jobs = jobs
        self._side_requests = side_requests
        self._compactor = compactor
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

    async def deleting(self, id: str) -> None:
        await self._jobs.drop(SUMMARY, id)

    async def retried(self, subject: str) -> None:
        """It is due as it is."""

    def _soon(self, id: str) -> None:
        if self._jobs.enabled:
            self._ground.in_background(self._put(id))

    async def _put(self, id: str) -> None:
        await self._ground.keeper.call(lambda: self._ground.store.jobs.put(SUMMARY, id, time.time(), JobReason.RESTS))
        self._jobs.changed()

    def _may_be_wanted(self, conversation: OpenConversation) -> bool:
        settings, link = self._ground.settings, self._servers.link(conversation.id)
        return (settings.cache.summary_at_rest and conversation.record.trashed is None
                and self._compactor.ready(conversation) is None
                and (settings.memory.on_cloud or not self._servers.is_on_the_internet(link)))

    def _wanted(self, conversation: OpenConversation) -> bool:
        return self._may_be_wanted(conversation) and self._compactor.due(conversation)

    async def place_of(self, job: Job) -> Place | None:
        id = job.subject
        link, conversation = self._servers.link(id), self._conversations.get(id)
        if conversation is None or not self._may_be_wanted(conversation):
            return Place(link.lane, 0.0)  # it only leaves the queue
        if not self._side_requests.can_ask(link, conversation, 0):
            return None
        return Place(link.lane, self._jobs.rested_at(link.lane.quiet_since, self._ground.settings.memory.rest_seconds))

    # -- doing it

    async def work_on(self, job: Job, lane: Lane) -> Outcome:
        conversation, link = self._conversations.get(job.subject), self._servers.link(job.subject)
        if conversation is None or not self._wanted(conversation):
            return Outcome(How.DONE)
        if link.lane is not lane or not self._side_requests.can_ask(link, conversation, 0):
            return Outcome(How.CALLED_OFF)
        head = conversation.record.head
        try:
            plan, path, parameters = self._compactor.request(conversation)
        except ChatError:  # a single turn fills it
            return Outcome(How.DONE)
        answer, began = await self._jobs.in_lane(
            lane, lambda: self._side_requests.settled(SUMMARY, link, conversation, path, parameters))
        if answer is None:
            return Outcome(How.CALLED_OFF if began else How.BUSY)
        if self._conversations.looked_at not in ("", conversation.id):
            self._warm_up.soon(self._conversations.looked_at, 0.0)  # it may have been pushed out
        if answer.state in (State.ERROR, State.INTERRUPTED):
            return Outcome(How.FAILED, note_sentence(answer.note))
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
