"""Tidying the memory when nobody asks anything: what says the same is merged, what is outdated corrected.

The rule: it begins when every server has rested and never beside anything; it changes by small edits that can be
undone, and never what a person wrote.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from kvchat.chat.background import How, Outcome, Place
from kvchat.chat.events import MemoriesChanged
from kvchat.chat.extracting import Extracting
from kvchat.chat.lane import Lane
from kvchat.chat.link import Link
from kvchat.chat.live import OpenConversation
from kvchat.memory.entry import Act
from kvchat.memory.learning.capture import ASKED
from kvchat.prompt.message import Node, State, node
from kvchat.prompt.request import Parameters
from kvchat.store.jobs import Job

if TYPE_CHECKING:
    from kvchat.memory.book import Memories
    from kvchat.memory.entry import Change, Entry

CONSOLIDATION = "consolidation"
TIDIED = "memory.tidied"
"""The setting that holds the number of the last change that was tidied."""
MOST_TOKENS = 1024
_NEWS = frozenset({Act.NOTED, Act.ADDED, Act.EDITED, Act.ACCEPTED})


class Consolidating(Extracting):
    """The one job of the kind `consolidation`."""

    async def _tidy_soon(self) -> None:
        """Tidy when everything has rested."""
        if self.settings.memory.consolidate:
            at = time.time() + self.settings.memory.idle_seconds
            await self.keeper.call(lambda: self.store.jobs.put(CONSOLIDATION, "", at, "new memories"))
            self._jobs_changed()

    async def _place_of(self, job: Job) -> Place | None:
        if job.kind != CONSOLIDATION:
            return await super()._place_of(job)
        link = self._workplace(self.looked_at) if self.looked_at else None
        if link is None or self.streaming() or not self.memory_on(self.looked_at):
            return None
        if job.why == ASKED:
            return Place(link.lane, 0.0)
        rest = self.settings.memory.idle_seconds * self._patience(link)
        quiet = max(other.lane.quiet_since for other in self.links)
        return Place(link.lane, self._rested_at(quiet, rest))

    async def retry_job(self, kind: str, subject: str) -> None:
        await super().retry_job(kind, subject)
        if kind == CONSOLIDATION:
            await self._queued(lambda: self.store.jobs.put(kind, subject, time.time(), ASKED))
            self._jobs_changed()

    async def _work_on(self, job: Job, lane: Lane) -> Outcome:
        if job.kind != CONSOLIDATION:
            outcome = await super()._work_on(job, lane)
            if outcome.how is How.DONE:
                await self._tidy_soon_if_due()
            return outcome
        conversation, link = self.open_conversations.get(self.looked_at), self._workplace(self.looked_at)
        if conversation is None or link is None or link.lane is not lane:
            return Outcome(How.CALLED_OFF)
        from kvchat.memory.learning.consolidation import duplicates

        pages, last = await self.with_memories(self._fresh_pages)
        for entries in pages:
            changes = await asyncio.to_thread(duplicates, entries, time.time(), self.session)
            if changes:
                await self.with_memories(partial(_apply, changes))
        for entries in pages:
            outcome = await self._tidied(link, conversation, entries)
            if outcome.how is not How.DONE:
                return outcome
        await self.keeper.write(lambda: self.store.set_setting(TIDIED, str(last)))
        self.tell(MemoriesChanged())
        return Outcome(How.DONE)

    async def _tidy_soon_if_due(self) -> None:
        if await self.with_memories(lambda m: self._newest(m) > self._tidied_to()):
            await self._tidy_soon()

    def _tidied_to(self) -> int:
        found = self.setting(TIDIED)
        return int(found) if found.isdigit() else 0

    def _newest(self, memories: Memories) -> int:
        """The number of the last change that brought something new."""
        return max((change.seq for change in memories.log(50) if change.act in _NEWS), default=0)

    def _fresh_pages(self, memories: Memories) -> tuple[list[list[Entry]], int]:
        """The entries of the pages with something new, page by page; and the number of the last change."""
        last, since = self._newest(memories), self._tidied_to()
        memories.sync()
        fresh = {change.after.page for change in memories.log(500) if change.seq > since and change.act in _NEWS}
        pages: dict[str, list[Entry]] = defaultdict(list)
        for entry in memories.entries():
            if entry.page in fresh:
                pages[entry.page].append(entry)
        return list(pages.values()), last

    async def _tidied(self, link: Link, conversation: OpenConversation, entries: Sequence[Entry]) -> Outcome:
        """Have the model look through one page."""
        from kvchat.memory.learning.consolidation import checked, request

        asked = request(entries)
        if asked is None:
            return Outcome(How.DONE)
        messages, schema = asked
        now = self.clock().timestamp()
        path: list[Node] = []
        for message in messages:
            path.append(node(path[-1] if path else None, message, now))
        parameters = Parameters(
            temperature=0.0, max_tokens=MOST_TOKENS,
            response_format={"type": "json_schema", "json_schema": {"name": "tidied", "schema": schema}})
        answer, began = await self._in_lane(
            link.lane, lambda: self.answered_in_background(CONSOLIDATION, link, conversation, path, parameters,
                                                            apart=True))
        if answer is None:
            return Outcome(How.CALLED_OFF if began else How.BUSY)
        self.warm_soon(self.looked_at, 0.0)  # it may have been pushed out
        if answer.state in (State.ERROR, State.INTERRUPTED):
            return Outcome(How.FAILED, answer.note)
        await self.with_memories(partial(_apply, checked(answer.text, entries, now, self.session)))
        return Outcome(How.DONE)


def _apply(changes: Sequence[Change], memories: Memories) -> int:
    return memories.consolidate(changes)
