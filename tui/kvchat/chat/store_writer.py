"""Writing to the store without blocking the loop and without losing a message when the disk refuses.

Writes happen in the order they were asked for, each in one transaction on one thread. A write that
fails waits in the backlog, in memory, and is tried again with the same ids until it succeeds; one that conflicts
with another kvchat's is refused at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from kvchat.store import Conflict, StoreError, StoreUnavailable

RETRY_SECONDS = 10.0
REST_SECONDS = 10.0
"""So long after the last call nothing more is expected."""

log = logging.getLogger(__name__)
T = TypeVar("T")
Write = Callable[[], object]


class StoreWriter:
    """The one writer of a process. `strict`: a failed write raises StoreError instead of waiting. `at_rest` is called
    on the writer thread when nothing was written for REST_SECONDS; a StoreError of it is dropped."""

    def __init__(
        self,
        on_trouble: Callable[[str], None],
        *,
        strict: bool = False,
        at_rest: Callable[[], object] = lambda: None,
        refusal: StoreError | None = None,
    ) -> None:
        """`refusal`: why nothing can be written from the beginning."""
        self._failed = refusal
        self._tell = on_trouble
        self._strict = strict
        self._at_rest = at_rest
        self._resting: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kvchat-store")
        self._turn = asyncio.Lock()
        """Held by the write that is under way: the next one must know whether it failed."""
        self._backlog: list[Write] = []
        self._retry: asyncio.Task[None] | None = None
        self._has_ended = False

    @property
    def trouble(self) -> str:
        """Why the last write failed; empty when all is written."""
        return str(self._failed or "")

    @property
    def unsaved(self) -> int:
        """Writes that wait for the disk."""
        return len(self._backlog)

    async def write(self, write: Callable[[], T], later: Write | None = None) -> T | None:
        """Carry out `write` on the writer thread and give back its result when it is durable; None when it waits in the
        backlog, as `later` if that is given. Raises Conflict."""
        if self._backlog:
            self._backlog.append(later or write)
            return None
        async with self._turn:
            if self._backlog:
                self._backlog.append(later or write)
                return None
            try:
                return await self.call(write)
            except StoreError as error:
                if self._strict or isinstance(error, Conflict):
                    raise
                self._backlog.append(later or write)
                self._on_trouble(error)
                if self._retry is None:
                    self._retry = asyncio.create_task(self._retry_later())
                return None

    async def now(self, write: Callable[[], T]) -> T:
        """Carry out `write` in its turn, or not at all. Raises StoreError, also while others wait for the disk."""
        async with self._turn:
            if self._backlog and self._failed is not None:
                raise StoreUnavailable(self._failed.problem, **self._failed.arguments)
            return await self.call(write)

    async def call(self, read: Callable[[], T]) -> T:
        """Run `read` on the writer thread and give back its result."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, read)
        finally:
            if self._resting is not None:
                self._resting.cancel()
            if not self._has_ended:
                self._resting = loop.call_later(REST_SECONDS, self._thread.submit, self._rest)

    def _rest(self) -> None:
        with suppress(StoreError):
            self._at_rest()

    async def flush(self) -> None:
        """Try the backlog once, oldest first. Raises StoreError when the disk still refuses."""
        async with self._turn:
            while self._backlog:
                try:
                    await self.call(self._backlog[0])
                except Conflict as error:
                    log.info("what waited for the disk is not wanted any more: %s", error)
                self._backlog.pop(0)
        self._on_trouble(None)

    def _on_trouble(self, failed: StoreError | None) -> None:
        self._failed = failed
        self._tell(self.trouble)

    async def _retry_later(self) -> None:
        while self._backlog:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                await self.flush()
            except StoreError as error:
                self._on_trouble(error)
        self._retry = None

    async def aclose(self) -> None:
        """Try what waits one last time and end the thread."""
        if self._retry is not None:
            self._retry.cancel()
        try:
            await self.flush() if self._backlog else None
        except StoreError:
            pass
        self._has_ended = True
        if self._resting is not None:
            self._resting.cancel()
        await asyncio.to_thread(self._thread.shutdown)
