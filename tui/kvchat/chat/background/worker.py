"""A thread that does one piece of work after the other, and holds up no end.

What is handed in is done in order. A piece that hangs (another program holds a lock) is left behind when
kvchat ends; one whose caller was cancelled is left out where that was allowed.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """One daemon thread, begun when there is something to do."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def do(self, work: Callable[[], T], *, droppable: bool = False) -> T:
        """What `work` gives or raises, done after all that was handed in before. `droppable`: it only looks something
        up, so that it need not be done where its caller was cancelled before its turn came."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(outcome: T | None, error: BaseException | None) -> None:
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(outcome)  # type: ignore[arg-type]

        def carry_out() -> None:
            outcome, failure = None, None
            if droppable and done.cancelled():
                return
            try:
                outcome = work()
            except BaseException as error:
                failure = error
            try:
                loop.call_soon_threadsafe(settle, outcome, failure)
            except RuntimeError:
                pass  # the loop has ended

        self._begin()
        self._work.put(carry_out)
        return await done

    def end(self) -> None:
        """End when all that was handed in is done."""
        self._work.put(None)

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
