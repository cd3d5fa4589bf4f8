"""Questions that open by themselves: a call of the model, a program, a price that came late.

None of them is answered by what is being typed. While something is written, and until nothing was typed for a moment,
such a question waits over the composer, and every key goes to the draft. It opens when the user goes to it (Tab, an
arrow, a click), or by itself over an empty composer. Who types on is writing: the question steps back, the words go to
the draft, and from then on it opens only when the user goes to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from textual import events
from textual.widgets import Input

if TYPE_CHECKING:
    from textual.timer import Timer

    from kvchat.ui.controllers.doors import MainScreen
    from kvchat.ui.screens.kit import ConfirmScreen, Modal
    from kvchat.ui.widgets.composer.widget import Composer
    from kvchat.ui.widgets.question_line import QuestionLine

T = TypeVar("T")


class Place(Protocol):
    """Where questions are asked."""

    screen: MainScreen

    @property
    def open_id(self) -> str:
        """The id of the open conversation; empty: none is open yet."""

    def key_of(self, action: str) -> str:
        """The first key of an action, as the user reads it."""

    async def ask(self, screen: Modal[T]) -> T | None:
        """Show a modal screen and wait for its answer."""


class WaitingQuestion:
    """A question that waits for the user. `make` gives its screen; it belongs to a conversation."""

    def __init__(self, make: Callable[[], ConfirmScreen[Any]], conversation: str, *, stays: bool) -> None:
        self.make = make
        self.conversation = conversation
        self.stays = stays
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.screen: ConfirmScreen[Any] | None = None
        """Its screen, while that is open."""
        self.is_passed = False
        """Whether the user saw it and went on writing."""

    def settle(self, answer: Any) -> None:
        """Answer it; only the first answer counts."""
        if not self.answer.done():
            self.answer.set_result(answer)
        if self.screen is not None:
            self.screen.finish(None)


class Questions:
    """What waits for the user's word in the open conversation, one question after the other."""

    quiet_s: ClassVar[float] = 0.7
    """Seconds without a key after which a question opens by itself."""

    def __init__(self, place: Place, composer: Composer, line: QuestionLine) -> None:
        self._place = place
        self._composer = composer
        self._line = line
        self._all: list[WaitingQuestion] = []
        self.typed_at = 0.0
        """Monotonic seconds of the last key."""
        self._timer: Timer | None = None

    async def ask(
        self,
        make: Callable[[], ConfirmScreen[T]],
        *,
        stays: bool = False,
        on: Callable[[WaitingQuestion], None] | None = None,
    ) -> T | None:
        """Ask the user in the open conversation; None: they gave no answer. `stays`: it is asked again when the user
        comes back to the conversation; else leaving that is no answer. `on` gets the question. Only in a worker."""
        question = WaitingQuestion(make, self._place.open_id, stays=stays)
        self._all.append(question)
        if on is not None:
            on(question)
        try:
            self.look()
            answer: T | None = await question.answer
        finally:
            self._all.remove(question)
            self.look()
        return answer

    @property
    def first(self) -> WaitingQuestion | None:
        """The one that is next in the open conversation."""
        here = self._place.open_id
        return next((one for one in self._all if one.conversation == here and not one.answer.done()), None)

    def look(self) -> None:
        """Show the next question, and open it when nothing is typed."""
        for one in self._all:
            if one.conversation != self._place.open_id and not one.stays:
                one.settle(None)
        first = self.first
        waits = first if first is not None and first.screen is None else None
        if waits is None:
            self._line.show()
        else:
            screen = waits.make()
            self._line.show(screen.heading, screen.gist, self._place.key_of("composer.messages"))
        if self._composer.has_question is not (waits is not None):
            self._composer.has_question = waits is not None
            self._place.screen.show_footer()
        self._open_soon()

    def _open_soon(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        first = self.first
        if first is None or first.screen is not None or first.is_passed:
            return
        left = self.typed_at + self.quiet_s - monotonic()
        if left > 0:
            self._timer = self._place.screen.set_timer(left, self._open_soon)
        elif not self._is_writing():
            self._begin_to_open(first)

    def _is_writing(self) -> bool:
        """Whether something is written in the main screen, or another one is in front."""
        screen = self._place.screen
        field = screen.focused
        return self.is_written or not screen.is_active or (isinstance(field, Input) and bool(field.value))

    def typed(self, event: events.Key | events.Paste) -> None:
        """A key was pressed, wherever it goes."""
        self.typed_at = event.time
        first = self.first
        if first is None or first.screen is not None:
            return
        if isinstance(event, events.Paste) or event.is_printable or event.key == "enter":
            first.is_passed = True
        self._open_soon()

    def go(self) -> None:
        """The user goes to the question that waits."""
        if (first := self.first) is not None and first.screen is None:
            self._composer.focus()
            self._begin_to_open(first, is_meant=True)

    def give_up(self) -> bool:
        """Leave the question that waits unanswered. Whether there is one."""
        first = self.first
        if first is None or first.screen is not None:
            return False
        first.settle(None)
        return True

    def _begin_to_open(self, question: WaitingQuestion, *, is_meant: bool = False) -> None:
        self._place.screen.run_worker(partial(self._open, question, is_meant), group="question")

    async def _open(self, question: WaitingQuestion, is_meant: bool) -> None:
        if question.screen is not None or question.answer.done():
            return
        screen = question.make()
        screen.open_over(self, is_meant=is_meant)
        question.screen = screen
        self.look()
        answer = await self._place.ask(screen)
        question.screen = None
        if screen.has_stepped_back:
            question.is_passed = True
            self.look()
        else:
            question.settle(answer)

    @property
    def is_written(self) -> bool:
        """Whether the draft holds text."""
        return bool(self._composer.text)

    def take(self, text: str, *, is_pasted: bool) -> None:
        """Into the draft: what was typed on a question and is no answer."""
        self._composer.focus()
        if is_pasted:
            self._composer.paste(text)
        else:
            self._composer.type(text)
