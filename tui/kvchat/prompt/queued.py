"""Why the messages that wait in a conversation are not sent by themselves."""

from __future__ import annotations

from enum import StrEnum, auto

from kvchat.prompt.message import Node, Role, State


class HoldKind(StrEnum):
    """What holds a queue until the user sends its first message, or takes it back."""

    STOPPED = auto()
    """The user stopped the answer, or the wait for it."""
    FAILED = auto()
    CONTEXT_FULL = auto()
    INTERRUPTED = auto()
    EMPTY = auto()
    TOO_LONG = auto()
    """The first message does not fit in the window."""
    NEEDS_YES = auto()
    """The user has not agreed that it, or a file that it mentions, goes to the server."""
    NOT_SENT = auto()
    """The message before it, or it itself, could not be sent."""
    EARLIER = auto()
    """It was put into the queue before kvchat was started, or in a window that has ended."""


_OF_ANSWERS = {
    State.CANCELLED: HoldKind.STOPPED,
    State.ERROR: HoldKind.FAILED,
    State.CONTEXT_FULL: HoldKind.CONTEXT_FULL,
    State.INTERRUPTED: HoldKind.INTERRUPTED,
    State.EMPTY: HoldKind.EMPTY,
}


def hold_of(last: Node) -> HoldKind | None:
    """What holds a queue behind the last message of a branch; None: nothing, also where its answer still streams or
    was cut at max tokens, as the user set them."""
    return _OF_ANSWERS.get(last.state) if last.role is Role.ASSISTANT else None
