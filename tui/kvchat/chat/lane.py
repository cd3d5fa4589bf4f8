"""One lane per server: kvchat never competes with itself for a server's slots.

The rule: one chat generation at a time, in the order they were asked for; what can wait runs only while nobody asks,
and has ended, connection and all, before the next chat's request goes out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager


class Lane:
    """The queue in front of one server."""

    def __init__(self) -> None:
        self._taken = False
        self._holder = ""
        self._queue: deque[asyncio.Future[None]] = deque()
        self._spare: asyncio.Task[None] | None = None

    @property
    def holder(self) -> str:
        """The conversation that has the lane; empty when it is free."""
        return self._holder

    @property
    def is_free(self) -> bool:
        """Whether nothing uses the server, spare-time work included."""
        return not self._taken and self._spare is None

    @asynccontextmanager
    async def chat(self, conversation: str) -> AsyncIterator[None]:
        """Hold the lane for a chat generation of `conversation`. Cancelling gives the place in the queue up."""
        await self._take()
        self._holder = conversation
        try:
            await self.stop_spare()
            yield
        finally:
            self._pass_on()

    async def in_spare_time(self, work: Coroutine[object, object, None]) -> bool:
        """Do `work` if the lane is free; whether it came to its end. A chat that asks for the lane cancels it."""
        if not self.is_free:
            work.close()
            return False
        task = self._spare = asyncio.create_task(work)
        task.add_done_callback(self._spare_ended)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            await self.stop_spare()
            raise
        if task.cancelled():
            return False
        task.result()
        return True

    def _spare_ended(self, task: asyncio.Task[None]) -> None:
        if self._spare is task:
            self._spare = None

    async def stop_spare(self) -> None:
        """End spare-time work and wait until it has closed its connection."""
        while (task := self._spare) is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})

    async def _take(self) -> None:
        if not self._taken:
            self._taken = True
            return
        place = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self._pass_on()  # the lane was handed over in the very moment of the cancel
            raise

    def _pass_on(self) -> None:
        """Hand the lane to the next in the queue; it stays taken, so that nobody can slip in between."""
        self._holder = ""
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._taken = False
