"""Going on with an answer that was cut, in words."""

from __future__ import annotations

from kvchat.cache.causes.cause import Statement
from kvchat.prompt.message import Node, NoteKind, State

GO_ON = "Continue."
"""What a server is asked that cannot go on with an answer itself."""


def no_continuing(answer: Node | None) -> str:
    """Why an answer cannot be continued. None: it is none."""
    if answer is None:
        return "That is a question. Select the answer to continue."
    if isinstance(answer.note, Statement) and answer.note.kind == NoteKind.TOOL_CALLS:
        return "The model called a tool here, and kvchat has none: there is no text to continue."
    if answer.state is State.STREAMING:
        return "This answer is still coming."
    if answer.state is State.CONTEXT_FULL:
        return "The context window is full. Compact the conversation, then ask again."
    return "This answer is complete. To hear more, ask for it."


def asked_to_go_on(title: str, message: str) -> str:
    """That a server of the kind `title` was sent a message instead."""
    return f"This kind of server ({title}) cannot continue an answer: “{message}” was sent as a message."
