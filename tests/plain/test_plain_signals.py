"""A signal is heard wherever the main thread waits."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import threading
from collections.abc import Iterator
from functools import partial
from operator import methodcaller

import pytest

from kvchat.plain.signals import INTERRUPT, Signals


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_one_that_comes_just_before_a_wait_ends_it(loop: asyncio.AbstractEventLoop) -> None:
    libc = ctypes.CDLL(None)
    heard: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with Signals(loop, {INTERRUPT: lambda: heard.append("interrupt")}):
        # Between the two runs nothing of Python's: so it is where readline has looked for signals and begins to wait.
        list(map(methodcaller("__call__"), [partial(getattr(libc, "raise"), signal.SIGINT), libc.pause]))
    assert heard == ["interrupt"]
    assert signal.getsignal(signal.SIGINT) is before and signal.set_wakeup_fd(-1) == -1
