"""Collect garbage at a quiet moment: a full collection stops everything for 20 to 70 ms, so it runs while the user
would not notice, not during a word that is typed or an answer that streams.

Nearly all that an answer leaves behind is freed at once, without a collection; what a closed dialog leaves waits.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

EVERY = 2.0
"""Seconds between looks whether this is a quiet moment."""
WORTH = 10
"""Collections of the young after which one of all is worth its time: Python's own number."""
MUCH = 100
"""So many make it come at any moment: 700,000 new objects, 100 MB."""


class Sweeper:
    """Decides when garbage is collected. `is_busy`: whether something runs that a pause would disturb."""

    def __init__(self, is_busy: Callable[[], bool]) -> None:
        gc.disable()  # until the first paint: collections cost a tenth of it
        self._is_busy = is_busy
        self._before = gc.get_threshold()
        self._typed = False

    def begin(self) -> None:
        """The first screen is drawn: exempt all objects that exist now."""
        gc.freeze()
        gc.set_threshold(*self._before[:2], MUCH)
        gc.enable()

    def end(self) -> None:
        """As Python has it."""
        gc.set_threshold(*self._before)
        gc.enable()

    def typed(self) -> None:
        """A key has come; another one is likely."""
        self._typed = True

    def look(self) -> None:
        """Sweep if it is worth it and this is a quiet moment: nothing runs, and no key came since the last look."""
        typed, self._typed = self._typed, False
        if not typed and gc.get_count()[2] >= WORTH and not self._is_busy():
            gc.collect()
