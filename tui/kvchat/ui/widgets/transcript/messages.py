"""The messages that the transcript posts to the app."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message


@dataclass
class Selected(Message, namespace="transcript"):
    """Another message is selected; None: none."""

    node: str | None


@dataclass
class CodeCopyRequested(Message, namespace="transcript"):
    """The user wants the `number`-th code block of a message on the clipboard. `text`: None where there is none."""

    number: int
    text: str | None


@dataclass
class BranchesRequested(Message, namespace="transcript"):
    """The user wants the list of branches through a message."""

    node: str


@dataclass
class SourcesRequested(Message, namespace="transcript"):
    """The user wants to see what a message cites, or was sent with; `numbers`: only these, if any are named."""

    node: str
    numbers: tuple[int, ...] = ()


@dataclass
class FollowChanged(Message, namespace="transcript"):
    """Whether the end is followed, or the number of rows below the view, changed."""

    following: bool
    rows_below: int

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, FollowChanged)


@dataclass
class TypeThrough(Message, namespace="transcript"):
    """The user typed a character that is no command here: it belongs in the composer."""

    character: str
