"""Signals, heard at once wherever the main thread waits.

Python runs a signal's handler on the main thread, between two steps of its own. One that comes when readline
is about to wait for a key would be heard with that key. So the loop's thread hears each signal too, and wakes the
main thread until that has run its handlers.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

INTERRUPT = signal.SIGINT
ENDING = (signal.SIGTERM, signal.SIGHUP)
"""With these the system, or the window, asks for an end."""
WAKING = signal.SIGURG
"""Ends a wait of the main thread, and nothing else: without a handler it is ignored."""
SIGNALS = (INTERRUPT, *ENDING, WAKING)
WAKES_S = 0.05
"""Seconds until the main thread is woken, and once more: it may have been about to wait again."""

LOOKS_S = 1.5
"""Between two looks at what is typed."""


class Signals:
    """Signals with their handlers, as long as it is entered; outside of the main thread there are none."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handlers: Mapping[int, Callable[[], None]],
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """`loop`: of another thread. What a handler raises is raised wherever the main thread is. `look` is called
        there every `LOOKS_S`, whatever it waits for."""
        self._look = look
        self._loop = loop
        self._handlers = handlers
        self._before: dict[int, Any] = {}
        self._is_awake = True
        """Whether the main thread has run handlers since it was woken."""

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number, handler in self._handlers.items():
            self._before[number] = signal.signal(number, lambda *_, handler=handler: handler())
        self._before[WAKING] = signal.signal(WAKING, self._woken)
        self._told, self._tells = socket.socketpair()
        for end in (self._told, self._tells):
            end.setblocking(False)
        self._loop.call_soon_threadsafe(self._loop.add_reader, self._told, self._hear)
        self._loop.call_soon_threadsafe(self._wake_to_look)
        signal.set_wakeup_fd(self._tells.fileno(), warn_on_full_buffer=False)

    def __exit__(self, *_: object) -> None:
        if WAKING in self._before:
            signal.set_wakeup_fd(-1)
            asyncio.run_coroutine_threadsafe(self._deaf(), self._loop).result()
            self._tells.close()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    async def _deaf(self) -> None:
        self._loop.remove_reader(self._told)
        self._told.close()
        self._is_awake = True
        self._looks.cancel()

    def _hear(self) -> None:
        """Signals came; each is a byte."""
        if not self._handlers.keys().isdisjoint(self._told.recv(4096)):
            self._is_awake = False
            self._loop.call_later(WAKES_S, self._wake)

    def _wake(self) -> None:
        if not self._is_awake:
            signal.pthread_kill(threading.main_thread().ident or 0, WAKING)
            self._loop.call_later(WAKES_S, self._wake)

    def _wake_to_look(self) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, WAKING)
        self._looks = self._loop.call_later(LOOKS_S, self._wake_to_look)

    def _woken(self, number: int, frame: FrameType | None) -> None:
        self._is_awake = True
        self._look()
