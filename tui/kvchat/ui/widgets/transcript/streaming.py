"""When what streams in is drawn: a bounded share of a core, however fast it comes and however dear it is to draw."""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable
from time import monotonic, thread_time
from typing import NamedTuple

from textual.widget import Widget

FRAME = 1 / 15
"""Seconds between two flushes at least."""
PAINT = 0.5
"""Seconds for which the next flush waits for this one to be painted: what is to follow a paint is dropped with a dialog
that is closed meanwhile."""
REST = 3
"""After a flush, this many times the CPU it took is left to others."""
ECHO = 1 / 30
"""Seconds after a key in which nothing is drawn but what the key did."""
HELD = 0.25
"""Seconds for which keys that keep coming hold text up at most."""


class Pace:
    """Tells when the next flush is due. Times are monotonic seconds, costs CPU seconds."""

    def __init__(self) -> None:
        self._due = 0.0
        self._echoed = 0.0
        """When the last key is surely on the screen."""

    def flushed(self, now: float) -> None:
        """A flush is drawn and will be painted."""
        self._due = now + PAINT

    def painted(self, now: float, cost: float) -> None:
        """A flush that took `cost` is on the screen."""
        self._due = now + max(FRAME, REST * cost)

    def typed(self, now: float) -> None:
        """A key has come."""
        self._echoed = now + ECHO

    def delay(self, now: float) -> float:
        """Seconds until text may be drawn again; 0: at once."""
        return max(0.0, max(self._due, min(self._echoed, self._due + HELD)) - now)


class Partial(NamedTuple):
    """What there is of a streaming message so far."""

    node: str
    text: str
    reasoning: str
    call: str


class Stream:
    """The text that came and is not drawn yet."""

    def __init__(self, widget: Widget, draw: Callable[[Partial], bool]) -> None:
        """`widget`: the one that is painted. `draw` draws what came; it returns whether the message is shown."""
        self._widget = widget
        self._draw = draw
        self.pending: Partial | None = None
        self.pace = Pace()
        self._timer: TimerHandle | None = None

    def put(self, partial: Partial) -> None:
        """Text came: it is drawn when its time has come."""
        if self.pending is not None and self.pending.node != partial.node:
            self.flush()
        self.pending = partial
        self._schedule()

    def drop(self) -> None:
        """What came is not wanted any more: the final form is drawn instead."""
        self.pending = None

    def make_way(self) -> None:
        """A key has come: its echo goes before what streams in."""
        self.pace.typed(monotonic())

    def _schedule(self) -> None:
        """Draw what came, now or when its time has come. Called whenever that may have changed.

        The time is the loop's: Textual's own timer never rings where its time is over before it looks at the clock.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.pending is None:
            return
        delay = self.pace.delay(monotonic())
        if delay > 0 and self._widget.is_attached:
            self._timer = get_running_loop().call_later(delay, self._widget.call_next, self._schedule)
        else:
            self.flush()

    def flush(self) -> None:
        """Draw what came; the next flush waits until this one is painted, and then according to its cost."""
        if self.pending is None:
            return
        partial, self.pending = self.pending, None
        began = thread_time()
        if self._draw(partial):
            self.pace.flushed(monotonic())
            self._widget.call_after_refresh(self._painted, began)

    def _painted(self, began: float) -> None:
        self.pace.painted(monotonic(), thread_time() - began)
        self._schedule()
