"""The watch over a request while nothing comes.

The rule: silence never ends a request. Reading a long prompt takes minutes, and a request that is given up and
sent again is queued behind itself. Only three failed health checks in a row end it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kvchat.backends.dialect import Emit, Waiting
from kvchat.backends.tasks import Clock

TICK_S = 10.0
SILENCE_S = 30.0
"""After the headers, this much silence makes the watch ask whether the server is alive."""
MOST_FAILURES = 3


class Watchdog:
    """Watches one request. `run` is a task beside the one that reads."""

    def __init__(self, probe: Callable[[], Awaitable[bool]], emit: Emit, clock: Clock, started: float) -> None:
        self._probe = probe
        self._emit = emit
        self._clock = clock
        self._started = started
        self._heard = self._moved = clock.now()
        self._failures = 0
        self._alive: bool | None = None
        self.phase = "queued"
        """What is waited for, as in `Waiting`."""

    def heard(self, *, moved: bool = False) -> None:
        """Bytes came; `moved`: the answer went on by them."""
        self._heard = self._clock.now()
        self._failures = 0
        self._alive = True
        if moved:
            self._moved = self._heard

    async def run(self, give_up: Callable[[], None]) -> None:
        """Report by `Waiting` every 10 s in which the answer does not go on; call `give_up` for a dead server."""
        while True:
            await self._clock.sleep(TICK_S)
            if self._clock.now() - self._moved < TICK_S:
                continue
            if self.phase == "queued" or self._clock.now() - self._heard >= SILENCE_S:
                await self._check()
            if self._failures >= MOST_FAILURES:
                give_up()
                return
            self._emit(Waiting(self.phase, self._clock.now() - self._started, self._alive))

    async def _check(self) -> None:
        heard = self._heard
        alive = await self._probe()
        if heard == self._heard:
            self._alive = alive
            self._failures = 0 if alive else self._failures + 1
