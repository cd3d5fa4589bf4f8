"""Looking for skills in what an extraction has covered, where the settings say so.

Each extraction is looked at once. What is found is pending approval.
"""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from kvchat.chat.background.jobs import JobResult, Outcome
from kvchat.chat.background.memory_pass import MemoryJob, MemoryPass
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.events import MemoriesNoted
from kvchat.memory.entry import Status, new_id
from kvchat.memory.ledger import UNASKED, ExtractionLedger, ExtractionRun
from kvchat.prompt.message import Node
from kvchat.store.conversations import SKILLS_TO

if TYPE_CHECKING:
    from kvchat.memory.entry import Entry, Fact
    from kvchat.memory.learning.skills import Practice
    from kvchat.memory.memories import Memories

SKILLS = "skills"


class Skills(MemoryPass):
    """Jobs of the kind `skills`; their subject is a conversation."""

    kind = SKILLS

    def is_switched_on(self) -> bool:
        return self._core.settings.memory.skills

    async def is_due(self, id: str) -> bool:
        return bool(await self._core.writer.call(lambda: self._new_extractions(id)))

    def _new_extractions(self, id: str) -> list[ExtractionRun]:
        """The extractions of a conversation that were not looked at yet, newest first."""
        last = self._core.setting(SKILLS_TO + id)
        return list(takewhile(lambda run: run.id != last, ExtractionLedger(self._core.store.database).runs(id)))

    async def next_job(self, conversation: OpenConversation) -> MemoryJob | None:
        from kvchat.memory.learning.skills import ANSWER_TOKENS, instruction, practice, schema

        runs = await self._core.writer.call(lambda: self._new_extractions(conversation.id))
        # One that no model was asked about held nothing, or was said while memory was off.
        asked_about = [run.id for run in runs if run.model not in ("", UNASKED)]
        among = await self._core.writer.call(
            lambda: ExtractionLedger(self._core.store.database).covered_by(asked_about)
        )
        found = practice(conversation.path(), among)
        if not found.promising:
            await self._looked_at(conversation.id, runs)
            return None
        take = partial(self._take, conversation.id, found, runs)
        return MemoryJob(instruction(found), schema(found), ANSWER_TOKENS, take)

    async def _take(self, id: str, found: Practice, runs: list[ExtractionRun], answer: Node) -> Outcome:
        from kvchat.memory.learning.skills import checked

        facts = checked(answer.text, found, await self._memory.with_memories(_skills))
        if facts is None:
            return Outcome(JobResult.USELESS, "no JSON with a list of skills in it")
        if facts and self.wanted(id):
            await self._propose(id, facts, answer.model)
        await self._looked_at(id, runs)
        return Outcome(JobResult.DONE)

    async def _looked_at(self, id: str, runs: list[ExtractionRun]) -> None:
        if runs:
            await self._core.keep_setting(SKILLS_TO + id, runs[0].id)

    async def _propose(self, id: str, facts: list[Fact], model: str) -> None:
        by = ExtractionRun(new_id(), id, self._core.timestamp(), model=model, session=self._memory.session)
        entries = await self._memory.with_memories(lambda m: m.propose(by, facts))
        if entries:
            self._core.events.tell(MemoriesNoted(id, (), tuple(entry.id for entry in entries)))


def _skills(memories: Memories) -> list[Entry]:
    """Those there are, the proposed and the deleted ones too."""
    return [
        entry
        for status in (Status.LIVE, Status.PENDING, Status.DELETED)
        for entry in memories.entries(status)
        if entry.is_skill
    ]
