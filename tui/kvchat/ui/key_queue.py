"""Keys that wait for the screen they are meant for.

Keys take effect in the order in which they were typed. A key that may change what the next one means (any but a letter
in a text field) is handled, and the screen that it opens is there, before the next one follows; until the first
conversation is open all of them wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct
from textual import events
from textual.dom import DOMNode
from textual.message_pump import MessagePump
from textual.widget import Widget
from textual.widgets import Input, TextArea

if TYPE_CHECKING:
    from textual.app import App

PATIENCE_S = 1.0
"""How long keys wait for one that does not get done, or for a dialog whose price is not known yet."""
ROUNDS = 3
"""How often a key's way is gone again: what it caused may have caused something in its turn."""

Typed: TypeAlias = "events.Key | events.Paste"
T = TypeVar("T")


class Coming(Struct, eq=False):
    """A dialog on its way."""

    holds_keys: bool = True
    """Whether keys wait for it."""
    is_given_up: bool = False
    """Whether the user closed it before it was there."""
    is_late: bool = False
    """Whether something was typed meanwhile that did not wait for it: it opens by itself."""
    _work: asyncio.Task[Any] | None = None
    """What it waits for."""

    async def found(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What comes of `work`; None: the user gave it up, and it is ended. Raises what `work` does."""
        self._work = task = asyncio.create_task(work)
        await asyncio.gather(task, return_exceptions=True)
        return None if self.is_given_up else task.result()

    def give_up(self) -> None:
        """The user closed it before it was there."""
        self.is_given_up = True
        if self._work is not None:
            self._work.cancel()


class KeyQueue:
    """What is typed in an app, on its way to the widgets. `handle` gives a key to them."""

    def __init__(self, app: App[Any], handle: Callable[[Typed], Awaitable[None]]) -> None:
        self._app = app
        self._handle = handle
        self._waiting: deque[Typed] = deque()
        self._is_held = False
        """Whether a key is on its way that is not done with."""
        self._holds = 1
        """Until the conversation is open, and what else asked for it."""
        self._coming: list[Coming] = []
        self._arrived = asyncio.Event()
        """Set when one of these is there, or will not come."""

    def begin(self) -> None:
        """From now on there is a conversation that keys can go to."""
        self._release()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Have keys wait, however long it takes."""
        self._holds += 1
        try:
            yield
        finally:
            self._release()

    def _release(self) -> None:
        self._holds -= 1
        self._app.call_later(self._pass_on)

    async def take(self, typed: Typed) -> None:
        """Pass on what was typed as soon as everything before it is done with."""
        self._waiting.append(typed)
        await self._pass_on()

    @contextmanager
    def coming(self, *, holds_keys: bool = True) -> Iterator[Coming]:
        """While it is found out whether a dialog is shown, and which, keys wait for it; not where that may take as long
        as another program likes."""
        one = Coming(holds_keys)
        self._coming.append(one)
        try:
            yield one
        finally:
            self._coming.remove(one)
            self._arrived.set()

    def give_up(self, *, long: bool = True) -> bool:
        """Have no dialog shown that is still on its way; with `long` also none that waits for another program. Whether
        one was."""
        late = [one for one in self._coming if not one.is_given_up and (long or one.holds_keys)]
        for one in late:
            one.give_up()
        self._arrived.set()
        return bool(late)

    async def _go_on(self) -> None:
        self._is_held = False
        await self._pass_on()

    async def _pass_on(self) -> None:
        while self._waiting and not self._is_held and not self._holds:
            typed = self._waiting.popleft()
            for one in self._coming:
                one.is_late = True
            place = self._app.focused or self._app.screen
            if isinstance(typed, events.Key) and not _is_text(typed, place):
                self._is_held = True
                self._app.run_worker(self._follow(typed, place.ancestors_with_self), group="keys")
            else:
                await self._handle(typed)

    async def _follow(self, key: events.Key, way: Sequence[DOMNode]) -> None:
        """Pass on a key when the text before it is written; wait until all is done that it caused on its way through
        these widgets, then pass on what came after it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await idle(way[:1])
        self._app.call_later(self._handle, key)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await idle(way[-1:])
                for _ in range(ROUNDS):
                    await idle(way)
                while any(one.holds_keys and not one.is_given_up for one in self._coming):
                    self._arrived.clear()
                    await self._arrived.wait()
        front = None
        while front is not self._app.screen:  # a new screen has its focus once it has been through this
            front = self._app.screen
            await idle((self._app.focused or front).ancestors_with_self)
        self._app.call_later(self._go_on)


def _is_text(key: events.Key, place: Widget) -> bool:
    """Whether a key only writes into a text field."""
    return key.is_printable and isinstance(place, Input | TextArea)


async def idle(way: Sequence[MessagePump]) -> None:
    """Until these, in this order, have dealt with all that was in their queues, or are gone."""
    for pump in way:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if pump.call_later(_end, done):
            alive = [pump._task] if pump._task is not None else []
            await asyncio.wait([done, *alive], return_when=asyncio.FIRST_COMPLETED)


def _end(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
