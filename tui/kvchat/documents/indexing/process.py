"""The indexing process as the app sees it: started, listened to, and ended.

Whatever becomes of the process, the caller gets a report, and a cancellation leaves nothing of it behind.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from kvchat import paths
from kvchat.apart.lines import LineProcess, command_of
from kvchat.documents.collection import Collection, IndexingOptions, IndexingProgress, IndexingReport
from kvchat.documents.indexing.worker import IndexingJob, parsed_line
from kvchat.sanitize import one_line
from kvchat.text.engine import exit_in_words

COMMAND = command_of("kvchat.documents.indexing.worker")
STOP_S = 1.0
_LONG_LINE = 1_000_000
"""A line of more bytes is parsed off the loop."""


async def indexed(
    index_path: Path,
    collection: Collection,
    options: IndexingOptions,
    on_progress: Callable[[IndexingProgress], None],
    rebuild: bool = False,
) -> IndexingReport:
    """Bring the index of a collection up to date in a process of its own; see `index_run.index_collection`.
    `on_progress` is called in the loop. Cancelled, it ends the process within `STOP_S` seconds."""
    try:
        process = await LineProcess.start(COMMAND, folder=index_path.parent)
    except OSError as error:
        return IndexingReport(
            collection.name, trouble=f"The indexing process cannot be started: {paths.reason(error)}."
        )
    try:
        await process.give(IndexingJob(str(index_path), collection, options, rebuild).line)
        async for line in process.lines():
            message = parsed_line(line) if len(line) < _LONG_LINE else await asyncio.to_thread(parsed_line, line)
            if isinstance(message, IndexingReport):
                return message
            if message is not None:
                on_progress(message)
        return IndexingReport(collection.name, trouble=_ended_in_words(await process.wait(), process.errors))
    finally:
        await process.end(STOP_S)


def _ended_in_words(code: int, complaints: bytes) -> str:
    lines = complaints.decode(errors="replace").strip().splitlines()
    why = exit_in_words(code)
    details = f": {one_line(lines[-1], 200)}" if lines else ""
    if code == -signal.SIGKILL:
        details = "; the machine may have run out of memory"
    return f"The indexing process ended unexpectedly ({why}{details}). What is done is kept; it goes on from there."
