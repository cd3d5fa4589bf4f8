"""A message on its way from the composer to the conversation: which it is, and how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct, field

from kvchat.prompt.drafts import Draft

if TYPE_CHECKING:
    from kvchat.chat.question import Question
    from kvchat.chat.question.retrieval import RetrievalResult
    from kvchat.chat.turns.alternatives import AlternativesRequest
    from kvchat.chat.turns.queue import Queued
    from kvchat.ui.widgets.composer.messages import Submitted


class Edited(Struct, frozen=True):
    """It takes the place of a question."""

    question: str


class FromQueue(Struct, frozen=True):
    """The user sends it from the queue."""

    item: Queued


class Several(Struct, frozen=True):
    """Several answers are asked for, if the user agrees to what those cost."""

    request: AlternativesRequest
    agrees: Callable[[AlternativesRequest, Question], Awaitable[bool]]


class Asking(Struct, frozen=True):
    """The user is asked about it: only the answer takes it back."""


class LookingUp(Struct, frozen=True):
    """What goes with it is looked up; this ends when the message is taken back."""

    task: asyncio.Task[RetrievalResult]


class Delivering(Struct, frozen=True):
    """It is made a turn of its conversation; one that is taken back now has its answer stopped at once."""


class TakenBack(Struct, frozen=True):
    """The user took it back."""


class Returning(Struct, frozen=True):
    """It is not sent: it goes back into the composer, to be changed."""

    compacts: bool = False
    """Whether the user would rather compact the conversation first."""


Phase = Asking | LookingUp | Delivering | TakenBack | Returning


class Sending(Struct):
    """A message on its way, until it is sent or back in the composer.

    Asking (may it leave this machine) -> LookingUp -> Delivering
    LookingUp -> Asking (what several answers cost) -> Delivering, Returning
    Delivering -> Asking (files from outside; it is too long) -> Delivering, Returning
    LookingUp, Delivering -> TakenBack, by the user's key
    any -> Returning, where the server refuses it
    """

    id: str
    """Its conversation."""
    event: Submitted
    kind: Edited | FromQueue | Several | None = None
    """None: a new message, to be answered once."""
    phase: Phase = Asking()
    later: Draft = field(default_factory=Draft)
    """What was begun after it."""
    is_slow: bool = False
    """Whether looking up takes so long that it is worth a word."""
    is_followed: bool = False
    """Whether another one was put into the queue behind it."""

    @property
    def editing(self) -> str | None:
        """The question that it takes the place of."""
        return self.kind.question if isinstance(self.kind, Edited) else None

    @property
    def is_in_draft(self) -> bool:
        """Whether the conversation's draft keeps it until it is sent."""
        return not isinstance(self.kind, Edited | FromQueue)

    @property
    def shows_looking_up(self) -> bool:
        """Whether the line over the composer says that what goes with it is still being looked up."""
        return self.is_slow and not isinstance(self.phase, Asking)

    def take_back(self) -> bool:
        """The user takes it back. Return whether that is possible: not while they are asked."""
        match self.phase:
            case Asking():
                return False
            case LookingUp(task=task):
                task.cancel()
                self.phase = TakenBack()
            case Delivering():
                self.phase = TakenBack()
        return True
