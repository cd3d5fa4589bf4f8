"""Documents for the tests of their screens: collections in a list, and a service as far as the screens ask it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace
from screens_kit import NOW, T, conversation

from kvchat.chat.background.document_service import DocumentService
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.errors import ChatError
from kvchat.chat.events import DocumentsChanged, EventBus, IndexingProgressed, ServiceEvent
from kvchat.config import Settings
from kvchat.documents.collection import (
    Collection,
    CollectionStatus,
    IndexingProgress,
    IndexingReport,
    Passage,
    Skipped,
    doc_of,
    place_of,
    ref_of,
)
from kvchat.index.index import Chunk
from kvchat.prompt.context import PASSAGE, ContextBlock
from kvchat.prompt.conversation import OFF
from kvchat.prompt.tree import Tree
from kvchat.ui.screens.documents.source import DocumentsSource
from kvchat.ui.screens.kit.manager import ManagerScreen

R = TypeVar("R")
HERE = "1a" * 16
"""The open conversation."""
SETUP = "Trim the wick before dusk.\nThe oil is kept in the cellar.\nLight the lamp when the sun is down."


class Index:
    """Chunks and stamps by document."""

    def __init__(self) -> None:
        self.chunks: dict[str, list[Chunk]] = {}
        self.stamps: dict[str, str] = {}

    def get(self, doc: str, keys: Sequence[str] | None = None) -> list[Chunk]:
        return [one for one in self.chunks.get(doc, ()) if keys is None or one.key in keys]

    def docs(self, scope: str = "") -> dict[str, str]:
        return {doc: stamp for doc, stamp in self.stamps.items() if doc.startswith(scope)}


class Library:
    """Collections in a list."""

    def __init__(self, *statuses: CollectionStatus) -> None:
        self.statuses = {one.collection.name: one for one in statuses}
        self.index = Index()
        self.passages: Sequence[Passage] = ()
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.counted: list[str] = []

    def collections(self) -> list[Collection]:
        return [one.collection for one in self.statuses.values()]

    def get(self, name: str) -> Collection:
        return self.statuses[name].collection

    def status(self, name: str) -> CollectionStatus:
        self.counted.append(name)
        return self.statuses[name]

    def search(self, query: str, k: int = 8, scopes: Sequence[str] = ()) -> Sequence[Passage]:
        self.asked.append((query, tuple(scopes)))
        return [one for one in self.passages if query.split()[0].casefold() in one.text.casefold()][:k]

    def file_of(self, ref: str) -> Path | None:
        """As `Library.file_of` promises: only a file inside its collection."""
        place = place_of(ref)
        if not place.collection:
            return Path(place.path) if Path(place.path).is_file() else None
        if place.collection not in self.statuses:
            return None
        root = Path(self.statuses[place.collection].collection.root).resolve()
        whole = root / place.path
        inside = whole.resolve().is_relative_to(root)
        return whole if inside and whole.is_file() else None


class Service:
    """The parts of the service that the documents source asks: what it reads is read by the real `DocumentService` of a
    sample library, what it does is noted."""

    def __init__(
        self, library: Library | None = None, *, retrieval: str = OFF, collections: Sequence[str] = ()
    ) -> None:
        self.library = library or Library()
        self.indexing: dict[str, IndexingProgress] = {}
        self.reports: dict[str, IndexingReport] = {}
        self.documents, self.retrieval, self.conversations = self, self, self
        self.clock, self.settings = lambda: NOW, Settings()
        self.events = EventBus()
        self.did: list[tuple[object, ...]] = []
        self.refuses = ""
        """The sentence with which everything is refused."""
        record = conversation("lighthouse log", id=HERE, retrieval=retrieval, collections=tuple(collections))
        self.conversation = OpenConversation(record, Tree(()))

    def screen(self, **options: Any) -> ManagerScreen:
        source = DocumentsSource(self, HERE, **options)  # type: ignore[arg-type]
        return ManagerScreen(source, self.events)

    def tell(self, event: ServiceEvent) -> None:
        self.events.tell(event)

    def progress(self, progress: IndexingProgress) -> None:
        self.indexing[progress.collection] = progress
        self.tell(IndexingProgressed(progress.collection))

    def end(self, report: IndexingReport) -> None:
        self.indexing.pop(report.collection, None)
        self.reports[report.collection] = report
        self.tell(DocumentsChanged())

    def _do(self, *act: object) -> None:
        if self.refuses:
            raise ChatError.of(self.refuses)
        self.did.append(act)

    def get(self, id: str) -> OpenConversation | None:
        return self.conversation if id == HERE else None

    async def with_library(self, work: Callable[[Library], R]) -> R:
        if self.refuses:
            raise ChatError.of(self.refuses)
        return work(self.library)

    collections = DocumentService.collections
    statuses = DocumentService.statuses
    search = DocumentService.search
    source_state = DocumentService.source_state

    async def add(self, path: str, name: str = "") -> Collection:
        self._do("add", path, name)
        made = Collection(name or Path(path).name.lower() or "documents", path, T)
        self.library.statuses[made.name] = CollectionStatus(made, 0, 0, 0)
        self.progress(IndexingProgress(made.name, 0, 0, 0, 0, 0, 0.0, counting=True))
        self.tell(DocumentsChanged())
        return made

    async def remove(self, name: str) -> None:
        self._do("remove", name)
        del self.library.statuses[name]
        self.tell(DocumentsChanged())

    async def look_for_changes(self, name: str = "", anew: bool = False) -> None:
        self._do("index", name, anew)
        self.progress(IndexingProgress(name, 0, 0, 0, 0, 0, 0.0, counting=True))

    def stop_indexing(self, name: str) -> None:
        self._do("stop", name)
        self.indexing.pop(name, None)
        self.tell(DocumentsChanged())

    async def set_retrieval(self, id: str, mode: str, collections: Sequence[str]) -> None:
        self._do("retrieval", id, mode, tuple(collections))
        record = replace(
            self.conversation.record, retrieval=mode if collections else OFF, collections=tuple(collections)
        )
        self.conversation.record = record


def status(
    name: str,
    root: str = "",
    *,
    files: int = 12,
    chunks: int = 180,
    size: int = 64_000,
    indexed: float | None = T - 240,
    skipped: Sequence[Skipped] = (),
    trouble: str = "",
) -> CollectionStatus:
    return CollectionStatus(
        Collection(name, root or f"/home/mara/notes/{name}", T - 9000, indexed),
        files,
        chunks,
        size,
        tuple(skipped),
        trouble,
    )


SKIPPED = (
    Skipped("scans/tide table.pdf", "is encrypted"),
    Skipped("film.mov", "is a binary file"),
    Skipped("old/log.txt", "is larger than 20 MB"),
)


def sample() -> Library:
    return Library(
        status("handbook", files=1204, chunks=18_220, size=12_100_000, skipped=SKIPPED),
        status("logbooks", files=61, chunks=902, size=814_000, indexed=T - 90_000),
        status(
            "drawings",
            files=0,
            chunks=0,
            size=0,
            indexed=None,
            trouble="There is no folder /home/mara/notes/drawings any more.",
        ),
    )


def service(**options: object) -> Service:
    return Service(sample(), **options)  # type: ignore[arg-type]


def passage(path: str, where: str, text: str, head: str = "", score: float = 1.0) -> Passage:
    return Passage(ref_of(doc_of("handbook", path), where), head, text, score, 1)


def block(
    number: int | None,
    path: str = "guide/setup.md",
    where: str = "3-5",
    text: str = SETUP,
    head: str = "setup.md > Lamp",
    collection: str = "handbook",
) -> ContextBlock:
    """A passage as a question carries it."""
    ref = ref_of(doc_of(collection, path), where)
    title = place_of(ref).title
    mark = f"[{number}] " if number is not None else ""
    return ContextBlock(PASSAGE, f"{mark}{title}, {head}" if head else f"{mark}{title}", text, ref)


def in_folder(root: Path, files: Mapping[str, str]) -> Library:
    """The collection `handbook` on a real folder with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Library(status("handbook", str(root)))
