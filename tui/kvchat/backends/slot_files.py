"""The answer of a llama.cpp server that was asked to save a slot to a file, or to restore it.

The rule: whatever the server answers gives a value; nothing is raised.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.backends.payload import PayloadError, as_object, count_at, parsed

NOT_SUPPORTED = 501
"""The status of a server without a folder for slots."""


@dataclass(frozen=True, slots=True)
class SlotFile:
    """What became of it. True when it worked."""

    status: int = 0
    """The HTTP status; 0: no answer, or not in time."""
    tokens: int = 0
    """Tokens that were saved or restored."""
    size: int = 0
    """Bytes that were written or read."""

    def __bool__(self) -> bool:
        return self.status == 200


NO_ANSWER = SlotFile()


def slot_file_of(status: int, body: bytes) -> SlotFile:
    """The answer with this status and body; figures that are missing or no numbers count as 0."""
    if status != 200:
        return SlotFile(status)
    try:
        said = as_object(parsed(body.decode("utf-8", "replace")), "a slot")
        tokens = count_at(said, "n_saved") or count_at(said, "n_restored") or 0
        size = count_at(said, "n_written") or count_at(said, "n_read") or 0
    except PayloadError:
        return SlotFile(status)
    return SlotFile(status, tokens, size)
