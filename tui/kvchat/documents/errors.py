"""What goes wrong with documents, in words for the person."""

from __future__ import annotations


class DocumentError(Exception):
    """Something that was asked of the documents cannot be done; the text is the sentence for the person."""


class UnreadableError(Exception):
    """A file that cannot be indexed; the text is the reason, as it follows the file's name: `is encrypted`."""


class TooLargeError(DocumentError):
    """A file is too large to be sent as a whole."""
