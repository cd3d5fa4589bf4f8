"""What an export reads, its formats by name, and how it fails.

Every format is a pure function of `Source` values to pieces of text, in a module of its own with one line
in `kvchat.transfer`; it never sees the store, the settings or a server, so nothing that is not in those values can
leave by it. No piece is longer than one source, and no format is imported before its first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from kvchat.transfer import FORMATS

if TYPE_CHECKING:
    from kvchat.figures.speed import SpeedFit
    from kvchat.prompt.conversation import Conversation
    from kvchat.prompt.tree import Tree


class TransferError(Exception):
    """An export or import that did not happen. `sentence` says what, where, and what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class FileExists(TransferError):  # noqa: N818 - it is named after the fact
    """There is a file of that name already, and replacing it was not asked for."""


class Source(Struct, frozen=True):
    """One conversation with all its branches."""

    conversation: Conversation
    tree: Tree
    draft: str = ""
    """What is written and not sent, as the store has it; only a file of unsaved conversations holds it."""
    speed: SpeedFit | None = None
    """The prefill speed of the server that answered last; None: not measured."""
    images: Mapping[str, bytes] = field(default_factory=dict)
    """The `data:` URLs of the images in its messages, by their names; those that are gone are missing."""


class Sources(Protocol):
    """Conversations to export, iterated once: a list, or an object that loads each one when it is reached."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Source]: ...


class Format(Struct, frozen=True):
    """One export format."""

    name: str
    """What it is called in a list of names."""
    title: str
    """What it is, in a few words."""
    write: Callable[[Sources, bool], Iterator[str]]
    """The text of the sources in pieces; the second argument is whether branches not in use are in it."""
    every_branch: bool = False
    """Whether it always holds every branch."""


@cache
def format_of(name: str) -> Format:
    """The format of this name. Raises TransferError for another name."""
    if name not in FORMATS:
        raise TransferError(f"There is no export format {name!r}. Choose one of: {', '.join(FORMATS)}.")
    found: Format = import_module(f"kvchat.transfer.{FORMATS[name]}").FORMAT
    return found


def render(format: str, sources: Sources, *, all_branches: bool = False) -> str:
    """`sources` as the text of `format`. Raises TransferError as `pieces` does."""
    return "".join(pieces(format, sources, all_branches=all_branches))


def pieces(format: str, sources: Sources, *, all_branches: bool = False) -> Iterator[str]:
    """`sources` as the text of `format`, bit by bit. Raises TransferError for a name that is none, and later for a
    source that cannot be written."""
    return format_of(format).write(sources, all_branches)
