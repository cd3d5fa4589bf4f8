"""What an export reads, and how it fails.

The rule: an export sees values only (a conversation and its tree), never the store, the settings or a server,
so nothing that is not in those values can leave by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from kvchat.cache.speed import SpeedFit
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.tree import Tree


class TransferError(Exception):
    """An export or import that did not happen, told in one sentence: what, where, and what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class FileExists(TransferError):  # noqa: N818 - it is named after the fact
    """There is a file of that name already, and replacing it was not asked for."""


@dataclass(frozen=True, slots=True)
class Source:
    """One conversation with all its branches."""

    conversation: Conversation
    tree: Tree
    draft: str = ""
    """What is written and not sent, as the store has it; only a file of unsaved conversations holds it."""
    speed: SpeedFit | None = None
    """The prefill speed of the server that answered last; None: not measured."""


class Sources(Protocol):
    """Conversations to export, gone through once, one at a time: a list, or what loads each when its turn has come."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Source]: ...
