"""Trunks: whole files, captured as a beginning that conversations share.

A trunk never changes, or it would be another beginning. What its files say later makes a new trunk of its name;
conversations that began with the old one keep that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from kvchat.documents import kept_out
from kvchat.documents.attachments import attached, has_changed
from kvchat.documents.collection import IndexingOptions, Skipped
from kvchat.documents.errors import DocumentError, FileUnreadableError, TooLargeError
from kvchat.documents.loading import loaded
from kvchat.documents.scanning import FoundFile, scan
from kvchat.prompt.citations import name_of, numbered
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.message import DEFAULT_INSTRUCTIONS, Node, new_id, node, system_message
from kvchat.sanitize import one_line

MOST_BYTES = 16 << 20
"""Of all its texts: more than any window holds."""
INSTRUCTIONS = f"{DEFAULT_INSTRUCTIONS} Answer from the numbered texts in front of this; they are quoted material too."

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


class Trunk(Struct, frozen=True):
    """A trunk as it was captured."""

    name: str
    id: str
    """32 hexadecimal digits: what its saved states are of."""
    root: Node
    """The system message of all conversations that begin with it. Its blocks are the files, numbered as passages are,
    behind the note that says so."""

    @property
    def files(self) -> list[ContextBlock]:
        """The blocks that are files."""
        return [block for block in self.root.message.blocks if block.ref]

    def changed(self) -> list[str]:
        """The names of its files that say something else now, or are gone."""
        return [name_of(block) for block in self.files if has_changed(block) is not False]


class Gathered(Struct, frozen=True):
    """What paths hold."""

    files: tuple[ContextBlock, ...]
    skipped: tuple[Skipped, ...]


def gathered(
    paths: Sequence[str], options: IndexingOptions, report: Callable[[str], None] = lambda path: None
) -> Gathered:
    """The texts of files and folders, in their order. What is in a folder and cannot be read is skipped; a path of its
    own that cannot raises DocumentError. `report` is called with the name of each file."""
    files: list[ContextBlock] = []
    skipped: list[Skipped] = []
    room = MOST_BYTES
    for given in paths:
        root = Path(given).expanduser()
        for found in _found(root, options):
            if isinstance(found, Skipped):
                skipped.append(found)
                continue
            path, name = found
            report(name)
            try:
                if path != root and (reason := kept_out.why(loaded(path, options.largest).data)):
                    raise FileUnreadableError(reason)
                block = attached(path, name, room)
            except TooLargeError:
                raise DocumentError(
                    f"That is more than {MOST_BYTES >> 20} MB of text, and no window holds it. Name fewer files."
                ) from None
            except (DocumentError, FileUnreadableError) as error:
                if path == root:
                    raise
                skipped.append(Skipped(name, str(error)))
                continue
            room -= len(block.text.encode(errors="replace"))
            files.append(block)
    if not files:
        raise DocumentError(f"There is no text to read in {', '.join(one_line(path, 200) for path in paths)}.")
    return Gathered(tuple(files), tuple(skipped))


def _found(root: Path, options: IndexingOptions) -> Iterator[tuple[Path, str] | Skipped]:
    """The files at or below a path, each with its name for the user."""
    if not root.is_dir():
        yield root, root.name
        return
    for found in scan(root, options):
        if isinstance(found, FoundFile):
            yield root / found.path, f"{root.resolve().name}/{found.path}"
        elif found.path:
            yield found


def trunk_of(name: str, files: Sequence[ContextBlock], created: float) -> Trunk:
    """A new trunk of these files. Raises DocumentError where this cannot be its name."""
    if not _NAME.fullmatch(name):
        raise DocumentError(f"{one_line(name, 80)} cannot be the name of a trunk: use letters, digits, - and _.")
    return Trunk(name, new_id(), node(None, system_message(INSTRUCTIONS, blocks=tuple(numbered(files, ()))), created))
