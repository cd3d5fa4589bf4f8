"""Indexing in a thread of this process, where a test is not about the process that kvchat gives it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from kvchat.documents.collection import Collection, IndexingOptions, IndexingProgress, IndexingReport
from kvchat.documents.indexing.index_run import UNWRITABLE, index_collection
from kvchat.index.index import Index


async def indexed(
    index_path: Path,
    collection: Collection,
    options: IndexingOptions,
    on_progress: Callable[[IndexingProgress], None],
    rebuild: bool = False,
) -> IndexingReport:
    """As `kvchat.documents.indexing.process.indexed`; cancelled, it ends at the next file."""
    loop, ended = asyncio.get_running_loop(), threading.Event()

    def work() -> IndexingReport:
        index = Index.open(index_path)
        try:
            if index.path is None:
                return IndexingReport(collection.name, trouble=UNWRITABLE)
            return index_collection(
                index,
                collection,
                options,
                rebuild=rebuild,
                stopped=ended.is_set,
                on_progress=lambda progress: loop.call_soon_threadsafe(on_progress, progress) and None,
            )
        finally:
            index.close()

    try:
        return await asyncio.to_thread(work)
    finally:
        ended.set()
