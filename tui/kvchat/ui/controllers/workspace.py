"""What the controllers of the main screen share: the service, the open conversation, and ways to say and ask things."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from kvchat.commands.acts import REFUSALS, cut_answer, meant
from kvchat.sanitize import clean
from kvchat.ui.controllers.questions import Questions

if TYPE_CHECKING:
    from textual.app import App
    from textual.worker import Worker

    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.chat.service import ChatService
    from kvchat.commands.acts import Acts
    from kvchat.prompt.message import Node
    from kvchat.ui.controllers.doors import Host, MainScreen
    from kvchat.ui.controllers.outgoing import Sending
    from kvchat.ui.key_queue import Coming
    from kvchat.ui.screens.kit import Choice, Modal

Severity = Literal["information", "warning", "error"]
T = TypeVar("T")


class Workspace:
    """The open conversation on the main screen. Only used once the service is there."""

    acts: Acts
    """What is done on the main screen as in plain mode."""

    def __init__(self, screen: MainScreen, host: Host, service: ChatService) -> None:
        self.screen = screen
        self.host = host
        self.service = service
        self.key_queue = host.key_queue
        self.questions = Questions(self, screen.composer, screen.question_line)
        """What waits for the user's word."""
        self.current: OpenConversation | None = None
        self.editing: str | None = None
        """The question that the composer edits, if it does."""
        self.outgoing: dict[str, Sending] = {}
        """The messages on their way, by their conversations."""
        self._unsaid: tuple[str, Severity, float] | None = None
        """What waits until the dialog in front is closed."""

    @property
    def app(self) -> App[Any]:
        """Textual's part of the app."""
        return self.screen.app

    @property
    def conversation(self) -> OpenConversation:
        """The open conversation. Only called while one is open."""
        assert self.current is not None
        return self.current

    @property
    def open_id(self) -> str:
        """The id of the open conversation; empty: none is open yet."""
        return self.current.id if self.current is not None else ""

    def shows(self, id: str) -> bool:
        """Whether this conversation is open."""
        return self.current is not None and self.current.id == id

    def say(self, text: str, severity: Severity = "information", seconds: float = 0.0) -> None:
        """Show a sentence in a corner of the screen for `seconds`, or a few; it replaces the one before. While a dialog
        is open it waits."""
        if not self.screen.is_active:
            self._unsaid = text, severity, seconds
            return
        self.app.clear_notifications()
        self.screen.notify(
            clean(text), severity=severity, markup=False, timeout=seconds or (8 if severity == "error" else 5)
        )

    def say_what_waits(self) -> None:
        """The main screen is in front again."""
        unsaid, self._unsaid = self._unsaid, None
        if unsaid is not None:
            self.say(*unsaid)

    async def attempt(self, act: Awaitable[object]) -> bool:
        """Do `act`; what cannot be done is said. Whether it was done."""
        try:
            await act
        except REFUSALS as error:
            self.say(str(error), "warning")
            return False
        return True

    async def ask(self, screen: Modal[T]) -> T | None:
        """Show a modal screen and wait for its answer; None at once when one of its kind is open already. Only in a
        worker, and never in an exclusive one: a screen whose worker was cancelled could not give its answer."""
        if any(type(shown) is type(screen) for shown in self.app.screen_stack):
            return None
        with self.key_queue.coming():
            await self.app._flush_next_callbacks()
            answer = self.app.push_screen(screen, wait_for_dismiss=True)
        return await asyncio.shield(answer)  # who waits may be cancelled, and the screen still has to close

    async def choose(
        self,
        title: str,
        lines: Sequence[str],
        choices: Sequence[Choice[T]],
        *,
        unasked: bool = False,
        letter: bool = False,
        coming: Coming | None = None,
        gist: str = "",
    ) -> T | None:
        """Have the user choose; None: they did not. Only in a worker.

        `unasked`: no key asked for it, so it opens by itself, while nothing is typed. `letter`: a letter may have asked
        for it: who was writing writes on. `coming`: so it may, and it took time to know what to ask; where the keys did
        not wait for that, it is unasked by now. `gist` as in `ConfirmScreen`."""
        from kvchat.ui.screens.kit import ConfirmScreen

        make = partial(ConfirmScreen[T], title, lines, choices, gist=gist)
        if unasked or (coming is not None and coming.is_late):
            return await self.questions.ask(make)
        screen = make()
        if letter or coming is not None:
            screen.open_for(self.questions)
        return await self.ask(screen)

    def key_of(self, action: str) -> str:
        """The first key of an action, as the user reads it; empty without one."""
        return self.host.keys.key_of(action)

    def now(self) -> datetime:
        return self.service.clock()

    def model(self) -> str:
        """The model that would answer here."""
        return self.service.servers.asked_model(self.open_id)

    def continues(self, answer: Node) -> bool:
        """Whether the server goes on with this answer, as far as it is known."""
        server = self.service.servers.info
        return server is None or server.continues(answer.message)

    def target(self) -> str | None:
        """The message an act is about: the one that is marked on the screen, else the last. None where there is none,
        or the screen still shows another conversation."""
        return meant(self.current, self.screen.transcript.marked) if self.current is not None else None

    def cut_answer(self) -> str | None:
        """The answer to go on with: the one that is marked on the screen if it was cut, else the last."""
        return cut_answer(self.current, self.screen.transcript.marked) if self.current is not None else None


class Controller(Protocol):
    """Whatever works in a workspace."""

    @property
    def workspace(self) -> Workspace: ...


P = ParamSpec("P")
C = TypeVar("C", bound=Controller)


def in_worker(
    group: str, *, exclusive: bool = False
) -> Callable[[Callable[Concatenate[C, P], Coroutine[Any, Any, None]]], Callable[Concatenate[C, P], Worker[None]]]:
    """Has a controller's method run as a worker of the main screen, which goes on meanwhile; `exclusive`: in place of
    those of its group that still run. As Textual's `work` does for a widget's method."""

    def decorate(
        method: Callable[Concatenate[C, P], Coroutine[Any, Any, None]],
    ) -> Callable[Concatenate[C, P], Worker[None]]:
        @wraps(method)
        def started(controller: C, /, *args: P.args, **kwargs: P.kwargs) -> Worker[None]:
            work = partial(method, controller, *args, **kwargs)  # Python warns of a coroutine that never begins
            return controller.workspace.screen.run_worker(work, name=method.__name__, group=group, exclusive=exclusive)

        return started

    return decorate
