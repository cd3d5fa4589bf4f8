"""The queue of extractions: which messages are pending, and when they are due.

Every message is pending or covered by an extraction that succeeded (`extraction_job`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct

from kvchat.chat.background.jobs import JobResult, Jobs
from kvchat.chat.background.memory_service import MemoryService
from kvchat.chat.conversations.conversations import ConversationObserver
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.events import MemoryBegins
from kvchat.chat.ground import Once
from kvchat.chat.turns.turns import Turns
from kvchat.memory.ledger import ExtractionLedger, rest_of, why_due
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Node, State
from kvchat.store.jobs import Job, JobReason, JobState
from kvchat.text.problems import ChatProblem

EXTRACTION = "extraction"
WAS_OFF = "memory.was_off"
"""The setting that says that memory was off in the settings when kvchat ran last."""
RESUME_S = 30.0
"""Seconds between two looks for what other kvchats have left."""
RESUMED = 50
"""Conversations that are put into the queue at once of what was left."""
QUEUE_PAGE = 100
"""Conversations without a job that the queue shows; one more says that there are more."""


class QueueRow(Struct, frozen=True):
    """A conversation with messages that are pending extraction, or with a job."""

    conversation: str
    title: str
    pending: int
    """Messages of the branch in use that wait."""
    job: Job | None = None
    at_work: bool = False
    on: bool = True
    """Whether memory is on for it."""
    begins: float = 0.0
    """When its job can begin at the earliest, in seconds since the epoch, as far as it is known."""


class Follower(Protocol):
    """What goes on where an extraction is done."""

    def follow(self, id: str) -> None:
        """One of this conversation is."""


class Extraction(ConversationObserver):
    """The queue of conversations with messages that wait."""

    def __init__(
        self,
        core: Core,
        turns: Turns,
        once: Once,
        jobs: Jobs,
        memory: MemoryService,
        followed_by: Callable[[], Sequence[Follower]],
    ) -> None:
        """`followed_by`, what goes on where an extraction is done, is called when one is."""
        self._core = core
        self._once = once
        self._jobs = jobs
        self._memory = memory
        self._followed_by = followed_by
        self._resumed = 0.0
        self._more_left = False
        """Whether more was left than is in the queue."""
        jobs.observers.append(self._job_ended)
        turns.observers.append(self)
        self._core.conversations.observers.append(self)

    # -- when

    async def _capture(self, id: str, *, left: bool = False) -> None:
        """See whether messages of a conversation wait, and when they are due."""
        if self._core.conversations.record(id) is None or not self._memory.is_on(id):
            return
        conversation = self._core.conversations.load(id)
        _, pending = await self.waiting(conversation)
        why = why_due(pending, self._core.settings.memory, left=left)
        if why is not None:
            await self._core.writer.call(lambda: self._put(id, why))
            self._jobs.changed()
            await self._announce_memory()

    def _put(self, id: str, why: JobReason) -> None:
        due = time.time() + rest_of(why, self._core.settings.memory)
        self._core.store.jobs.put(EXTRACTION, id, due, why)

    async def _announce_memory(self) -> None:
        """Show once that memories are extracted, before the first extraction."""
        if self._jobs.enabled and await self._once.first("memory"):
            self._core.events.tell(MemoryBegins())

    async def waiting(self, conversation: OpenConversation) -> tuple[list[Node], list[Node]]:
        """The first branch in use that has messages that wait, and these: the one that is shown here, then those that
        other windows go on with. Without any, the one that is shown."""
        shown = conversation.path()
        for path in [shown, *await self._other_branches(conversation)]:
            if pending := await self._pending(path):
                return path, pending
        return shown, []

    async def _other_branches(self, conversation: OpenConversation) -> list[list[Node]]:
        """The branches in use that are not shown here, as far as they are loaded and no reply streams into them."""
        tree, shown = conversation.tree, conversation.record.head
        ends = await self._core.writer.call(
            lambda: ExtractionLedger(self._core.store.database).branches(conversation.id)
        )
        return [
            tree.path(end) for end in ends if end != shown and end in tree and tree[end].state is not State.STREAMING
        ]

    async def _pending(self, path: Sequence[Node]) -> list[Node]:
        return await self._core.writer.call(lambda: ExtractionLedger(self._core.store.database).pending(path))

    async def request(self, id: str) -> None:
        """Extract the memories of a conversation at the next moment in which no answer runs. Raises ChatError."""
        if not self._memory.is_on(id):
            raise ChatError(ChatProblem.MEMORY_OFF)
        path, pending = await self.waiting(self._core.conversations.load(id))
        if not pending:
            never = len(path) > 1 and await self._memory.is_passed_over(path)
            raise ChatError(ChatProblem.NEVER_READ if never else ChatProblem.NOTHING_NEW)
        await self._jobs.queued(lambda: self._put(id, JobReason.ASKED))
        self._jobs.look_again()
        self._jobs.changed()

    async def queue(self) -> list[QueueRow]:
        """The conversations with a job, then the first QUEUE_PAGE + 1 of the others with messages that wait. Raises
        ChatError."""
        every = await self._jobs.queued(self._core.store.jobs.all)
        jobs = {job.subject: job for job in every if job.kind == EXTRACTION}
        ledger, rows = ExtractionLedger(self._core.store.database), []
        behind = dict(await self._jobs.queued(lambda: [*ledger.counts(jobs), *ledger.behind(QUEUE_PAGE + 1, jobs)]))
        for id in {**jobs, **behind}:
            record = self._core.conversations.record(id)
            if record is not None:
                job, at_work = jobs.get(id), (EXTRACTION, id) in self._jobs.at_work()
                begins = (await self._jobs.begins_at(job) if job is not None else None) or 0.0
                rows.append(QueueRow(id, record.title, behind.get(id, 0), job, at_work, self._memory.is_on(id), begins))
        return sorted(rows, key=lambda row: (row.job is None, row.job.due if row.job else 0.0, row.title))

    async def retry(self, id: str) -> None:
        """Try the extraction of a paused conversation again."""
        await self._jobs.retry(EXTRACTION, id)

    def begin(self) -> None:
        """Work on what earlier runs have left, from now on."""
        if self._jobs.enabled and self._memory.has_memory:
            self._core.in_background(self._resume() if self._core.settings.memory.enabled else self._note_off())

    def look_again(self) -> None:
        """Another kvchat may have left something."""
        late = time.time() - self._resumed >= RESUME_S
        if late and self._jobs.enabled and self._core.settings.memory.enabled:
            self._core.in_background(self._resume())

    async def _note_off(self) -> None:
        """Memory is off in the settings: of what is written until it is on again nothing is ever extracted."""
        await self._core.writer.write(lambda: self._core.store.set_setting(WAS_OFF, "yes"))

    async def _resume(self) -> None:
        """What an earlier run has left is due when this one rests."""
        self._resumed = time.time()
        if self._core.setting(WAS_OFF):
            await self._core.writer.call(ExtractionLedger(self._core.store.database).begin_now)
            await self._core.writer.write(lambda: self._core.store.set_setting(WAS_OFF, None))
        known = {job.subject for job in await self._core.writer.call(self._core.store.jobs.all)}
        left = await self._core.writer.call(lambda: ExtractionLedger(self._core.store.database).behind(RESUMED, known))
        self._more_left = len(left) == RESUMED
        for id, _ in left:
            await self._core.writer.call(partial(self._put, id, JobReason.RESTS))
            if self._memory.is_on(id):
                await self._announce_memory()
        self._jobs.changed()

    def _job_ended(self, job: Job, result: JobResult) -> None:
        if job.kind != EXTRACTION:
            return
        if self._more_left:
            self._core.in_background(self._resume_when_done())
        for follower in self._followed_by() if result is JobResult.DONE else ():
            follower.follow(job.subject)

    async def _resume_when_done(self) -> None:
        """Put the next conversations into the queue when none of those is left there that were put there before."""
        jobs = await self._core.writer.call(self._core.store.jobs.all)
        if self._more_left and all(job.kind != EXTRACTION or job.state is JobState.PAUSED for job in jobs):
            self._more_left = False
            await self._resume()

    # -- events

    def opened(self, id: str, before: str) -> None:
        """The conversation `before`, which was left, is put into the queue unless it streams."""
        if before and before != id and not self._core.conversations.is_taken(before):
            self._core.in_background(self._capture(before, left=True))

    def turn_ended(self, conversation: OpenConversation, answer: Node) -> None:
        self._jobs.wake()
        if self._jobs.enabled:
            self.look_at(conversation)

    def look_at(self, conversation: OpenConversation) -> None:
        """See whether messages of it wait; most of all where the user has left it."""
        left = self._core.conversations.looked_at != conversation.id
        self._core.in_background(self._capture(conversation.id, left=left))

    async def restored(self, id: str) -> None:
        await self._capture(id)

    async def set_memory(self, id: str, on: bool) -> None:
        """Switch memory on or off in a conversation: extraction and recall. Of what is written while it is off nothing
        is ever extracted. Raises ChatError."""
        key, conversation = f"memory.off {id}", self._core.conversations.load(id)
        await self._core.conversations.shared.look(conversation)
        if not on:
            head = conversation.record.head or ""
            await self._core.writer.write(lambda: self._core.store.set_setting(key, head))
        elif (last := self._core.setting(key)) and not conversation.record.memory:
            await self._pass_over(conversation, last)
            await self._core.writer.write(lambda: self._core.store.set_setting(key, None))
        await self._core.conversations.update(conversation, memory=on)
        if on:
            await self._capture(id)
        else:
            await self._jobs.drop(EXTRACTION, id)

    async def _pass_over(self, conversation: OpenConversation, last: str) -> None:
        """Cover what came after the message `last`, or is not above it, without an extraction."""
        before = {node.id for node in conversation.tree.path(last)} if last in conversation.tree else set()
        for path in [conversation.path(), *await self._other_branches(conversation)]:
            nodes = [node.id for node in await self._pending(path) if node.id not in before]
            await self._memory.pass_over(conversation.id, nodes)

    def wanted(self, record: Conversation | None) -> bool:
        """Whether memories are to be extracted from a conversation at all."""
        return record is not None and record.trashed is None and record.memory and self._memory.is_on(record.id)
