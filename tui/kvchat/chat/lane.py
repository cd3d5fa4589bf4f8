"""One lane per server: kvchat never competes with itself for a server's slots.

The rule: one chat generation at a time, in the order they were asked for. Whoever waits is told for what.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Lane:
    """The queue in front of one server."""

    def __init__(self) -> None:
        self._taken = False
        self._holder = ""
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def holder(self) -> str:
        """The conversation that has the lane; empty when it is free."""
        return self._holder

    @asynccontextmanager
    async def chat(self, conversation: str) -> AsyncIterator[None]:
        """Hold the lane for a chat generation of `conversation`. Cancelling gives the place in the queue up."""
        await self._take()
        self._holder = conversation
        try:
            yield
        finally:
            self._pass_on()

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
