"""Vectors for the search in memory and documents, where the settings name a source of them.

Without them everything works by words. What is in the index is embedded in the background; a question's
vector is only asked for while no answer runs there, and never waited for long.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kvchat.backends.dialect import BackendError
from kvchat.chat.background.jobs import JobPlace, JobResult, Jobs, Outcome
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.events import DocumentsChanged, MemoriesChanged, MemoriesNoted, ServiceEvent
from kvchat.chat.server.lane import Lane
from kvchat.config import ConfigError, ServerSettings, api_key
from kvchat.store.jobs import Job, JobReason

if TYPE_CHECKING:
    from kvchat.backends.embeddings import ChatServer, Embeddings
    from kvchat.backends.local_embeddings import LocalEmbeddings
    from kvchat.chat.background.document_service import DocumentService
    from kvchat.chat.background.memory_service import MemoryService
    from kvchat.index.index import Index
    from kvchat.memory.memories import Memories

EMBEDDING = "embedding"
BATCH = 64
"""Chunks that are embedded in one go."""
QUESTION_S = 0.3
"""How long a question's vector is waited for."""
OWN_ENGINE = "the engine for vectors"
"""The name of its lane: no chat ever waits there."""
MEMORY_SCOPE, DOCUMENT_SCOPE = "memory/", "docs/"

T = TypeVar("T")
log = logging.getLogger(__name__)
_At = Callable[[Callable[["Index"], Any]], Awaitable[Any]]
"""Work done on the index, as one part of kvchat has it open."""


class Vectors:
    """Jobs of the kind `embedding`, and the vectors of questions."""

    kind = EMBEDDING

    def __init__(
        self,
        core: Core,
        jobs: Jobs,
        memory: MemoryService,
        documents: DocumentService,
    ) -> None:
        self._core = core
        self._jobs = jobs
        self._memory = memory
        self._documents = documents
        self._embeddings: Embeddings | LocalEmbeddings | None = None
        self._last_vector: tuple[str, list[float]] | None = None
        self.model = ""
        """Whose vector the last question had."""
        jobs.register(self)
        if self._embeds:
            self._core.events.subscribe(self._embed_what_is_new)

    @property
    def _embeds(self) -> bool:
        chosen = self._core.settings.embeddings
        return bool(chosen.base_url or chosen.local_model) and (self._embeds_memory or self._documents.has_library)

    @property
    def _embeds_memory(self) -> bool:
        return self._memory.has_memory and self._core.settings.memory.enabled

    @property
    def lane(self) -> Lane:
        return self._core.servers.links.lane_at(self._core.settings.embeddings.base_url or OWN_ENGINE)

    async def source(self) -> Embeddings | LocalEmbeddings:
        """Where vectors come from. Raises BackendError and ConfigError."""
        chosen = self._core.settings.embeddings
        if self._embeddings is None and chosen.local_model:
            from kvchat.backends.local_embeddings import LocalEmbeddings

            self._embeddings = LocalEmbeddings(Path(chosen.local_model))
        elif self._embeddings is None:
            from kvchat.backends.embeddings import Embeddings

            owner = ServerSettings(base_url=chosen.base_url, api_key_env=chosen.api_key_env)
            key = await asyncio.to_thread(api_key, owner, name="embeddings")
            self._embeddings = Embeddings(
                chosen.base_url,
                chosen.model,
                api_key=key,
                chats=self._chat_servers,
                may_leave=self._core.servers.consent.agreed_to_pass_on,
            )
        return self._embeddings

    def _chat_servers(self) -> Iterator[ChatServer]:
        from kvchat.backends.embeddings import ChatServer

        for link in self._core.servers.links:
            if link.info is not None:
                yield ChatServer(link.info.base_url, link.info.kind, link.info.model)
            elif link.connector.base_url:
                yield ChatServer(link.connector.base_url)

    # -- what is in the index

    def begin(self) -> None:
        """Embed what has no vector yet."""
        if self._embeds:
            self._core.in_background(self._embed_soon())

    def _embed_what_is_new(self, event: ServiceEvent) -> None:
        if isinstance(event, MemoriesNoted | MemoriesChanged | DocumentsChanged) and self._jobs.enabled:
            self._core.in_background(self._embed_soon())

    async def _embed_soon(self) -> None:
        jobs = self._core.store.jobs
        await self._core.writer.call(lambda: jobs.put(EMBEDDING, "", time.time(), JobReason.NEW_TEXTS))
        self._jobs.changed()

    async def retried(self, subject: str) -> None:
        """It is due as it is."""

    async def place_of(self, job: Job) -> JobPlace | None:
        if not self._embeds or self._core.conversations.streaming():
            return None
        quiet = max((link.lane.quiet_since for link in self._core.servers.links), default=0.0)
        return JobPlace(self.lane, self._jobs.rested_at(quiet, self._core.settings.memory.rest_seconds))

    async def work_on(self, job: Job, lane: Lane) -> Outcome:
        try:
            if self._embeds_memory and (stopped := await self._embedded(lane, self._in_memory, MEMORY_SCOPE)):
                return stopped
            documents = self._documents.has_collections
            if documents and (stopped := await self._embedded(lane, self._in_documents, DOCUMENT_SCOPE)):
                return stopped
        except (BackendError, ConfigError, ChatError) as error:
            return Outcome(JobResult.FAILED, str(error))
        return Outcome(JobResult.DONE)

    async def _embedded(self, lane: Lane, at: _At, scope: str) -> Outcome | None:
        """Embed what has no vector yet in a scope of the index; None: all has one now."""
        source = await self.source()
        while waiting := await at(lambda index: index.without_vector(source.model, BATCH, scope)):
            texts = [f"{chunk.head}\n{chunk.text}" if scope == DOCUMENT_SCOPE else chunk.text for _, chunk in waiting]
            vectors, began = await self._jobs.in_lane(lane, lambda texts=texts: source.vectors(texts))  # type: ignore[misc]
            if vectors is None:
                return Outcome(JobResult.CALLED_OFF if began else JobResult.BUSY)
            found = {(doc, chunk.key): vector for (doc, chunk), vector in zip(waiting, vectors, strict=True)}
            await at(lambda index, found=found: index.put_vectors(source.model, found))  # type: ignore[misc]
        return None

    async def _in_memory(self, work: Callable[[Index], T]) -> T:
        return await self._memory.with_memories(lambda memories: work(memories.index))

    async def _in_documents(self, work: Callable[[Index], T]) -> T:
        return await self._documents.with_library(lambda library: work(library.index), patient=True)

    # -- a question

    async def of(self, question: str) -> list[float] | None:
        """The vector of a question; None where it cannot be had at once."""
        if not self._embeds or not question.strip():
            return None
        if self._last_vector is not None and self._last_vector[0] == question:
            return self._last_vector[1]
        if not self.lane.is_free:
            return None
        try:
            async with asyncio.timeout(QUESTION_S):
                source = await self.source()
                vector = await source.vector(question)
                if self._embeds_memory:
                    await self._memory.with_memories(lambda memories: _use_vectors(memories, source.model))
        except (BackendError, ConfigError, ChatError, TimeoutError) as error:
            log.info("a question has no vector: %s", error)
            return None
        self._last_vector, self.model = (question, vector), source.model
        return vector

    async def aclose(self) -> None:
        """End the engine for vectors, where there is one."""
        if self._core.settings.embeddings.local_model and self._embeddings is not None:
            await self._embeddings.aclose()  # type: ignore[union-attr]


def _use_vectors(memories: Memories, model: str) -> None:
    memories.vector_model = model
