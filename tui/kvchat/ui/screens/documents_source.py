"""What the documents screen asks, and what it was told: the collections and what is in the index of each.

The rule: the screen acts only through the service. The list comes first, at once; what is in each collection is counted
a few at a time, so that a thousand of them hold nothing up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from kvchat.documents.collection import Collection, Passage, Progress, Report, Status
from kvchat.prompt.conversation import ALWAYS, ASK, OFF
from kvchat.ui.screens.source_file import ChunkIndex

if TYPE_CHECKING:
    from kvchat.chat.events import ServiceEvent
    from kvchat.chat.live import OpenConversation
    from kvchat.config import Settings

T = TypeVar("T")
AT_ONCE = 25
"""Collections that are counted in one go."""


class Library(Protocol):
    """The documents: `Library`."""

    @property
    def index(self) -> ChunkIndex: ...
    def collections(self) -> Sequence[Collection]: ...
    def status(self, name: str) -> Status: ...
    def search(self, query: str, k: int = 8, scopes: Sequence[str] = ()) -> Sequence[Passage]: ...
    def file_of(self, ref: str) -> Path | None: ...


class DocumentsService(Protocol):
    """The service, as far as this screen asks it: `ChatService`."""

    @property
    def settings(self) -> Settings: ...
    @property
    def indexing(self) -> Mapping[str, Progress]: ...
    @property
    def reports(self) -> Mapping[str, Report]: ...
    def get(self, id: str) -> OpenConversation | None: ...
    def with_documents(self, work: Callable[[Library], T]) -> Awaitable[T]: ...
    def add_documents(self, path: str, name: str = "") -> Awaitable[Collection]: ...
    def remove_documents(self, name: str) -> Awaitable[None]: ...
    def index_documents(self, name: str = "", anew: bool = False) -> Awaitable[None]: ...
    def stop_indexing(self, name: str) -> None: ...
    def set_searching(self, id: str, mode: str, collections: Sequence[str]) -> Awaitable[None]: ...
    def subscribe(self, listener: Callable[[ServiceEvent], None]) -> Callable[[], None]: ...
    def now(self) -> datetime: ...


@dataclass(frozen=True, slots=True)
class Searching:
    """What a conversation searches by itself."""

    mode: str = OFF
    collections: tuple[str, ...] = ()

    def of(self, name: str) -> str:
        """The mode of one collection."""
        return self.mode if name in self.collections else OFF

    def cycled(self, name: str) -> Searching:
        """With the next mode for a collection: off, ask, always, off. There is one mode for all that are searched, so
        that one which joins others gets theirs."""
        others = self.without(name).collections
        match self.of(name):
            case "off":
                return Searching(self.mode if others and self.mode != OFF else ASK, (*others, name))
            case "ask":
                return Searching(ALWAYS, self.collections)
            case _:
                return self.without(name)

    def without(self, name: str) -> Searching:
        """With a collection switched off."""
        others = tuple(one for one in self.collections if one != name)
        return Searching(self.mode if others else OFF, others)


def searching_of(service: DocumentsService, conversation: str) -> Searching:
    """What the open conversation searches by itself."""
    found = service.get(conversation) if conversation else None
    if found is None or found.record.searching == OFF:
        return Searching()
    return Searching(found.record.searching, tuple(found.record.collections))


def counted_up(library: Library, names: Sequence[str]) -> dict[str, Status]:
    """What is in the index of these collections; one that is gone by now is left out."""
    there = {one.name for one in library.collections()}
    return {name: library.status(name) for name in names if name in there}


def stale_key(collection: Collection, reports: Mapping[str, Report]) -> object:
    """Another one when a collection is to be counted again."""
    return collection.root, collection.indexed, id(reports.get(collection.name))


def is_elsewhere(report: Report) -> bool:
    """Whether a collection could not be indexed because another kvchat does."""
    return "by another kvchat" in report.trouble
