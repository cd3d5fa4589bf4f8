"""What a job asks of a conversation's server while it rests.

A request is made where it extends what the server holds, in the lane and behind all that goes first; what it
may have pushed out is brought back.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from kvchat.chat.background.jobs import JobPlace, JobResult, Jobs, Outcome
from kvchat.chat.background.side_requests import SideRequests
from kvchat.chat.cache.warm_up import WarmUp
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.server.lane import Lane
from kvchat.chat.server.link import Link
from kvchat.prompt.message import Node, State
from kvchat.store.jobs import JobReason
from kvchat.text.notes import note_sentence


class SpareTime:
    """When a conversation's server has time, and the answers to what is asked then."""

    def __init__(
        self,
        core: Core,
        warm_up: WarmUp,
        jobs: Jobs,
        side_requests: SideRequests,
    ) -> None:
        self._core = core
        self._warm_up = warm_up
        self._jobs = jobs
        self._side_requests = side_requests

    async def put(self, kind: str, id: str, why: JobReason) -> None:
        """Put a job about a conversation into the queue, due now."""
        await self._core.writer.call(lambda: self._core.store.jobs.put(kind, id, time.time(), why))
        self._jobs.changed()

    def exit(self, id: str) -> JobPlace:
        """The place of a job that only leaves the queue."""
        return JobPlace(self._core.servers.link(id).lane, 0.0)

    def place(self, id: str, room: int) -> JobPlace | None:
        """Where and when a request of `room` tokens at the most extends a conversation; None: it cannot now."""
        link, conversation = self._core.servers.link(id), self._core.conversations.get(id)
        if conversation is None or not self._side_requests.can_ask(link, conversation, room):
            return None
        return JobPlace(link.lane, self._jobs.rested_at(link.lane.quiet_since, self._core.settings.memory.rest_seconds))

    def found(self, id: str, lane: Lane, room: int) -> tuple[Link, OpenConversation] | None:
        """The server and the conversation, if a request can still be made in this lane."""
        link, conversation = self._core.servers.link(id), self._core.conversations.get(id)
        if conversation is None or link.lane is not lane or not self._side_requests.can_ask(link, conversation, room):
            return None
        return link, conversation

    async def answer(self, lane: Lane, request: Callable[[], Awaitable[Node]], extends: str | None) -> Node | Outcome:
        """The settled answer to a request, or how its job ends without one. `extends`: the conversation that the
        request extends, which it cannot have pushed out of the cache; empty: none. None: it pushes nothing out."""
        answer, began = await self._jobs.in_lane(lane, request)
        if answer is None:
            return Outcome(JobResult.CALLED_OFF if began else JobResult.BUSY)
        if extends is not None and self._core.conversations.looked_at not in ("", extends):
            self._warm_up.soon(self._core.conversations.looked_at, 0.0)
        if answer.state in (State.ERROR, State.INTERRUPTED):
            return Outcome(JobResult.FAILED, note_sentence(answer.note))
        return answer
