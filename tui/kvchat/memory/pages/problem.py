"""What can be wrong with a page.

The rule: a page with a problem is left alone, and no entry of it counts as deleted.
"""

from __future__ import annotations


class PageProblem(Exception):  # noqa: N818
    """A page that cannot be read as one: where it is broken and what to do about it."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line
        """From 1; 0 when it is the file as a whole."""
        self.sentence = sentence
