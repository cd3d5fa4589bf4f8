"""What goes wrong with documents, in words for the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class DocumentError(Exception):
    """A request to the documents that cannot be done; the text is the sentence for the user."""


class FileUnreadableError(Exception):
    """A file that cannot be indexed; the text is the reason, as it follows the file's name: `is encrypted`."""


class TooLargeError(DocumentError):
    """A file is too large to be sent as a whole."""


def attempted(work: Callable[[], T]) -> T | None:
    """What `work` gives; None where it fails: libraries let errors of many kinds through where a file is broken. Raises
    MemoryError, and UnreadableError where that is the reason."""
    try:
        return work()
    except (MemoryError, FileUnreadableError):
        raise
    except Exception:
        return None
