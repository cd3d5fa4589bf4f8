"""What reading a file gives, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """What positions count."""

    LINE = "line"
    PAGE = "page"
    PARAGRAPH = "paragraph"


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of a document under one heading: a chapter, a function, a page. Sections come in order and leave
    nothing out but what is empty."""

    titles: tuple[str, ...]
    """The headings it stands under, the outermost first; for code the class and the function."""
    text: str
    """With the heading's own line, where it has one."""
    first: int
    """The first line, page or paragraph, from 1, as the person's editor or viewer counts."""
    last: int
    code: bool = False
    """Whether lines and indentation carry meaning, so that it is never reflowed."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a file says."""

    title: str
    """Its own title; empty where it has none."""
    unit: Unit
    sections: tuple[Section, ...]
    exact: bool = True
    """Whether the text of a section is the file's own lines `first` to `last`; False where only about these."""
