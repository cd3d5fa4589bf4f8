"""Housekeeping: a daily backup, and the trash emptied of what lay there for 30 days."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kvchat.chat.core import Core
from kvchat.chat.events import Noticed
from kvchat.store import StoreError

if TYPE_CHECKING:
    from kvchat.chat.mirror import Mirror

TRASH_DAYS = 30
TRASH_FOUND = "trash_found"
"""The setting that keeps which day's start found the trash old last, and before when (seconds since the epoch)."""


class Housekeeping:
    """Done by a kvchat that stays open, now and then."""

    def __init__(self, core: Core, mirror: Callable[[], Mirror | None]) -> None:
        self._core = core
        self._mirror = mirror
        self._found_old: float | None = None
        """What an earlier start, on another day, found to be old in the trash, less the monotonic clock at the first
        look of this one; None: it was not looked yet."""

    async def run(self) -> None:
        """Back the store up if that is due, then remove what lay in the trash for 30 days, with its states and
        images. A failure is shown."""
        store, writer, links = self._core.store, self._core.writer, self._core.servers.links
        try:
            await asyncio.to_thread(store.backup_if_due)  # seconds in a large store: nothing waits for it
            before = await writer.call(self._trashed_before)
            gone = [one.id for one in store.conversations(trashed=True) if (one.trashed or before) < before]
            if (mirror := self._mirror()) is not None:
                await mirror.forget_trash()
            await writer.call(lambda: store.purge_trash(before))
            await links.forget(gone)
            await writer.call(store.images.tidy)
            await links.snapshots.tidy()
        except StoreError as error:
            self._core.events.tell(Noticed(str(error), "warning"))

    def _trashed_before(self) -> float:
        """Seconds since the epoch: what was put into the trash before that is removed. Two starts on two days must
        have found it old, for the clock may be wrong on one; a kvchat that stays open adds the time that it was."""
        now = self._core.timestamp()
        today, before = f"{now // 86400:.0f}", now - TRASH_DAYS * 86400
        day, _, found = (self._core.store.setting(TRASH_FOUND) or "").partition(" ")
        if self._found_old is None:
            self._found_old = (float(found) if day not in ("", today) else -math.inf) - time.monotonic()
        if day != today:
            self._core.store.set_setting(TRASH_FOUND, f"{today} {before:.0f}")
        return min(self._found_old + time.monotonic(), before)
