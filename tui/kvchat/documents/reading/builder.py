"""Building sections out of paragraphs, headings and code as they come.

The rule: every text that is put in stands in a section, in order, once; a section without text is none.
"""

from __future__ import annotations

from kvchat.documents.reading.content import Section
from kvchat.documents.reading.outline import Outline

ENOUGH = 1_000
"""Characters after which a section ends at the next paragraph, so that its positions stay narrow."""


class Builder:
    """The sections so far."""

    def __init__(self) -> None:
        self._outline = Outline()
        self._done: list[Section] = []
        self._parts: list[str] = []
        self._first = self._last = self._length = 0

    def head(self, level: int, text: str, first: int, last: int) -> None:
        """A heading, 1 the highest: a section begins with it."""
        self._end()
        self._outline.opened(level, text)
        self.add(text, first, last)

    def add(self, text: str, first: int, last: int, *, close: bool = False) -> None:
        """A paragraph at these positions; `close`: without a blank line before it, as rows and items stand."""
        if self._length >= ENOUGH:
            self._end()
        if self._parts:
            self._parts.append("\n" if close else "\n\n")
        else:
            self._first = first
        self._length += len(text)
        self._parts.append(text)
        self._last = max(first, last)

    def code(self, text: str, first: int, last: int) -> None:
        """Text whose lines and indentation carry meaning: a section of its own under the same headings."""
        self._end()
        self._done.append(Section(self._outline.titles, text, first, max(first, last), code=True))

    def sections(self) -> tuple[Section, ...]:
        """All of them."""
        self._end()
        return tuple(self._done)

    def _end(self) -> None:
        if self._parts:
            self._done.append(Section(self._outline.titles, "".join(self._parts), self._first, self._last))
        self._parts, self._length = [], 0
