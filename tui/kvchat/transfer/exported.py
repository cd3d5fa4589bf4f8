"""The files that exports wrote to a folder, and which of them are still as they were written.

A file is known by the digest of what was written to it: one that was changed since, or came from elsewhere, is the
user's, whatever its name.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol


class Digest(Protocol):
    """Of `hashlib`."""

    def update(self, data: bytes, /) -> None: ...


class ExportedFiles:
    """The files of one folder, by conversation and format."""

    def __init__(self, known: Mapping[str, tuple[str, str]] | None = None) -> None:
        """`known`: `known` of an earlier export to this folder."""
        self.known = dict(known or {})
        """Name and digest of each file, by the conversation's id with the format behind it."""

    def own(self, folder: Path, id: str, format: str) -> Path | None:
        """The file of a conversation, where it is as an export left it."""
        name, digest = self.known.get(f"{id}.{format}", ("", ""))
        path = folder / name
        return path if name and _digest(path) == digest else None

    def note(self, id: str, format: str, path: Path, digest: str) -> None:
        """A conversation was written to this file of the folder."""
        self.known[f"{id}.{format}"] = path.name, digest


def digested(text: Iterable[str], digest: Digest) -> Iterator[str]:
    """`text`, its bytes added to `digest`."""
    for piece in text:
        digest.update(piece.encode("utf-8", "replace"))
        yield piece


def _digest(path: Path) -> str:
    """The digest of a file; empty for what is none, a link included."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as file:
        is_file = stat.S_ISREG(os.fstat(handle).st_mode)
        return hashlib.file_digest(file, "sha256").hexdigest() if is_file else ""
