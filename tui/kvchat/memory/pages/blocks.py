"""The list items of a Markdown page: which lines are each one's own. Pure.

The rule: which lines belong to an item depends on the indentation of the lines themselves and not on the items around
it, so that an item can be put in or taken out and all others stay what they are. A tab goes to the next column that
four divides; two columns make a level, and what stands on a deeper level below an item belongs to it, as does text
that goes on directly on the next line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvchat.memory.pages.problem import PageProblem

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z")
_ITEM = re.compile(r"([ \t]*)([-*+]|[0-9]{1,9}[.)])(?:([ \t]+)(\[[^\]]\](?:[ \t]+|\Z))?(.*)|\Z)")
_RULE = re.compile(r"[ \t]*([-*_])(?:[ \t]*\1){2,}\Z")
_NO_TEXT = re.compile(r"[ \t]*(?:#{1,6}(?:[ \t]|\Z)|>|<!--|`{3}|~{3})")
_FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*\Z)|~{3,})")
_HEADING = re.compile(r" {0,3}#[ \t]+(.*)")
_CONFLICT = re.compile(r"<{7}(?: |\Z)|>{7}(?: |\Z)")


@dataclass(slots=True, eq=False)
class Item:
    """A list item."""

    level: int
    parent: Item | None
    indent: str
    marker: str
    box: str
    """A check box with the white space after it; empty: none."""
    lines: list[int] = field(default_factory=list)
    """Its own lines, counted from 0: not the blank ones around them, and not those of the items in it."""
    contents: list[str] = field(default_factory=list)
    """What stands in them: without indentation, marker, check box and white space at the end."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The items of a page in their order, and the first heading of the first rank."""

    items: tuple[Item, ...]
    title: str


def split(text: str) -> list[str]:
    """The lines with their ends, whichever kind these are."""
    return _LINES.findall(text)


def ending(line: str) -> str:
    """The end of a line: empty where it has none."""
    return line[len(line.rstrip("\r\n")):]


def blank(line: str) -> bool:
    """Whether nothing stands on the line."""
    return not line.strip(" \t\r\n")


def goes_on(line: str) -> bool:
    """Whether a line is plain text, which goes on with the paragraph above it if there is one."""
    line = line.rstrip("\r\n")
    return not (blank(line) or _RULE.match(line) or _ITEM.fullmatch(line) or _NO_TEXT.match(line))


def blocks(lines: Sequence[str], first: int) -> Blocks:
    """The items from line `first` on. Raises PageProblem where it cannot be told what is one: inside of a code fence
    or a comment without an end, or of a merge that was not finished."""
    reader = _Reader()
    for at, line in enumerate(lines[first:], start=first):
        reader.take(at, line.rstrip("\r\n"))
    reader.end()
    return Blocks(tuple(reader.items), reader.title)


@dataclass(slots=True)
class _Verbatim:
    """A code fence or a comment over several lines, in which nothing is an item."""

    at: int
    owner: Item | None
    fence: str
    """Empty: it is a comment."""

    def ends(self, line: str) -> bool:
        if not self.fence:
            return "-->" in line
        line = line.strip(" \t")
        return len(line) >= len(self.fence) and not line.strip(self.fence[0])


class _Reader:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.title = ""
        self._open: list[Item] = []
        self._paragraph: Item | None = None
        """The item whose text the next line goes on with, if it is text too, however it is indented."""
        self._verbatim: _Verbatim | None = None

    def take(self, at: int, line: str) -> None:
        columns = _columns(line)
        if self._within_verbatim(at, line, columns):
            return
        going_on, self._paragraph = self._paragraph, None
        if blank(line):
            return
        if _CONFLICT.match(line):
            raise PageProblem(at + 1, "Two versions of this page were merged here and not settled. Keep the lines you "
                                      "want and take this one out.")
        if going_on is not None and columns // 2 <= going_on.level and goes_on(line):
            self._own(going_on, at, line)
            self._paragraph = going_on
            return
        while self._open and self._open[-1].level >= columns // 2:
            self._open.pop()
        item = None if _RULE.match(line) else _ITEM.fullmatch(line)
        if item is not None:
            self._begin(at, item, columns // 2)
        elif self._open:
            self._own(self._open[-1], at, line)
        elif not self.title and (heading := _HEADING.match(line.rstrip(" \t"))):
            self.title = _unclosed(heading[1])
        if self._open and goes_on(self._open[-1].contents[-1] if item is not None else line):
            self._paragraph = self._open[-1]
        self._opens_verbatim(at, line, columns, item is not None)

    def end(self) -> None:
        if self._verbatim is not None:
            what, close = ("code fence", self._verbatim.fence) if self._verbatim.fence else ("comment", "-->")
            raise PageProblem(self._verbatim.at + 1, f"The {what} that begins here has no end. Close it: `{close}`.")

    def _within_verbatim(self, at: int, line: str, columns: int) -> bool:
        """Whether the line belongs to a fence or comment."""
        if self._verbatim is None:
            return False
        owner = self._verbatim.owner
        if owner is not None:
            if not blank(line) and columns // 2 <= owner.level:
                self.end()
            self._own(owner, at, line)
        if self._verbatim.ends(line):
            self._verbatim = None
        return True

    def _begin(self, at: int, found: re.Match[str], level: int) -> None:
        parent = self._open[-1] if self._open else None
        item = Item(level, parent, found[1], found[2], found[4] or "", [at], [(found[5] or "").rstrip(" \t")])
        self.items.append(item)
        self._open.append(item)

    def _own(self, owner: Item, at: int, line: str) -> None:
        owner.lines.append(at)
        owner.contents.append(line.strip(" \t"))

    def _opens_verbatim(self, at: int, line: str, columns: int, is_item: bool) -> None:
        owner = self._open[-1] if self._open else None
        if owner is None and columns > 3:
            return
        text = owner.contents[-1] if is_item and owner is not None else line
        if fence := _FENCE.match(text):
            self._verbatim = _Verbatim(at, owner, fence[1])
        elif not is_item and text.lstrip(" \t").startswith("<!--") and "-->" not in text:
            self._verbatim = _Verbatim(at, owner, "")


def _unclosed(heading: str) -> str:
    """A heading without the signs that may close it."""
    opened = heading.rstrip("#")
    return opened.rstrip(" \t") if opened.endswith((" ", "\t")) else heading


def _columns(line: str) -> int:
    count = 0
    for char in line:
        if char == " ":
            count += 1
        elif char == "\t":
            count += 4 - count % 4
        else:
            break
    return count
