"""What can go wrong in the service: a kind of problem and its arguments, which `text.problems` has in words."""

from __future__ import annotations

from typing import Self

from kvchat.prompt.queued import HoldKind
from kvchat.text.problems import ChatProblem, ProblemError


class ChatError(ProblemError):
    """An act that cannot be done now; the sentence says why and what to do."""

    @classmethod
    def of(cls, reason: object) -> Self:
        """The error for what another part refused: its error, or its sentence."""
        return cls(ChatProblem.TOLD, sentence=reason)


class GivenUp(ChatError):  # noqa: N818
    """The user no longer waits for the reply of another window: the act was not done."""


class AnsweredElsewhere(ChatError):  # noqa: N818
    """A reply of another window streams here: the act was not done."""


class NotInQueue(ChatError):  # noqa: N818
    """A queued message was sent by another window, or taken out of the queue."""


class HeldError(ChatError):
    """What came before holds the queue: nothing was sent."""

    def __init__(self, kind: HoldKind) -> None:
        super().__init__(ChatProblem.HELD)
        self.kind = kind


class TooLongError(ChatError):
    """A prompt that does not fit in the server's window; nothing was stored or sent."""

    def __init__(self, tokens: int, window: int, *, counted: bool) -> None:
        super().__init__(ChatProblem.TOO_LONG if counted else ChatProblem.ABOUT_TOO_LONG, tokens=tokens, window=window)
        self.tokens = tokens
        """Of the whole prompt."""
        self.window = window
        self.counted = counted
        """Whether the server counted them; else it is an estimate."""
