"""The content of a file of any format: sections, cut out of its lines or built as paragraphs come.

Sections that are cut out of a text add up to it, to the character; in built ones every text that is put in appears
once, in order. There are no sections without text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from io import StringIO
from itertools import pairwise

from msgspec import Struct, field


class Unit(StrEnum):
    """What positions count."""

    LINE = "line"
    PAGE = "page"
    PARAGRAPH = "paragraph"


class Section(Struct, frozen=True):
    """A stretch of a document under one heading: a chapter, a function, a page. Sections come in order and leave
    nothing out but what is empty."""

    titles: tuple[str, ...]
    """The headings above it, the outermost first; for code the class and the function."""
    text: str
    """With the heading's own line, where it has one."""
    first: int
    """The first line, page or paragraph, from 1, as the user's editor or viewer counts."""
    last: int
    code: bool = False
    """Whether lines and indentation carry meaning, so that it is never reflowed."""


class Content(Struct, frozen=True):
    """What a file says."""

    title: str
    """Its own title; empty where it has none."""
    unit: Unit
    sections: tuple[Section, ...]
    exact: bool = True
    """Whether the text of a section is the file's own lines `first` to `last`; False where only about these."""


LONGEST_TITLE = 120
"""Characters of a heading that are kept as a title."""


class Mark(Struct, frozen=True):
    """Where a section begins."""

    at: int
    """The index of its first line, from 0."""
    titles: tuple[str, ...]


class Outline(Struct):
    """The headings that are open while a document is read."""

    _open: list[tuple[int, str]] = field(default_factory=list)

    @property
    def titles(self) -> tuple[str, ...]:
        return tuple(title for _, title in self._open)

    @property
    def last(self) -> str:
        """The innermost; empty: none is open."""
        return self._open[-1][1] if self._open else ""

    def open(self, level: int, title: str) -> tuple[str, ...]:
        """The open headings after one of that level, which ends those of its level and of deeper ones."""
        self.close(level)
        self._open.append((level, as_title(title)))
        return self.titles

    def close(self, level: int) -> bool:
        """End what is open of that level and deeper; whether anything was."""
        before = len(self._open)
        while self._open and self._open[-1][0] >= level:
            self._open.pop()
        return len(self._open) < before


def lines_of(text: str) -> list[str]:
    """The lines, each with its newline character."""
    return list(StringIO(text, newline="\n"))


def as_title(text: str) -> str:
    """A heading as a title: on one line, and not too long."""
    title = " ".join(text[: 8 * LONGEST_TITLE].split())
    return title if len(title) <= LONGEST_TITLE else title[: LONGEST_TITLE - 1].rstrip() + "…"


def sections(lines: Sequence[str], marks: Iterable[Mark], *, code: bool = False) -> tuple[Section, ...]:
    """The sections that begin at `marks`, which come in order, and of what precedes the first. Of marks at one line the
    last counts. Without a mark: one section. A text that is blank has none."""
    begin = next((number for number, line in enumerate(lines) if line.strip()), None)
    if begin is None:
        return ()
    titles = {0: ()} | {mark.at if mark.at > begin else 0: mark.titles for mark in marks}
    starts = [*titles, len(lines)]
    return tuple(
        Section(titles[first], "".join(lines[first:last]), first + 1, last, code) for first, last in pairwise(starts)
    )


SECTION_CHARACTERS = 1_000
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
        self._outline.open(level, text)
        self.add(text, first, last)

    def add(self, text: str, first: int, last: int, *, close: bool = False) -> None:
        """A paragraph at these positions; `close`: without a blank line before it, as rows and items stand."""
        if self._length >= SECTION_CHARACTERS:
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
