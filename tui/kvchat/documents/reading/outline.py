"""Outlines: from lines and the headings among them to the sections of a document.

The rule: the sections put together are the text, to the character.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from io import StringIO
from itertools import pairwise

from kvchat.documents.reading.content import Section

LONGEST_TITLE = 120
"""Characters of a heading that are kept as a title."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a section begins."""

    at: int
    """The index of its first line, from 0."""
    titles: tuple[str, ...]


@dataclass(slots=True)
class Outline:
    """The headings that are open while a document is gone through."""

    _open: list[tuple[int, str]] = field(default_factory=list)

    @property
    def titles(self) -> tuple[str, ...]:
        return tuple(title for _, title in self._open)

    def is_inside(self, level: int) -> bool:
        """Whether anything of a lower level is open."""
        return any(one < level for one, _ in self._open)

    def opened(self, level: int, title: str) -> tuple[str, ...]:
        """Where one stands below a heading of that level; it ends those of its level and of deeper ones."""
        self.closed(level)
        self._open.append((level, as_title(title)))
        return self.titles

    def closed(self, level: int) -> bool:
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
    title = " ".join(text[:8 * LONGEST_TITLE].split())
    return title if len(title) <= LONGEST_TITLE else title[:LONGEST_TITLE - 1].rstrip() + "…"


def sections(lines: Sequence[str], marks: Iterable[Mark], *, code: bool = False) -> tuple[Section, ...]:
    """The sections that begin at `marks`, which come in order, and what stands in front of the first. Of marks at one
    line the last counts. Without a mark: one section. A text that is blank has none."""
    begin = next((number for number, line in enumerate(lines) if line.strip()), None)
    if begin is None:
        return ()
    titles = {0: ()} | {mark.at if mark.at > begin else 0: mark.titles for mark in marks}
    starts = [*titles, len(lines)]
    return tuple(Section(titles[first], "".join(lines[first:last]), first + 1, last, code)
                 for first, last in pairwise(starts))
