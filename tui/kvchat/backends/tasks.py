"""Clean-up that cannot be skipped, and the clock that waiting is measured by."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """The time and how to wait; tests put their own in."""

    now: Callable[[], float] = time.monotonic
    """Seconds, monotonic."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


async def unskippable(work: Coroutine[object, object, None]) -> None:
    """Run `work` to its end however often this task is cancelled meanwhile, then let the cancellation go on.

    `work` must be bounded in time: until it ends, nothing can stop this task.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    task.result()
