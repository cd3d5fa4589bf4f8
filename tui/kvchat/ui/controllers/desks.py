"""The service as the memory screen, the documents screen and the inspector ask it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from datetime import datetime

    from kvchat.cache.report import CacheReport
    from kvchat.chat.background.extraction import QueueRow
    from kvchat.chat.events import ServiceEvent
    from kvchat.chat.live import OpenConversation
    from kvchat.chat.service import ChatService
    from kvchat.config import Settings
    from kvchat.documents.collection import Collection, Progress, Report
    from kvchat.documents.library import Library
    from kvchat.memory.memories import Memories
    from kvchat.prompt.conversation import Conversation
    from kvchat.ui.screens.inspector_facts import ServerFacts
    from kvchat.ui.screens.memory_source import Job

T = TypeVar("T")
Listener = Callable[["ServiceEvent"], None]


class MemoryDesk:
    """What is remembered, and the queue of what is gone through."""

    def __init__(self, service: ChatService) -> None:
        self._service = service
        self.subscribe: Callable[[Listener], Callable[[], None]] = service.events.subscribe
        self.now: Callable[[], datetime] = service.clock
        self.conversations: Callable[[], Sequence[Conversation]] = service.conversations.all
        self.memory_queue: Callable[[], Awaitable[Sequence[QueueRow]]] = service.extraction.queue
        self.remember_now: Callable[[str], Awaitable[None]] = service.extraction.request
        self.retry_memory: Callable[[str], Awaitable[None]] = service.extraction.retry
        self.set_memory: Callable[[str, bool], Awaitable[None]] = service.extraction.set_memory
        self.memory_on: Callable[[str], bool] = service.memory.is_on
        self.jobs: Callable[[], Sequence[Job]] = service.jobs.all
        self.retry_job: Callable[[str, str], Awaitable[None]] = service.jobs.retry

    @property
    def settings(self) -> Settings:
        return self._service.settings

    @property
    def has_memory(self) -> bool:
        return self._service.memory.has_memory

    def with_memories(self, work: Callable[[Memories], T]) -> Awaitable[T]:
        return self._service.memory.with_memories(work)


class DocumentsDesk:
    """The collections, and what a conversation searches."""

    def __init__(self, service: ChatService) -> None:
        self._service = service
        self.subscribe: Callable[[Listener], Callable[[], None]] = service.events.subscribe
        self.now: Callable[[], datetime] = service.clock
        self.get: Callable[[str], OpenConversation | None] = service.conversations.get
        self.remove_documents: Callable[[str], Awaitable[None]] = service.documents.remove
        self.stop_indexing: Callable[[str], None] = service.documents.stop_indexing
        self.set_searching: Callable[[str, str, Sequence[str]], Awaitable[None]] = service.retrieval.set_searching

    @property
    def settings(self) -> Settings:
        return self._service.settings

    @property
    def indexing(self) -> Mapping[str, Progress]:
        return self._service.documents.indexing

    @property
    def reports(self) -> Mapping[str, Report]:
        return self._service.documents.reports

    def with_documents(self, work: Callable[[Library], T]) -> Awaitable[T]:
        return self._service.documents.with_library(work)

    def add_documents(self, path: str, name: str = "") -> Awaitable[Collection]:
        return self._service.documents.add(path, name)

    def index_documents(self, name: str = "", anew: bool = False) -> Awaitable[None]:
        return self._service.documents.look_for_changes(name, anew)


class CacheDesk:
    """What is known of the server's cache."""

    def __init__(self, service: ChatService) -> None:
        self._service = service
        self.subscribe: Callable[[Listener], Callable[[], None]] = service.events.subscribe
        self.now: Callable[[], datetime] = service.clock
        self.cache_report: Callable[[str], Awaitable[CacheReport]] = service.cache_reports.report

    @property
    def server(self) -> ServerFacts | None:
        return self._service.servers.info
