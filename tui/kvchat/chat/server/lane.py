"""One lane per server: kvchat never competes with itself for a server's slots, in one process or in several.

A chat goes first, then a warm-up, then background work. What goes first ends what runs, connection
and all, before its own request goes out; nothing starts because it has waited long enough.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

from kvchat.store.presence.server_presence import ServerLock, ServerLocks


class Lane:
    """The queue in front of one server. One chat generation at a time, in the order they were asked for."""

    def __init__(self, seat: ServerLock | None = None) -> None:
        self.seat = seat
        """The seat that is shared with other kvchats; None: there are none, or the server is not known yet."""
        self._address = ""
        self._taken = False
        self._holder = ""
        self._queue: deque[asyncio.Future[None]] = deque()
        self._expected: set[str] = set()
        """The conversations whose next chat is about to ask for the lane."""
        self._spare: asyncio.Task[None] | None = None
        self._background: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._quiet_since = 0.0

    def serves(self, address: str, seats: ServerLocks) -> None:
        """The server is at this address: its seat is the one that other kvchats know it by."""
        if address != self._address:
            if self.seat is not None:
                self.seat.leave()
            self._address, self.seat = address, seats.at(address)

    @property
    def holder(self) -> str:
        """The conversation that has the lane; empty when it is free."""
        return self._holder

    @property
    def is_free(self) -> bool:
        """Whether nothing of this process uses the server, or is about to, but background work."""
        return not self._taken and self._spare is None and not self._expected

    @property
    def works_in_background(self) -> bool:
        """Whether background work runs."""
        return self._background is not None

    @property
    def quiet_since(self) -> float:
        """When a chat last began or ended here, in any kvchat; seconds since the epoch, 0.0: never."""
        return max(self._quiet_since, self.seat.quiet_since if self.seat is not None else 0.0)

    @asynccontextmanager
    async def chat(self, conversation: str, *, ends_spare: bool = True) -> AsyncIterator[None]:
        """Hold the lane for a chat generation of `conversation`. Cancelling gives the place in the queue up.
        `ends_spare`: else whoever holds it sees to a warm-up that runs (`stop_spare`) before a request goes out."""
        await self._take()
        self._holder = conversation
        self._quiet_since = time.time()
        try:
            await (self.stop_spare() if ends_spare else self.stop_background())
            await self.sit()
            yield
        finally:
            self._quiet_since = time.time()
            self._pass_on()

    def expect(self, conversation: str) -> None:
        """The next chat of `conversation` is about to come: until it does, nothing that waits for the lane to be free
        begins."""
        self._expected.add(conversation)

    def expect_no_more(self, conversation: str) -> None:
        """It has come, or does not come."""
        if conversation in self._expected:
            self._expected.discard(conversation)
            self._left()

    async def sit(self, *, chat: bool = True) -> None:
        """Have the seat for the chat that holds the lane: again when the server was only found meanwhile."""
        if self.seat is not None:
            await self.seat.share(stamp=chat)

    async def in_spare_time(self, work: Coroutine[object, object, None]) -> bool:
        """Do `work` if no chat and no other such work runs; whether it came to its end. Background work is ended for
        it; a chat that asks for the lane cancels it."""
        if not self.is_free:
            work.close()
            return False

        async def turn() -> None:
            await _ended(self._background)
            await self.sit(chat=False)
            await work

        self._spare = task = asyncio.create_task(turn())
        task.add_done_callback(self._spare_ended)
        return await _run_to_end(task, work)

    async def in_background(self, work: Coroutine[object, object, None]) -> bool:
        """Do `work` if nothing uses the server, here or in another kvchat; whether it came to its end. Whatever else
        asks for the lane cancels it."""
        if not self.is_free or self._background is not None or not self._took_seat():
            work.close()
            return False
        self._background = task = asyncio.create_task(work)
        task.add_done_callback(self._background_ended)
        return await _run_to_end(task, work)

    def _took_seat(self) -> bool:
        return self.seat is None or self.seat.take(self._called_off)

    def _called_off(self) -> None:
        if self._background is not None:
            self._background.cancel()

    def _spare_ended(self, task: asyncio.Task[None]) -> None:
        if self._spare is task:
            self._spare = None
            self._left()

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        if self._background is task:
            self._background = None
            self._left()

    async def stop_spare(self) -> None:
        """End a warm-up and background work, and wait until they have closed their connections."""
        await _ended(self._spare)
        await _ended(self._background)

    async def spare_ended(self) -> None:
        """Return when the warm-up that runs has ended, of itself or by whatever else goes first."""
        if self._spare is not None:
            await asyncio.wait({self._spare})

    async def stop_background(self) -> None:
        """End background work, and wait until it has closed its connection."""
        await _ended(self._background)

    async def freed(self) -> None:
        """Return when nothing uses the server, here or in another kvchat."""
        while not self.is_free or self._background is not None:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(place)
            try:
                await place
            finally:
                self._waiting.discard(place)
        if self.seat is not None:
            await self.seat.free()

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
        """Hand the lane to the next in the queue; it stays taken, so that no other can slip in between."""
        self._holder = ""
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._taken = False
        self._left()

    def _left(self) -> None:
        """Something has ended: give the seat up when it was the last, and wake what waits."""
        if not self.is_free or self._background is not None:
            return
        if self.seat is not None:
            self.seat.leave()
        for place in self._waiting:
            if not place.done():
                place.set_result(None)


async def _ended(task: asyncio.Task[None] | None) -> None:
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait({task})


async def _run_to_end(task: asyncio.Task[None], work: Coroutine[object, object, None]) -> bool:
    """Whether the task came to its end. Whoever is cancelled while waiting for it has it ended first."""
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        await _ended(task)
        raise
    finally:
        work.close()
    if task.cancelled():
        return False
    task.result()
    return True
