"""What can go wrong in the memory, told in one sentence: what, where, and what to do.

The rule: nothing but this leaves `Memories`; a caller never sees an error of a file, of SQLite or of the index.
"""

from __future__ import annotations


class MemoryTrouble(Exception):  # noqa: N818
    """Something that was asked of the memory cannot be done. Nothing that was remembered is lost by it."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
