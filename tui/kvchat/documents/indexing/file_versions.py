"""File versions: of which state of a file the index holds the chunks, or why it holds none.

A stamp is all that is known of a file without opening it, so that a second run opens no unchanged file. It is one line
of text; what cannot be parsed is the stamp of no file.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from kvchat.documents.collection import READER
from kvchat.documents.scanning import FoundFile
from kvchat.sanitize import one_line

NEEDS = "install kvchat["
"""Part of the reason of a file that can be read once an extra is installed."""


class Stamp(Struct, frozen=True):
    """Of a document in the index."""

    size: int = 0
    mtime_ns: int = 0
    chunks: int = 0
    sha256: str = ""
    """Of the content, in hexadecimal; empty: it was never read."""
    reason: str = ""
    """Why it has no chunks; empty: it is indexed."""
    reader: int = READER

    def __str__(self) -> str:
        known = f"{self.reader} {self.size} {self.mtime_ns} {self.chunks} {self.sha256 or '-'}"
        return f"{known} {self.reason}" if self.reason else known

    def is_of(self, found: FoundFile) -> bool:
        """Whether the file can be taken to be as it was, without opening it."""
        return (
            self.size == found.size and self.mtime_ns == found.mtime_ns and self.reader == READER and not self.can_now
        )

    def holds(self, sha256: str) -> bool:
        """Whether this content would give what is in the index."""
        return self.sha256 == sha256 and self.reader == READER and not self.can_now

    @property
    def can_now(self) -> bool:
        """Whether what the file needed was installed since."""
        return NEEDS in self.reason and find_spec("pypdf") is not None

    def is_readable_now(self, path: Path) -> bool:
        """Whether a file that could not be opened may be read now: permissions change without its dates."""
        if not self.reason or self.sha256:
            return False
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
        except OSError:
            return False
        return True


def stamp_of(text: str | None) -> Stamp | None:
    """The stamp that was written as `text`; None for any other text."""
    try:
        reader, size, mtime_ns, chunks, sha256, reason = [*(text or "").split(" ", 5), ""][:6]
        return Stamp(int(size), int(mtime_ns), int(chunks), sha256.strip("-"), reason, int(reader))
    except ValueError:
        return None


def reason_of(text: str) -> str:
    """A reason as a stamp can hold it: one line."""
    return one_line(text, 200) or "cannot be read"
