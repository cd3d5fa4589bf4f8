"""What the composer tells: a message to send, a command, a draft, a rest in the typing.

The rule: these are known as `Composer.Submitted` and so on; nobody else sends them.
"""

from __future__ import annotations

from textual.message import Message

from kvchat.prompt.context import ContextBlock


class Submitted(Message, namespace="composer"):
    """A message to send. `key` is the one given with `load`. `dropped`: the ids of the memories that the person
    left out; `memories` False: none may go with it."""

    def __init__(self, text: str, blocks: tuple[ContextBlock, ...], key: str,
                 dropped: frozenset[str] = frozenset(), memories: bool = True) -> None:
        super().__init__()
        self.text = text
        self.blocks = blocks
        self.key = key
        self.dropped = dropped
        self.memories = memories


class SlashCommand(Message, namespace="composer"):
    """A command that the app offered was given."""

    def __init__(self, name: str, argument: str) -> None:
        super().__init__()
        self.name = name
        self.argument = argument


class DraftChanged(Message, namespace="composer"):
    """The draft changed and rested, or is being left. `draft` is what `load` takes."""

    def __init__(self, draft: str, key: str) -> None:
        super().__init__()
        self.draft = draft
        self.key = key


class Rested(Message, namespace="composer"):
    """The text changed and the typing rests: `set_memories` takes what would be recalled for it. Empty where no
    message is being written."""

    def __init__(self, text: str, key: str) -> None:
        super().__init__()
        self.text = text
        self.key = key


class Notice(Message, namespace="composer"):
    """A sentence for the person."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class StopRequested(Message, namespace="composer"):
    """ctrl+c with nothing to copy and nothing to clear: the app stops a running answer, or shows a hint."""


class QuitRequested(Message, namespace="composer"):
    """ctrl+d in an empty composer."""
