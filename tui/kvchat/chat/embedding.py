"""Vectors for the memory's search, where the settings name a source of them.

The rule: without them everything works by words. Entries are embedded in the background; a question's vector is only
asked for while no answer runs there, and never waited for long.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kvchat.backends.dialect import BackendError
from kvchat.chat.background import How, Outcome, Place
from kvchat.chat.consolidating import Consolidating
from kvchat.chat.events import MemoriesChanged, MemoriesNoted, ServiceEvent
from kvchat.chat.lane import Lane
from kvchat.config import ConfigError, ServerSettings, api_key
from kvchat.store.jobs import Job

if TYPE_CHECKING:
    from kvchat.backends.embeddings import ChatServer, Embeddings
    from kvchat.memory.book import Memories

EMBEDDING = "embedding"
BATCH = 64
"""Entries that are embedded in one go."""
QUESTION_S = 0.3
"""How long a question's vector is waited for."""
SCOPE = "memory/"

log = logging.getLogger(__name__)


class Embedding(Consolidating):
    """Jobs of the kind `embedding`, and the vectors of questions."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._embeddings: Embeddings | None = None
        self._last_vector: tuple[str, list[float]] | None = None
        if self._embeds:
            self.subscribe(self._embed_what_is_new)

    @property
    def _embeds(self) -> bool:
        return bool(self.settings.embeddings.base_url) and self.has_memory and self.settings.memory.enabled

    @property
    def _embedding_lane(self) -> Lane:
        return self._links.lane_at(self.settings.embeddings.base_url)

    async def _vector_source(self) -> Embeddings:
        """Where vectors come from. Raises BackendError and ConfigError."""
        if self._embeddings is None:
            from kvchat.backends.embeddings import Embeddings

            chosen = self.settings.embeddings
            owner = ServerSettings(base_url=chosen.base_url, api_key_env=chosen.api_key_env)
            key = await asyncio.to_thread(api_key, owner, name="embeddings")
            self._embeddings = Embeddings(chosen.base_url, chosen.model, api_key=key, chats=self._chat_servers)
        return self._embeddings

    def _chat_servers(self) -> Iterator[ChatServer]:
        from kvchat.backends.embeddings import ChatServer

        for link in self._links:
            if link.info is not None:
                yield ChatServer(link.info.base_url, link.info.kind, link.info.model)
            elif link.connector.base_url:
                yield ChatServer(link.connector.base_url)

    # -- what is remembered

    def begin_background(self) -> None:
        super().begin_background()
        if self._embeds:
            self._in_background(self._embed_soon())

    def _embed_what_is_new(self, event: ServiceEvent) -> None:
        if isinstance(event, MemoriesNoted | MemoriesChanged) and self.works_in_background:
            self._in_background(self._embed_soon())

    async def _embed_soon(self) -> None:
        await self._keeper.call(lambda: self._store.jobs.put(EMBEDDING, "", time.time(), "new memories"))
        self._jobs_changed()

    async def _place_of(self, job: Job) -> Place | None:
        if job.kind != EMBEDDING:
            return await super()._place_of(job)
        if not self._embeds or self.streaming():
            return None
        quiet = max((link.lane.quiet_since for link in self._links), default=0.0)
        return Place(self._embedding_lane, quiet + self.settings.memory.rest_seconds)

    async def _work_on(self, job: Job, lane: Lane) -> Outcome:
        if job.kind != EMBEDDING:
            return await super()._work_on(job, lane)
        try:
            source = await self._vector_source()
            while waiting := await self.with_memories(lambda m: m.index.without_vector(source.model, BATCH, SCOPE)):
                texts = [chunk.text for _, chunk in waiting]
                vectors, began = await self._in_lane(lane, lambda texts=texts: source.vectors(texts))  # type: ignore[misc]
                if vectors is None:
                    return Outcome(How.CALLED_OFF if began else How.BUSY)
                found = {(doc, chunk.key): vector for (doc, chunk), vector in zip(waiting, vectors, strict=True)}
                await self.with_memories(lambda m, found=found: m.index.put_vectors(source.model, found))  # type: ignore[misc]
        except (BackendError, ConfigError) as error:
            return Outcome(How.FAILED, str(error))
        return Outcome(How.DONE)

    # -- a question

    async def _vector_of(self, question: str) -> list[float] | None:
        """The vector of a question; None where it cannot be had at once."""
        if not self._embeds or not question.strip():
            return None
        if self._last_vector is not None and self._last_vector[0] == question:
            return self._last_vector[1]
        if not self._embedding_lane.is_free:
            return None
        try:
            async with asyncio.timeout(QUESTION_S):
                source = await self._vector_source()
                vector = await source.vector(question)
            await self.with_memories(lambda m: _use_vectors(m, source.model))
        except (BackendError, ConfigError, TimeoutError) as error:
            log.info("a question has no vector: %s", error)
            return None
        self._last_vector = question, vector
        return vector


def _use_vectors(memories: Memories, model: str) -> None:
    memories.vector_model = model
