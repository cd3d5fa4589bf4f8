"""Summing up what was talked about, topic by topic, where the settings say so.

It takes only what an extraction has looked at. Every message is in one episode, or waits for it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kvchat.chat.background.jobs import JobResult, Outcome
from kvchat.chat.background.memory_pass import MemoryJob, MemoryPass
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.events import MemoriesChanged
from kvchat.memory import ledger
from kvchat.memory.ledger import ExtractionLedger
from kvchat.prompt.message import Node

if TYPE_CHECKING:
    from kvchat.memory.learning.episodes import EpisodePart

EPISODES = "episodes"


class Episodes(MemoryPass):
    """Jobs of the kind `episodes`; their subject is a conversation."""

    kind = EPISODES

    def is_switched_on(self) -> bool:
        return self._core.settings.memory.episodes

    async def is_due(self, id: str) -> bool:
        conversation = self._core.conversations.get(id)
        return conversation is not None and bool((await self._ended_part(conversation.path())).turns)

    async def _ended_part(self, path: list[Node]) -> EpisodePart:
        """What is to be summed up of a branch."""
        from kvchat.memory.learning.episodes import ended_part

        def waiting() -> list[Node]:
            database = self._core.store.database
            looked_at = ExtractionLedger(database).examined(path)
            return [one for one in ExtractionLedger(database, ledger.EPISODES).pending(path) if one.id in looked_at]

        pending = await self._core.writer.call(waiting)
        return ended_part(path, pending, self._core.timestamp(), self._core.settings.memory.most_messages)

    async def next_job(self, conversation: OpenConversation) -> MemoryJob | None:
        from kvchat.memory.learning.episodes import ANSWER_TOKENS, instruction, schema

        part = await self._ended_part(conversation.path())
        if not part.turns:
            return None
        return MemoryJob(instruction(part), schema(part), ANSWER_TOKENS, partial(self._take, conversation.id, part))

    async def _take(self, id: str, part: EpisodePart, answer: Node) -> Outcome:
        from kvchat.memory.learning.episodes import checked, stored

        found = checked(answer.text, part)
        if not found:
            return Outcome(JobResult.USELESS, "no JSON with a list of episodes in it")
        if self.wanted(id):
            now, session = self._core.timestamp(), self._memory.session
            made = [stored(one, id, answer.model, session, now) for one in found]
            if await self._memory.with_memories(lambda m: m.store_episodes(made)):
                self._core.events.tell(MemoriesChanged())
            await self.put_if_due(id)  # there may be more than one pass takes
        return Outcome(JobResult.DONE)
