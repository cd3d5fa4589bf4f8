"""Going through a conversation for memories, when it rests.

Every message is pending or covered by an extraction that succeeded. The request extends what the server
holds of the conversation; its answer is data that is checked before anything is noted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from kvchat.backends import kinds
from kvchat.chat.background.jobs import How, JobPlace, Jobs, Outcome
from kvchat.chat.background.memory_service import MemoryService
from kvchat.chat.background.side_requests import THINKING
from kvchat.chat.background.spare_time import SpareTime
from kvchat.chat.conversations.conversations import ConversationObserver
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.events import MemoriesNoted, MemoryBegins
from kvchat.chat.ground import Once
from kvchat.chat.server.lane import Lane
from kvchat.chat.server.link import Link
from kvchat.chat.turns.turns import Turns
from kvchat.memory.entry import Status
from kvchat.memory.ledger import EMPTY, FACTS, UNASKED, ExtractionLedger, ExtractionRun, due
from kvchat.prompt.branching import instructed
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Node, Role, State, new_id, node
from kvchat.prompt.request import Parameters
from kvchat.store import StoreError
from kvchat.store.jobs import Job, JobReason, JobState
from kvchat.text.memory import refusal
from kvchat.text.problems import ChatProblem

if TYPE_CHECKING:
    from kvchat.chat.background.side_requests import SideRequests
    from kvchat.chat.background.titles import Titles
    from kvchat.memory.learning.extraction import ExtractionPassage, Findings

EXTRACTION = "extraction"
APART_BYTES = 16000
"""Of the messages that are gone through at once, where they are sent by themselves."""
SEARCHED = 4000
"""Characters of what was said that known entries are looked up by."""
KNOWN = 5
"""Known entries that an extraction may correct."""
PATIENCE = 5
WAS_OFF = "memory.was_off"
"""The setting that says that memory was off in the settings when kvchat ran last."""
RESUME_S = 30.0
"""How often it is looked for what other kvchats have left."""
RESUMED = 50
"""Conversations that are put into the queue at once of what was left."""
QUEUE_PAGE = 100
"""Conversations without a job that the queue shows; one more says that there are more."""


class QueueRow(Struct, frozen=True):
    """A conversation with messages that were not gone through yet, or with a job."""

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
    """Jobs of the kind `extraction`; their subject is a conversation."""

    kind = EXTRACTION

    def __init__(
        self,
        core: Core,
        turns: Turns,
        once: Once,
        jobs: Jobs,
        memory: MemoryService,
        side_requests: SideRequests,
        spare_time: SpareTime,
        titles: Callable[[], Titles],
        followed_by: Callable[[], Sequence[Follower]],
    ) -> None:
        """`titles` and `followed_by`, what goes on where an extraction is done, are called when one is worked on."""
        self._core = core
        self._once = once
        self._jobs = jobs
        self._memory = memory
        self._side_requests = side_requests
        self._spare_time = spare_time
        self._titles = titles
        self._followed_by = followed_by
        self._resumed = 0.0
        self._more_left = False
        """Whether more was left than is in the queue."""
        jobs.register(self)
        jobs.observers.append(self._worked_on)
        turns.observers.append(self)
        self._core.conversations.observers.append(self)

    # -- when

    async def _capture(self, id: str, *, left: bool = False) -> None:
        """See whether messages of a conversation wait, and when they are due."""
        if self._core.conversations.record(id) is None or not self._memory.is_on(id):
            return
        conversation = self._core.conversations.load(id)
        _, pending = await self._waiting(conversation)
        found = due(pending, self._core.settings.memory, time.time(), left=left)
        if found is not None:
            await self._core.writer.call(lambda: self._core.store.jobs.put(EXTRACTION, id, found.at, found.why))
            self._jobs.changed()
            await self._announce_memory()

    async def _announce_memory(self) -> None:
        """Say once that conversations are gone through, before the first one is."""
        if self._jobs.enabled and await self._once.first("memory"):
            self._core.events.tell(MemoryBegins())

    async def _waiting(self, conversation: OpenConversation) -> tuple[list[Node], list[Node]]:
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
        """Go through a conversation at the next moment in which no answer runs. Raises ChatError."""
        if not self._memory.is_on(id):
            raise ChatError(ChatProblem.MEMORY_OFF)
        path, pending = await self._waiting(self._core.conversations.load(id))
        if not pending:
            never = len(path) > 1 and await self._memory.is_passed_over(path)
            raise ChatError(ChatProblem.NEVER_READ if never else ChatProblem.NOTHING_NEW)
        await self._jobs.queued(lambda: self._core.store.jobs.put(EXTRACTION, id, time.time(), JobReason.ASKED))
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
                place = await self.place_of(job) if job is not None else None
                begins = max(job.due, place.ready) if job is not None and place is not None else 0.0
                rows.append(QueueRow(id, record.title, behind.get(id, 0), job, at_work, self._memory.is_on(id), begins))
        return sorted(rows, key=lambda row: (row.job is None, row.job.due if row.job else 0.0, row.title))

    async def retry(self, id: str) -> None:
        """Go through a paused conversation again."""
        await self._jobs.retry(EXTRACTION, id)

    async def retried(self, subject: str) -> None:
        """It is due as it is."""

    def begin(self) -> None:
        """Go through what earlier runs have left, from now on."""
        if self._jobs.enabled and self._memory.has_memory:
            self._core.in_background(self._resume() if self._core.settings.memory.enabled else self._note_off())

    def look_again(self) -> None:
        """Another kvchat may have left something."""
        late = time.time() - self._resumed >= RESUME_S
        if late and self._jobs.enabled and self._core.settings.memory.enabled:
            self._core.in_background(self._resume())

    async def _note_off(self) -> None:
        """Memory is off in the settings: what is said until it is on again is never gone through."""
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
            at = time.time() + self._core.settings.memory.idle_seconds
            await self._core.writer.call(partial(self._core.store.jobs.put, EXTRACTION, id, at, JobReason.RESTS))
            if self._memory.is_on(id):
                await self._announce_memory()
        self._jobs.changed()

    def _worked_on(self, job: Job, how: How) -> None:
        if job.kind != EXTRACTION:
            return
        if self._more_left:
            self._core.in_background(self._resume_when_done())
        for follower in self._followed_by() if how is How.DONE else ():
            follower.follow(job.subject)

    async def _resume_when_done(self) -> None:
        """Put the next conversations into the queue when none of those is left there that were put there before."""
        jobs = await self._core.writer.call(self._core.store.jobs.all)
        if self._more_left and all(job.kind != EXTRACTION or job.state is JobState.PAUSED for job in jobs):
            self._more_left = False
            await self._resume()

    # -- what it is told of

    def opened(self, id: str, before: str) -> None:
        """The conversation `before`, which was left, is put into the queue unless it streams."""
        if before and before != id and not self._core.conversations.is_taken(before):
            self._core.in_background(self._capture(before, left=True))

    def turn_ended(self, conversation: OpenConversation, answer: Node) -> None:
        self._jobs.stir()
        if self._jobs.enabled:
            self._core.in_background(self._capture(conversation.id, left=not self._shown(conversation)))

    async def restored(self, id: str) -> None:
        await self._capture(id)

    async def set_memory(self, id: str, on: bool) -> None:
        """Have a conversation gone through for memories and given them, or not. What is said while it is off never
        is."""
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
        """What came after the message `last`, or does not stand above it, is covered without being gone through."""
        before = {node.id for node in conversation.tree.path(last)} if last in conversation.tree else set()
        for path in [conversation.path(), *await self._other_branches(conversation)]:
            nodes = [node.id for node in await self._pending(path) if node.id not in before]
            await self._memory.pass_over(conversation.id, nodes)

    # -- where

    def workplace(self, id: str) -> Link | None:
        """The server that does the work for a conversation; None: it cannot be asked now."""
        own, link = self._core.servers.link(id), self._memory.worker(id)
        if link.lane is own.lane:
            return own if own.info is not None and own.connector.connection.phase == "ready" else None
        away = link.info is not None and self._core.servers.is_on_the_internet(link)
        return link if self._core.settings.memory.on_cloud or not away else None

    async def place_of(self, job: Job) -> JobPlace | None:
        id, settings = job.subject, self._core.settings.memory
        record = self._core.conversations.record(id)
        link = self.workplace(id) if record is not None else None
        busy = self._core.conversations.is_taken(id) or self._core.conversations.answered_elsewhere(id)
        if link is None or not self._wanted(record) or busy:
            return None
        if job.why in (JobReason.ASKED, JobReason.MOST):
            return JobPlace(link.lane, 0.0)
        conversation = self._core.conversations.loaded.get(id)
        own = link is self._core.servers.link(id)
        extends = own and conversation is not None and self._side_requests.extends(conversation, in_slot=True)
        if job.why == JobReason.LEFT and extends:
            return JobPlace(link.lane, self._jobs.rested_at(link.lane.quiet_since, 0.0))  # what is opened is read first
        if extends and job.why == JobReason.ENOUGH:
            rest = settings.rest_seconds
        else:  # what its `due` says is of the last answer but one when the next has just ended
            rest = settings.idle_seconds * (1 if extends else self.patience(link))
        return JobPlace(link.lane, self._jobs.rested_at(link.lane.quiet_since, rest))

    def patience(self, link: Link) -> int:
        """How many times as long a prompt of its own waits where it would push the conversation that is looked at out
        of the server's cache."""
        if link is not self._core.servers.link():
            return 1
        cache, info = link.cache, link.info
        if cache is not None:
            simulator = cache.simulator
            known = simulator.settled or link.connector.cache_shape() is not None
            roomy = len(simulator.best.slots) > 1 or (known and simulator.best.shape.ram_bytes != 0)
        else:
            roomy = info is not None and (info.replicas or kinds.kind_of(info.kind).answers_many)
        return 1 if roomy else PATIENCE

    def _wanted(self, record: Conversation | None) -> bool:
        return record is not None and record.trashed is None and record.memory and self._memory.is_on(record.id)

    # -- doing it

    async def work_on(self, job: Job, lane: Lane) -> Outcome:
        from kvchat.memory.learning.extraction import Findings, checked  # after the first paint
        from kvchat.memory.learning.title import title_field

        id = job.subject
        if not self._wanted(self._core.conversations.record(id)):
            return Outcome(How.DONE)
        conversation = self._core.conversations.load(id)
        path, pending = await self._waiting(conversation)
        if not pending:
            return Outcome(How.DONE)
        link = self.workplace(id)
        busy = self._core.conversations.is_taken(id) or self._core.conversations.answered_elsewhere(id)
        if link is None or link.lane is not lane or busy:
            return Outcome(How.CALLED_OFF)
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
            return Outcome(How.USELESS, refusal(findings.useless.why))
        return await self._noted(conversation, passage, findings, answer.model)

    async def _passage(
        self, path: Sequence[Node], pending: Sequence[Node], by_itself: bool, title: bool
    ) -> ExtractionPassage:
        """What is gone through now: all that waits, unless it is too much at once. `title`: one is asked for too."""
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
        from kvchat.memory.learning.extraction import ANSWER_TOKENS, TEMPERATURE, instruction, own_prompt, schema

        now = self._core.timestamp()
        thinks = any(known.message.reasoning for known in path)
        sent = [] if by_itself else instructed(path, instruction(passage), now)
        for message in own_prompt(passage) if by_itself else ():
            sent.append(node(sent[-1] if sent else None, message, now))
        parameters = Parameters(
            temperature=TEMPERATURE,
            max_tokens=ANSWER_TOKENS * (THINKING if thinks else 1),
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
            return Outcome(How.DONE)
        if not self._wanted(stored):
            return Outcome(How.DONE)
        nodes = [node.id for _, node in passage.turns]
        refused = refused_as_stored(findings.refused)
        outcome, now = FACTS if findings.facts else EMPTY, self._core.timestamp()
        cell = ExtractionRun(
            new_id(), conversation.id, now, outcome, model, self._memory.session, len(findings.facts), refused
        )
        entries = await self._memory.with_memories(lambda m: m.noted(cell, nodes, findings.facts))
        if entries:
            noted = tuple(entry.id for entry in entries if entry.status is Status.LIVE)
            pending = tuple(entry.id for entry in entries if entry.status is Status.PENDING)
            self._core.events.tell(MemoriesNoted(conversation.id, noted, pending))
        self._core.in_background(self._capture(conversation.id, left=not self._shown(conversation)))
        return Outcome(How.DONE)

    def _shown(self, conversation: OpenConversation) -> bool:
        """Whether the user looks at it."""
        return self._core.conversations.looked_at == conversation.id
