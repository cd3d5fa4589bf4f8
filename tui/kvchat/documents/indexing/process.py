"""The indexing process as the app sees it: started, listened to, and ended.

Whatever becomes of the process, the caller gets a report, and a cancellation leaves nothing of it behind.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kvchat import paths
from kvchat.documents.collection import Collection, IndexingOptions, IndexingProgress, IndexingReport
from kvchat.documents.indexing.worker import IndexingJob, understood
from kvchat.sanitize import one_line
from kvchat.text.engine import exit_in_words

COMMAND = (sys.executable, "-P", "-m", "kvchat.documents.indexing.worker")
PATIENCE = 1.0
_SOME = 65536
_LONG = 1_000_000
"""A line of more bytes is parsed off the loop."""


async def indexed(
    index_path: Path,
    collection: Collection,
    options: IndexingOptions,
    told: Callable[[IndexingProgress], None],
    anew: bool = False,
) -> IndexingReport:
    """Bring the index of a collection up to date in a process of its own; see `index_run.index_collection`. `told` is
    called in the loop. Cancelled, it ends the process within `PATIENCE` seconds."""
    try:
        process = await asyncio.create_subprocess_exec(
            *COMMAND, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=index_path.parent, start_new_session=True
        )
    except OSError as error:
        return IndexingReport(
            collection.name, trouble=f"The indexing process cannot be started: {paths.reason(error)}."
        )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    complaints = asyncio.create_task(_tail(process.stderr))
    try:
        with suppress(OSError):
            process.stdin.write(IndexingJob(str(index_path), collection, options, anew).line)
            await process.stdin.drain()
        report = await _listened(process.stdout, told)
        if report is not None:
            return report
        code = await process.wait()
        return IndexingReport(collection.name, trouble=_ended_in_words(code, await complaints))
    finally:
        await _end(process)
        complaints.cancel()


async def _listened(stdout: asyncio.StreamReader, told: Callable[[IndexingProgress], None]) -> IndexingReport | None:
    """The report; None where the process ends without one."""
    parts: list[bytes] = []
    while data := await stdout.read(_SOME):
        *ends, rest = data.split(b"\n")
        for end in ends:
            line = b"".join((*parts, end))
            parts = []
            said = understood(line) if len(line) < _LONG else await asyncio.to_thread(understood, line)
            if isinstance(said, IndexingReport):
                return said
            if said is not None:
                told(said)
        parts.append(rest)
    return None


async def _tail(stderr: asyncio.StreamReader) -> bytes:
    kept = b""
    while data := await stderr.read(_SOME):
        kept = (kept + data)[-4096:]
    return kept


def _ended_in_words(code: int, complaints: bytes) -> str:
    lines = complaints.decode(errors="replace").strip().splitlines()
    why = exit_in_words(code)
    said = f": {one_line(lines[-1], 200)}" if lines else ""
    if code == -signal.SIGKILL:
        said = "; the machine may have run out of memory"
    return f"The indexing process ended unexpectedly ({why}{said}). What is done is kept; it goes on from there."


async def _end(process: Process) -> None:
    """Close its stdin, which ends it; kill it, and what it started, where that takes too long."""
    try:
        if process.stdin is not None:
            process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), PATIENCE)
    finally:
        if process.returncode is None:
            _kill(process)
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), 1.0)


def _kill(process: Process) -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
