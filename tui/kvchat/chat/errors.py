"""What can go wrong in the service, told to the person in one sentence."""

from __future__ import annotations

from kvchat.prompt.queued import HoldKind
from kvchat.text.format import count


class ChatError(Exception):
    """An act that cannot be done now; the sentence says why and what to do."""


class GivenUp(ChatError):  # noqa: N818
    """The person no longer waits for the reply of another window: the act was not done."""


class AnsweredElsewhere(ChatError):  # noqa: N818
    """A reply of another window streams here: the act was not done."""


class NotInQueue(ChatError):  # noqa: N818
    """A queued message was sent by another window, or taken out of the queue."""


class HeldError(ChatError):
    """What came before holds the queue: nothing was sent."""

    def __init__(self, kind: HoldKind) -> None:
        super().__init__("The queue is held.")
        self.kind = kind


class TooLongError(ChatError):
    """A prompt that does not fit in the server's window; nothing was stored or sent."""

    def __init__(self, tokens: int, window: int, *, counted: bool) -> None:
        about = "" if counted else "about "
        super().__init__(f"Too long: the prompt has {about}{count(tokens)} tokens, the server's window holds "
                         f"{count(window)}. Shorten the question, begin a new conversation, or give the server a "
                         "larger window.")
        self.tokens = tokens
        """Of the whole prompt."""
        self.window = window
        self.counted = counted
        """Whether the server counted them; else it is an estimate."""
