"""When an app under test has come to rest: by its queues, and not, as Textual's pilot has it, by an idle processor.

The pilot looks for 20 ms at a time whether the process did next to nothing, before and after every key; where the
machine is busy with something else that is up to a second. Whatever comes later than the messages, a timer or a thread,
is waited for by what it changes: `until`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import textual.app
import textual.constants
import textual.pilot
import textual.screen
from textual._context import active_app
from textual.app import App, ScreenStackError
from textual.pilot import Pilot

QUIET = 8
"""So many rounds of the event loop, in which no message waits, are rest: a message may be on its way in between."""

PAUSE_S = 0.001


async def still(app: App[Any]) -> None:
    """Until every widget has dealt with what was in its queue, and with what that put into the others'."""
    await _queues_empty(app)
    try:
        app.screen._on_timer_update()
    except ScreenStackError:  # it has ended
        return
    await _queues_empty(app)


async def until(app: App[Any], condition: Callable[[], object], told: Callable[[], str] = str) -> None:
    """Until the condition holds, looked at whenever the app comes to rest. Fails after two minutes, with what `told`
    gives, and at once with the error that ended the app."""
    try:
        async with asyncio.timeout(120):
            while not condition():
                if app._exception is not None:  # it shows nothing any more
                    raise app._exception
                await asyncio.sleep(0.005)
                await still(app)
    except TimeoutError:
        raise AssertionError(f"it did not come to that: {told()}") from None


async def _queues_empty(app: App[Any]) -> None:
    quiet, pause = 0, 0.0
    while quiet < QUIET:
        await asyncio.sleep(pause)
        if any(pump.message_queue_size for pump in _pumps(app)):
            quiet, pause = 0, PAUSE_S  # whoever deals with it may wait for a thread, which needs the processor
        else:
            quiet, pause = quiet + 1, 0.0


def _pumps(app: App[Any]) -> list[Any]:
    try:
        return [app, *app.screen.walk_children(with_self=True)]
    except ScreenStackError:
        return [app]


async def _idle(min_sleep: float = 0, max_sleep: float = 1) -> None:
    """What the pilot waits for around a key."""
    await still(active_app.get())


async def _pause(pilot: Pilot[Any], delay: float | None = None) -> None:
    """Rest; with `delay` that many seconds later, when the timers that ended in between have been heard, rest again."""
    await still(pilot.app)
    if delay is not None:
        await asyncio.sleep(delay)
        await still(pilot.app)


def use() -> None:
    """Have every pilot wait so, and a screen painted when its app comes to rest, not 60 times a second besides;
    nothing is animated."""
    textual.app.wait_for_idle = textual.pilot.wait_for_idle = _idle  # type: ignore[attr-defined]
    Pilot.pause = _pause  # type: ignore[method-assign]
    textual.screen.UPDATE_PERIOD = 0.25  # type: ignore[misc]
    textual.constants.TEXTUAL_ANIMATIONS = "none"  # type: ignore[misc]
