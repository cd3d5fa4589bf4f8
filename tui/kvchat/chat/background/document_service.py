"""Collections of documents as the user meets them: added, indexed in the background, kept up to date.

Indexing is done by a process of its own, one collection at a time; neither a chat nor the screen waits for
it, and nothing of it is loaded where there are no collections.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from kvchat.chat.background.worker import Worker
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.events import DocumentsChanged, IndexingProgressed
from kvchat.prompt.conversation import OFF, Conversation
from kvchat.store import StoreError
from kvchat.text.problems import ChatProblem

if TYPE_CHECKING:
    from kvchat.documents.collection import Collection, CollectionStatus, IndexingProgress, IndexingReport, Passage
    from kvchat.documents.library import Library
    from kvchat.documents.source_state import SourceState
    from kvchat.prompt.context import ContextBlock

BEGIN_S = 5.0
"""Seconds from the start to the first look at the files."""
LOOK_S = 60.0
"""Seconds between two looks where the system does not report changes."""

log = logging.getLogger(__name__)
T = TypeVar("T")


class DocumentService:
    """The library, and the indexing of its collections."""

    def __init__(self, core: Core, open_library: Callable[[], Library | None] | None) -> None:
        """`open_library` opens it when it is first needed; None: there is none."""
        self._core = core
        self._open_library = open_library
        self._watches = False
        self._library: Library | None = None
        self._opening = threading.Lock()
        self._reader = Worker("kvchat-documents")
        self._caretaker = Worker("kvchat-collections")
        """For what takes long and has nothing waiting for it."""
        self._has_collections: bool | None = None
        self._indexers: dict[str, asyncio.Task[None]] = {}
        self._again: dict[str, bool] = {}
        """Those in which something changed while they were indexed, and whether all of it is to be indexed again."""
        self._indexing: dict[str, IndexingProgress] = {}
        self._reports: dict[str, IndexingReport] = {}
        self._one_at_a_time = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None
        self._known_names: frozenset[tuple[str, str]] = frozenset()
        """The names and roots of the collections there were when they were looked at last."""

    @property
    def has_library(self) -> bool:
        """Whether documents can be indexed at all: an incognito run indexes none."""
        return self._open_library is not None

    @property
    def has_collections(self) -> bool:
        """Whether there is any collection."""
        if self._has_collections is None:
            self._has_collections = self.has_library and bool(self._names())
        return self._has_collections

    async def with_library(self, work: Callable[[Library], T], *, patient: bool = False) -> T:
        """The result of `work`, which runs on a thread, in the order of the calls; `patient`: on a thread of its own,
        for what takes long and has no question waiting for it. Raises ChatError."""
        if self._open_library is None:
            raise ChatError(ChatProblem.NO_DOCUMENTS)

        def do() -> T:
            from kvchat.documents.errors import DocumentError

            try:
                return work(self._opened_library())
            except (DocumentError, StoreError) as error:
                raise ChatError.of(error) from None

        return await (self._caretaker if patient else self._reader).do(do)

    def _opened_library(self) -> Library:
        with self._opening:
            if self._library is None:
                assert self._open_library is not None
                self._library = self._open_library()
        if self._library is None:
            raise ChatError(ChatProblem.NO_DOCUMENTS)
        return self._library

    # -- what there is

    async def collections(self) -> list[Collection]:
        """All collections. Raises ChatError."""
        return await self.with_library(lambda library: library.collections())

    async def named(self, name: str) -> Collection:
        """The collection of this name, in any case. Raises ChatError."""
        return await self.with_library(lambda library: library.get(name))

    async def statuses(self, names: Sequence[str]) -> dict[str, CollectionStatus]:
        """What is in the index of these collections; one that is gone by now is left out. Raises ChatError."""

        def count(library: Library) -> dict[str, CollectionStatus]:
            there = {one.name for one in library.collections()}
            return {name: library.status(name) for name in names if name in there}

        return await self.with_library(count)

    async def search(self, query: str, most: int, collection: Collection | None = None) -> Sequence[Passage]:
        """The `most` best passages that the words of `query` find, best first, in one collection or in all. Raises
        ChatError."""
        scopes = [collection.scope] if collection is not None else []
        return await self.with_library(lambda library: library.search(query, most, scopes))

    async def source_state(self, block: ContextBlock) -> SourceState:
        """What the file of a passage or an attached file says by now. Reads the file. Raises ChatError."""
        from kvchat.documents.source_state import source_state

        return await self.with_library(lambda library: source_state(library, block))

    # -- by the user

    async def add(self, path: str, name: str = "") -> Collection:
        """Note a folder or file as a collection, and begin to index it. Raises ChatError."""
        made = await self.with_library(lambda library: library.add(path, name))
        self._core.events.tell(DocumentsChanged())
        self._index(made.name)
        self._restart_watching()
        return made

    async def remove(self, name: str) -> None:
        """Forget a collection; its files stay. Raises ChatError."""
        found = await self.with_library(lambda library: library.get(name))
        await self._stopped_indexing(found.name)
        await self.with_library(lambda library: library.remove(found.name))
        for record in [one for one in self._core.conversations.all() if found.name in one.collections]:
            await self._core.conversations.change(
                self._core.conversations.load(record.id), partial(_without, found.name)
            )
        self._reports.pop(found.name, None)
        self._core.events.tell(DocumentsChanged())
        self._restart_watching()
        self._core.in_background(self._forget_orphans())

    async def _forget_orphans(self) -> None:
        """Take out of the index what belongs to no collection any more, a little at a time."""
        from kvchat.documents.library import FORGOTTEN

        with suppress(ChatError):
            orphans = await self.with_library(lambda library: library.orphans(), patient=True)
            for start in range(0, len(orphans), FORGOTTEN):
                some = orphans[start : start + FORGOTTEN]
                await self.with_library(lambda library, some=some: library.forget(some), patient=True)  # type: ignore[misc]

    async def look_for_changes(self, name: str = "", rebuild: bool = False) -> None:
        """Begin to look for changes in a collection (without a name: in all). True of `rebuild` reads unchanged files
        again too. Raises ChatError."""
        chosen = await self.with_library(lambda library: [library.get(name)] if name else library.collections())
        for collection in chosen:
            self._index(collection.name, rebuild)

    def stop_indexing(self, name: str) -> None:
        """End the indexing of a collection; what is done is kept."""
        if (task := self._indexers.get(name)) is not None:
            task.cancel()

    async def _stopped_indexing(self, name: str) -> None:
        self.stop_indexing(name)
        if (task := self._indexers.get(name)) is not None:
            await asyncio.wait({task})

    # -- indexing

    @property
    def indexing(self) -> Mapping[str, IndexingProgress]:
        """The collections that are being indexed, and those that wait for it, by name."""
        return self._indexing

    @property
    def reports(self) -> Mapping[str, IndexingReport]:
        """What the last indexing of each collection gave, in this run."""
        return self._reports

    def _index(self, name: str, rebuild: bool = False) -> None:
        if name in self._indexers:
            self._again[name] = rebuild or self._again.get(name, False)
        else:
            from kvchat.documents.collection import IndexingProgress

            self._indexing[name] = IndexingProgress(name, 0, 0, 0, 0, 0, 0.0, counting=True)
            self._indexers[name] = asyncio.create_task(self._indexed(name, rebuild))
            self._core.events.tell(IndexingProgressed(name))

    async def _indexed(self, name: str, rebuild: bool) -> None:
        def show_progress(progress: IndexingProgress) -> None:
            self._indexing[name] = progress
            self._core.events.tell(IndexingProgressed(name))

        from kvchat.documents.collection import IndexingReport

        try:
            async with self._one_at_a_time:
                self._reports[name] = await self._run(name, rebuild, show_progress)
        except ChatError as error:
            self._reports[name] = IndexingReport(name, trouble=str(error))
        except Exception as error:
            log.exception("indexing failed")
            self._reports[name] = IndexingReport(
                name, trouble=ChatProblem.NOT_INDEXED.format(error=type(error).__name__)
            )
        finally:
            self._indexers.pop(name, None)
            self._indexing.pop(name, None)
            again = self._again.pop(name, None)
            self._core.events.tell(DocumentsChanged())
        if again is not None:
            self._index(name, again)

    async def _run(self, name: str, rebuild: bool, show_progress: Callable[[IndexingProgress], None]) -> IndexingReport:
        from kvchat.documents.indexing.process import indexed

        collection, options, path = await self.with_library(
            lambda library: (library.get(name), library.options, library.index.path)
        )
        if path is None:
            raise ChatError(ChatProblem.NO_INDEX_WRITTEN)
        report = await indexed(path, collection, options, show_progress, rebuild)
        if not report.trouble:
            await self.with_library(lambda library: library.indexed(name))
        return report

    # -- keeping up

    def look_again(self) -> None:
        """Another kvchat may have added collections, or removed some."""
        if not self.has_library or (names := self._names()) == self._known_names:
            return
        self._known_names, self._has_collections = names, bool(names)
        for name in {*self._indexers} - {name for name, _ in names}:
            self.stop_indexing(name)
        self._core.events.tell(DocumentsChanged())
        self._restart_watching()

    def _names(self) -> frozenset[tuple[str, str]]:
        try:
            return frozenset((one.name, one.root) for one in self._core.store.collections.all())
        except StoreError:
            return frozenset()

    def begin(self, watches: bool) -> None:
        """Look after the collections from now on; `watches`: what changes in their files is indexed."""
        self._watches = watches
        self._restart_watching(BEGIN_S)

    def roots(self) -> AbstractSet[tuple[str, str]]:
        """The collections by name, each with its folder."""
        return (self._known_names or self._names()) if self.has_library else frozenset()

    async def look_up(self, work: Callable[[Library | None], T]) -> T:
        """What `work` finds in the library, which is None where there are no collections. It is left out where its
        caller was cancelled. Raises ChatError and StoreError."""
        is_there = bool(self.roots())
        return await self._reader.do(lambda: work(self._opened_library() if is_there else None), droppable=True)

    def _restart_watching(self, rest: float = 0.0) -> None:
        """Look after the collections that there are now."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._known_names = self._names() if self.has_library else frozenset()
        self._has_collections = bool(self._known_names)
        if self._watches and self._core.settings.documents.watch and self._known_names:
            self._watch = asyncio.create_task(self._looked_after(rest))

    async def _looked_after(self, rest: float) -> None:
        """Index what has changed since the last run; then what the system reports, or else what a look now and then
        finds."""
        await asyncio.sleep(rest)
        try:
            roots = await self.with_library(lambda library: {one.name: Path(one.root) for one in library.collections()})
            await self._forget_orphans()
            await self._look(roots)
            await self._follow_changes(roots)
            while True:
                await asyncio.sleep(LOOK_S)
                await self._look(roots)
        except ChatError as error:
            log.info("the documents are not looked after: %s", error)

    async def _look(self, roots: Mapping[str, Path]) -> None:
        for name in roots:
            if name not in self._indexers and await self.with_library(
                lambda library, name=name: library.is_stale(name),  # type: ignore[misc]
                patient=True,
            ):
                self._index(name)

    async def _follow_changes(self, roots: Mapping[str, Path]) -> None:
        """Ends where the system does not report changes."""
        from kvchat.documents.indexing.watching import changes

        async for name in changes(roots):
            self._index(name)

    async def aclose(self) -> None:
        """End what indexes, and close the index."""
        tasks = {task for task in (self._watch, *self._indexers.values()) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=2.5)
        if self._library is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._reader.do(self._library.close)
        self._reader.end()
        self._caretaker.end()


def _without(name: str, row: Conversation) -> Conversation:
    """A conversation that no longer searches in the collection of this name."""
    left = tuple(one for one in row.collections if one != name)
    return replace(row, collections=left, retrieval=row.retrieval if left else OFF)
