"""Titles by the model, where the user wants them.

A conversation's title is asked for once, when the user has seen a whole answer there: by an extraction that
is made anyway, or where memory is off by a side request. A title that differs from the user's first words is theirs,
and stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvchat.chat.background.jobs import JobPlace, JobResult, Jobs, Outcome
from kvchat.chat.conversations.conversations import ConversationObserver
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.server.lane import Lane
from kvchat.chat.server.link import Link
from kvchat.chat.turns.turns import Turns
from kvchat.prompt.branching import instructed
from kvchat.prompt.conversation import Conversation, title_of
from kvchat.prompt.message import Node, Role, State
from kvchat.prompt.request import Parameters
from kvchat.store.conversations import TITLE_ASKED
from kvchat.store.jobs import Job, JobReason

if TYPE_CHECKING:
    from kvchat.chat.background.memory_service import MemoryService
    from kvchat.chat.background.side_requests import SideRequests
    from kvchat.chat.background.spare_time import SpareTime

TITLE = "title"
ROOM = 800
"""Tokens that the instruction and its answer take, at most."""


class Titles(ConversationObserver):
    """Jobs of the kind `title`; their subject is a conversation."""

    kind = TITLE

    def __init__(
        self,
        core: Core,
        turns: Turns,
        jobs: Jobs,
        memory: MemoryService,
        side_requests: SideRequests,
        spare_time: SpareTime,
    ) -> None:
        self._core = core
        self._jobs = jobs
        self._memory = memory
        self._side_requests = side_requests
        self._spare_time = spare_time
        jobs.register(self)
        turns.observers.append(self)
        core.conversations.observers.append(self)

    def wanted(self, conversation: OpenConversation) -> bool:
        """Whether a model is to be asked for this conversation's title."""
        record = conversation.record
        seen = not record.unread or self._core.conversations.looked_at == record.id
        return (
            self._is_open(record)
            and seen
            and record.title == _first_words(conversation)
            and any(node.role is Role.ASSISTANT and node.state is State.DONE for node in conversation.path())
        )

    async def take(self, conversation: OpenConversation, title: str) -> None:
        """Put a model's title in the place of the user's first words, unless they have renamed it meanwhile, here or
        in another window. Empty: these stay. No model is asked again."""
        first = _first_words(conversation)
        await self._core.keep_setting(_asked(conversation.id), "yes")
        if title:
            await self._core.conversations.change(
                conversation, lambda row: replace(row, title=title) if row.title == first else row
            )

    def _is_open(self, record: Conversation | None) -> bool:
        """Whether no model was asked yet, as far as that is known without the messages."""
        return (
            self._core.settings.titles.by_model
            and record is not None
            and record.trashed is None
            and not self._core.setting(_asked(record.id))
        )

    # -- by a request of its own

    def turn_ended(self, conversation: OpenConversation, answer: Node) -> None:
        self._look_at(conversation)

    def opened(self, id: str, before: str) -> None:
        conversation = self._core.conversations.get(id)
        if conversation is not None and conversation.record.unread:  # it is seen now
            self._look_at(conversation)

    async def restored(self, id: str) -> None:
        self._look_at(self._core.conversations.load(id))

    def _look_at(self, conversation: OpenConversation) -> None:
        if self._jobs.enabled and self._asks_itself(conversation):
            self._core.in_background(self._spare_time.put(TITLE, conversation.id, JobReason.RESTS))

    def _asks_itself(self, conversation: OpenConversation) -> bool:
        """Whether no extraction will ask, and a request of its own may. A model that reasons first would use up all its
        tokens for that."""
        settings, link = self._core.settings, self._core.servers.link(conversation.id)
        return (
            settings.titles.by_model
            and not self._memory.is_on(conversation.id)
            and self.wanted(conversation)
            and (settings.memory.on_cloud or not self._core.servers.is_on_the_internet(link))
            and not any(node.message.reasoning for node in conversation.path())
        )

    async def place_of(self, job: Job) -> JobPlace | None:
        is_open = self._is_open(self._core.conversations.record(job.subject))
        return self._spare_time.place(job.subject, ROOM) if is_open else self._spare_time.exit(job.subject)

    async def work_on(self, job: Job, lane: Lane) -> Outcome:
        from kvchat.memory.learning.title import cleaned  # after the first paint

        conversation = self._core.conversations.get(job.subject)
        if conversation is None or not self._asks_itself(conversation):
            return Outcome(JobResult.DONE)
        found = self._spare_time.found(job.subject, lane, ROOM)
        if found is None:
            return Outcome(JobResult.CALLED_OFF)
        link, _ = found
        answer = await self._spare_time.answer(lane, lambda: self._answer(link, conversation), None)
        if isinstance(answer, Outcome):
            return answer
        await self.take(conversation, cleaned(answer.text, cut=answer.state is State.LENGTH))
        return Outcome(JobResult.DONE)

    async def retried(self, subject: str) -> None:
        """It is due as it is."""

    async def _answer(self, link: Link, conversation: OpenConversation) -> Node:
        """The one request. Runs in the lane."""
        from kvchat.memory.learning.title import ANSWER_TOKENS, INSTRUCTION

        path = instructed(conversation.path(), INSTRUCTION, self._core.timestamp())
        return await self._side_requests.settled(
            TITLE, link, conversation, path, Parameters(temperature=0.0, max_tokens=ANSWER_TOKENS)
        )


def _asked(id: str) -> str:
    """The setting that says so of a conversation."""
    return TITLE_ASKED + id


def _first_words(conversation: OpenConversation) -> str:
    """The title that the user's first question gave it; empty: nothing was asked yet."""
    questions = [node for node in conversation.tree if node.role is Role.USER]
    first = min(questions, key=lambda node: node.created, default=None)
    return title_of(first.text, first.message.blocks) if first is not None else ""
