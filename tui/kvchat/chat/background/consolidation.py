"""Consolidation of the memory while every server rests: what says the same is merged, what is outdated corrected.

Nothing else runs meanwhile. It changes by small edits that can be undone, and never what a user wrote.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from kvchat.chat.background.jobs import JobPlace, JobResult, Jobs, Outcome
from kvchat.chat.background.workplace import REST_TIMES, Workplace
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.events import MemoriesChanged
from kvchat.chat.server.lane import Lane
from kvchat.chat.server.link import Link
from kvchat.memory.entry import Act
from kvchat.prompt.message import Node, node
from kvchat.prompt.request import Parameters
from kvchat.store.jobs import Job, JobReason

if TYPE_CHECKING:
    from kvchat.chat.background.memory_service import MemoryService
    from kvchat.chat.background.side_requests import SideRequests
    from kvchat.chat.background.spare_time import SpareTime
    from kvchat.memory.entry import Change, Entry
    from kvchat.memory.memories import Memories

CONSOLIDATION = "consolidation"
CONSOLIDATED = "memory.tidied"
"""The setting that holds the number of the last change that was consolidated."""
MOST_TOKENS = 1024
_NEWS = frozenset({Act.NOTED, Act.ADDED, Act.EDITED, Act.ACCEPTED})


class Consolidation:
    """The one job of the kind `consolidation`."""

    kind = CONSOLIDATION

    def __init__(
        self,
        core: Core,
        jobs: Jobs,
        memory: MemoryService,
        workplace: Workplace,
        side_requests: SideRequests,
        spare_time: SpareTime,
    ) -> None:
        self._core = core
        self._jobs = jobs
        self._memory = memory
        self._side_requests = side_requests
        self._workplace = workplace
        self._spare_time = spare_time
        jobs.register(self)

    def follow(self, id: str) -> None:
        """An extraction of a conversation is done."""
        self._core.in_background(self._consolidate_if_due())

    async def consolidate_soon(self) -> None:
        """Tidy when everything has rested."""
        if self._core.settings.memory.consolidate:
            at = time.time() + self._core.settings.memory.idle_seconds
            jobs = self._core.store.jobs
            await self._core.writer.call(lambda: jobs.put(CONSOLIDATION, "", at, JobReason.NEW_MEMORIES))
            self._jobs.changed()

    async def place_of(self, job: Job) -> JobPlace | None:
        id = self._core.conversations.looked_at
        link = self._workplace.of(id) if id else None
        if link is None or self._core.conversations.streaming() or not self._memory.is_on(id):
            return None
        if job.why == JobReason.ASKED:
            return JobPlace(link.lane, 0.0)
        rest_times = self._workplace.rest_times(link) if self._workplace.spares_open(link) else REST_TIMES
        rest = self._core.settings.memory.idle_seconds * rest_times
        quiet = max(other.lane.quiet_since for other in self._core.servers.links)
        return JobPlace(link.lane, self._jobs.rested_at(quiet, rest))

    async def retried(self, subject: str) -> None:
        jobs = self._core.store.jobs
        await self._jobs.queued(lambda: jobs.put(CONSOLIDATION, subject, time.time(), JobReason.ASKED))

    async def work_on(self, job: Job, lane: Lane) -> Outcome:
        id = self._core.conversations.looked_at
        conversation, link = self._core.conversations.loaded.get(id), self._workplace.of(id)
        if conversation is None or link is None or link.lane is not lane:
            return Outcome(JobResult.CALLED_OFF)
        from kvchat.memory.learning.consolidation import duplicates

        pages, last = await self._memory.with_memories(self._fresh_pages)
        for entries in pages:
            changes = await asyncio.to_thread(duplicates, entries, time.time(), self._memory.session)
            if changes:
                await self._memory.with_memories(partial(_apply, changes))
        for entries in pages:
            outcome = await self._consolidated(link, conversation, entries)
            if outcome.result is not JobResult.DONE:
                return outcome
        await self._core.writer.write(lambda: self._core.store.set_setting(CONSOLIDATED, str(last)))
        self._core.events.tell(MemoriesChanged())
        return Outcome(JobResult.DONE)

    async def _consolidate_if_due(self) -> None:
        with suppress(ChatError):  # whoever needs the memory reports that it cannot be read
            await self._consolidate_new()

    async def _consolidate_new(self) -> None:
        if await self._memory.with_memories(lambda m: self._newest(m) > self._consolidated_to()):
            await self.consolidate_soon()

    def _consolidated_to(self) -> int:
        found = self._core.setting(CONSOLIDATED)
        return int(found) if found.isdigit() else 0

    def _newest(self, memories: Memories) -> int:
        """The number of the last change that brought something new."""
        return max((change.seq for change in memories.log(50) if change.act in _NEWS), default=0)

    def _fresh_pages(self, memories: Memories) -> tuple[list[list[Entry]], int]:
        """The entries of the pages with something new, page by page; and the number of the last change."""
        last, since = self._newest(memories), self._consolidated_to()
        memories.sync()
        fresh = {change.after.page for change in memories.log(500) if change.seq > since and change.act in _NEWS}
        pages: dict[str, list[Entry]] = defaultdict(list)
        for entry in memories.entries():
            if entry.page in fresh and not (entry.is_skill or entry.is_episode):  # those stay as they are
                pages[entry.page].append(entry)
        return list(pages.values()), last

    async def _consolidated(self, link: Link, conversation: OpenConversation, entries: Sequence[Entry]) -> Outcome:
        """Have the model look through one page."""
        from kvchat.memory.learning.consolidation import checked, request

        asked = request(entries)
        if asked is None:
            return Outcome(JobResult.DONE)
        messages, schema = asked
        now = self._core.timestamp()
        path: list[Node] = []
        for message in messages:
            path.append(node(path[-1] if path else None, message, now))
        parameters = Parameters(
            temperature=0.0,
            max_tokens=MOST_TOKENS,
            response_format={"type": "json_schema", "json_schema": {"name": "tidied", "schema": schema}},
        )
        answer = await self._spare_time.answer(
            link.lane,
            lambda: self._side_requests.settled(CONSOLIDATION, link, conversation, path, parameters, by_itself=True),
            "",
        )
        if isinstance(answer, Outcome):
            return answer
        await self._memory.with_memories(partial(_apply, checked(answer.text, entries, now, self._memory.session)))
        return Outcome(JobResult.DONE)


def _apply(changes: Sequence[Change], memories: Memories) -> int:
    return memories.consolidate(changes)
