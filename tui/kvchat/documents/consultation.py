"""What a question asks of the documents: the files and places it mentions, and what to search there.

The rule: where a person names a place, only that is searched, and what cannot be followed is said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.documents.attaching import attached
from kvchat.documents.errors import DocumentError, TooLargeError
from kvchat.documents.mentions import Kind, is_of_disk, without, written
from kvchat.prompt.context import ContextBlock

if TYPE_CHECKING:
    from kvchat.documents.library import Library

_CHIP = re.compile(r"\[[^\[\]\n]{1,80}: [\d,]+ (?:lines?|characters)\]")
"""What stands in a text for a paste or an attached file: `[setup.md: 312 lines]`."""


@dataclass(frozen=True, slots=True)
class Consultation:
    """What is to be searched for a question, and what was read for it already."""

    query: str = ""
    """The text without what it mentions; empty: there is nothing to search for."""
    scopes: tuple[str, ...] = ()
    """Where to search."""
    named: bool = False
    """Whether the person named these places in the text."""
    files: tuple[ContextBlock, ...] = ()
    """The small files that it mentions, as they are now."""
    problems: tuple[str, ...] = ()


def consultation(library: Library | None, text: str, collections: Sequence[str], most_bytes: int) -> Consultation:
    """What `text` asks for; `collections` are searched where it mentions nothing. A file of at most `most_bytes` goes
    as a whole, a larger one of a collection is searched."""
    scopes: dict[str, None] = {}
    files: dict[str, ContextBlock] = {}
    spans: list[tuple[int, int]] = []
    problems: list[str] = []
    for mention in written(text):
        for name in mention.names:
            try:
                followed = _followed(library, name, most_bytes)
            except DocumentError as error:
                problems.append(str(error))
                break
            if followed is None:
                continue
            if isinstance(followed, ContextBlock):
                files[followed.ref] = followed
            else:
                scopes[followed] = None
            spans.append((mention.start, mention.end))
            break
    query = without(text, [*spans, *(found.span() for found in _CHIP.finditer(text))])
    if scopes or library is None:
        return Consultation(query, tuple(scopes), True, tuple(files.values()), tuple(problems))
    known = {one.name: one.scope for one in library.collections()} if collections else {}
    chosen = tuple(known[name] for name in collections if name in known)
    return Consultation(query, chosen, False, tuple(files.values()), tuple(problems))


def _followed(library: Library | None, name: str, most_bytes: int) -> ContextBlock | str | None:
    """A file to send as a whole, or the scope to search in; None: it mentions nothing. Raises DocumentError."""
    if is_of_disk(name):
        return _of_disk(name, most_bytes)
    found = library.scope_of(name) if library is not None else None
    if library is None or found is None:
        return None
    scope, kind = found
    if kind is not Kind.FILE:
        return scope
    file = library.file_of(scope)
    if file is None:
        return scope  # it is gone; what was indexed of it is found
    try:
        return attached(file, name, most_bytes)
    except TooLargeError:
        return scope


def _of_disk(name: str, most_bytes: int) -> ContextBlock | None:
    try:
        path = Path(name).expanduser().absolute()
        if path.is_dir():
            raise DocumentError(f"@{name} is a folder; index it with /documents add {name} to search in it.")
        if not path.exists():
            return None
    except (OSError, RuntimeError, ValueError):
        return None
    return attached(path, path.name, most_bytes)
