"""What all parts of the service use: the store and its writer, the settings, the clock, the events, and tasks in the
background.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime

from kvchat.chat.events import EventBus, Noticed, StorageChanged
from kvchat.chat.store_writer import StoreWriter
from kvchat.config import Settings
from kvchat.store import Store, StoreError

Clock = Callable[[], datetime]

QUIT_S = 1.5
"""How long the end of a task is waited for when kvchat ends."""


def system_clock() -> datetime:
    """Now, in the system's time zone."""
    return datetime.now().astimezone()


class Ground:
    """Shared by the parts of one service. All belongs to one event loop."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        incognito: bool = False,
        strict: bool = False,
        clock: Clock = system_clock,
    ) -> None:
        """`strict`: a write that the disk refuses raises StoreError; else it waits, and `StorageChanged` tells."""
        self.store = store
        self.settings = settings
        self.incognito = incognito
        self.clock = clock
        self.events = EventBus()
        self.writer = StoreWriter(
            lambda trouble: self.events.tell(StorageChanged(trouble)),
            strict=strict,
            at_rest=store.at_rest,
            refusal=store.database.refusal,
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def timestamp(self) -> float:
        """Now, in seconds since the epoch."""
        return self.clock().timestamp()

    def setting(self, key: str) -> str:
        """A value kept in the store; empty where there is none, or it cannot be read."""
        try:
            return self.store.setting(key) or ""
        except StoreError:
            return ""

    async def keep_setting(self, key: str, value: str | None) -> None:
        """Keep a value in the store; None removes it."""
        await self.writer.write(lambda: self.store.set_setting(key, value))

    def in_background(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Do `work` in a task of its own; a StoreError is shown to the user."""
        task = asyncio.create_task(self.run_and_notify(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run_and_notify(self, work: Coroutine[object, object, None]) -> None:
        """Do `work`; a StoreError is shown to the user."""
        try:
            await work
        except StoreError as error:
            self.events.tell(Noticed(str(error), "warning"))

    async def rest(self) -> None:
        """Return when the tasks in the background have ended; what takes too long is cancelled."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=QUIT_S)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=QUIT_S)


class Once:
    """Remembers in the store what the user was shown; where the disk refuses, for this run."""

    def __init__(self, store: Store, writer: StoreWriter) -> None:
        self._store = store
        self._writer = writer
        self._shown: set[str] = set()

    async def first(self, what: str) -> bool:
        """Whether `what` was not shown before; from now on it was."""
        if what in self._shown:
            return False
        self._shown.add(what)
        key = f"told {what}"
        try:
            if self._store.setting(key):
                return False
        except StoreError:
            pass
        await self._writer.write(lambda: self._store.set_setting(key, "yes"))
        return True
