"""The messages that the composer posts: a message to send, a command, a draft, a pause in the typing.

They are known as `Composer.Submitted` and so on; only the composer posts them.
"""

from __future__ import annotations

from textual.message import Message

from kvchat.chat.question import Question
from kvchat.prompt.drafts import Spans


class Submitted(Message, namespace="composer"):
    """A message to send. `key` is the one given with `load`. Where its passages have not been found for this text yet,
    `question.taken` are those that the user took of what was found for an earlier one, and `question.without` names
    those that they left out."""

    def __init__(self, question: Question, key: str) -> None:
        super().__init__()
        self.question = question
        self.key = key


class NextRequested(Message, namespace="composer"):
    """Enter in an empty composer, while messages wait in the queue: send the next one."""


class TakeBackRequested(Message, namespace="composer"):
    """Up in an empty composer, while messages wait in the queue: the last one is to be edited."""


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
    """The text changed and the typing rests: `Composer.context` takes what would be recalled for it, and what was
    found in the documents. Empty where no message is being written. `spans`: those of the text."""

    def __init__(self, text: str, key: str, spans: Spans = ()) -> None:
        super().__init__()
        self.text = text
        self.key = key
        self.spans = spans


class Mentioning(Message, namespace="composer"):
    """A mention with this beginning is being typed: `Composer.mentions` takes what it can become."""

    def __init__(self, beginning: str) -> None:
        super().__init__()
        self.beginning = beginning


class ContextChanged(Message, namespace="composer"):
    """What goes with the message has changed: `Composer.context` tells."""


class PathPasted(Message, namespace="composer"):
    """What was pasted may be the path of a file; `pasted` is its form in the text."""

    def __init__(self, path: str, pasted: str) -> None:
        super().__init__()
        self.path = path
        self.pasted = pasted


class PasteRequested(Message, namespace="composer"):
    """The user wants what the system's clipboard holds: an image, or else this text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Loaded(Message, namespace="composer"):
    """Another draft is shown, that of the conversation `key`; empty: of none."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


class Notice(Message, namespace="composer"):
    """A sentence for the user."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class QuestionWanted(Message, namespace="composer"):
    """The user goes to the question that waits."""
