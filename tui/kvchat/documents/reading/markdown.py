"""Read Markdown: sections by headings.

What looks like a heading in a fence, a comment, other raw HTML or the front matter is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvchat.documents.reading.content import Content, Mark, Outline, Unit, as_title, lines_of, sections

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_UNDERLINE = re.compile(r" {0,3}(?:(=)=+|--+)\s*")
_MARKERS = re.compile(r"(?:[ \t]++|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))*+")
_FENCE = re.compile(r"(`{3,}+|~{3,}+)([^\n]*)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_RAW = re.compile(r" {0,3}<(?:(!--)|(pre|script|style|textarea)\b)", re.IGNORECASE)
_KEY = re.compile(r"[\w\"'-][\w \"'.-]{0,60}\s?[:=]|#")
_TITLE = re.compile(r"title\s*[:=]\s*(.+)", re.IGNORECASE)
_MOST_FRONT = 400
_MOST_UNDERLINED = 3
"""Lines of a paragraph that an underline makes a heading of; below a longer one it is meant as a rule."""

_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")
_DRESS = re.compile(r" ?\{#[^{}]*\}$|</?[A-Za-z][^<>]*>|`+|\*\*+|(?<!\w)\*(?=\w)|(?<=\w)\*(?!\w)|\\(?=[\W_])")


class Fences:
    """Find the lines that are in a fence, line by line."""

    def __init__(self) -> None:
        self._mark = ""
        self._in_item = False

    @property
    def is_open(self) -> bool:
        """Whether the next line may still be in the same fence."""
        return bool(self._mark)

    def holds(self, line: str) -> bool:
        """Whether the next line belongs to a fence, its first and last line included."""
        if self._mark:
            bare = line.strip()
            if self._in_item and bare and not line[0].isspace() and not bare.startswith(self._mark):
                self._mark = ""  # the list that it stood in has ended
            else:
                if bare.startswith(self._mark) and not bare.strip(self._mark[0]):
                    self._mark = ""
                return True
        if "```" not in line and "~~~" not in line:
            return False
        start = _MARKERS.match(line)
        begin = start.end() if start else 0
        found = _FENCE.match(line, begin)
        if found is None or (found[1][0] == "`" and "`" in found[2]):
            return False
        self._mark = found[1]
        self._in_item = begin > 3 or bool(line[:begin].strip())
        return True


class _Raw:
    """Which lines stand in a comment or in other raw HTML that Markdown leaves alone."""

    def __init__(self) -> None:
        self._end = ""

    def holds(self, line: str) -> bool:
        if not self._end:
            found = _RAW.match(line) if "<" in line[:4] else None
            if found is None:
                return False
            self._end = "-->" if found[1] else f"</{found[2].lower()}>"
        if self._end in line.lower():
            self._end = ""
        return True


def read_markdown(text: str) -> Content:
    """The sections of a Markdown text. Its title is its first top heading, else the one its front matter names."""
    lines = lines_of(text)
    front, named = _front_matter(lines)
    found, top = _headings(lines, front)
    begin = next((at for at in range(front, len(lines)) if lines[at].strip()), len(lines))
    marks = [Mark(begin, ())] if 0 < front <= begin < len(lines) else []
    return Content(top or named, Unit.LINE, sections(lines, marks + found))


def title_of(heading: str) -> str:
    """What a heading says in its first 1,000 characters, without its markup, on one line."""
    text = " ".join(heading[:1000].split())
    if "[" in text:
        text = _LINK.sub(r"\1", text)
    return as_title(_DRESS.sub("", text)) or as_title(heading)


def _headings(lines: Sequence[str], begin: int) -> tuple[list[Mark], str]:
    """The headings from line `begin` on, and the text of the first one of level 1."""
    outline, fences, raw = Outline(), Fences(), _Raw()
    marks: list[Mark] = []
    top = ""
    paragraph: int | None = None
    quiet = False  # in a list, a quote or a table: an underline there makes no heading
    for at in range(begin, len(lines)):
        line = lines[at]
        level, start, said = 0, at, ""
        if fences.holds(line) or raw.holds(line):
            paragraph, quiet = None, False
            continue
        if "#" in line[:4] and (found := _ATX.match(line)):
            level, said = len(found[1]), _unclosed(found[2] or "")
        elif paragraph is not None and (found := _UNDERLINE.fullmatch(line)):
            level, start, said = (1 if found[1] else 2), paragraph, " ".join(lines[paragraph:at])
        elif not line.strip():
            paragraph, quiet = None, False
            continue
        elif not quiet:
            paragraph, quiet = _paragraph(line, at, paragraph)
            continue
        else:
            continue
        paragraph, quiet = None, False
        title = title_of(said)
        if title:
            marks.append(Mark(start, outline.open(level, title)))
            top = top or (title if level == 1 else "")
    return marks, top


def _paragraph(line: str, at: int, paragraph: int | None) -> tuple[int | None, bool]:
    """The first line of the paragraph that `line` belongs to, where an underline may follow; and whether none may."""
    if line.lstrip()[:1] in "><|" or line.startswith(("    ", "\t")) or _ITEM.match(line):
        return None, True
    if paragraph is None and not line.strip("*-_ \t\n"):
        return None, False  # a rule
    if paragraph is None:
        return at, False
    return (None, True) if at - paragraph >= _MOST_UNDERLINED else (paragraph, False)


def _unclosed(heading: str) -> str:
    """The text of an ATX heading without the signs that may close it."""
    text = heading.rstrip()
    bare = text.rstrip("#")
    return bare if not bare or bare[-1] in " \t" else text


def _front_matter(lines: Sequence[str]) -> tuple[int, str]:
    """How many lines the front matter has, and the title it names."""
    fence = lines[0].rstrip() if lines else ""
    if fence not in ("---", "+++"):
        return 0, ""
    named = ""
    for at in range(1, min(len(lines), _MOST_FRONT)):
        line = lines[at].rstrip()
        if line == fence or (line == "..." and fence == "---"):
            return at + 1, named
        if at == 1 and not _KEY.match(line):
            return 0, ""
        if not named and (found := _TITLE.match(line)):
            named = title_of(found[1].strip().strip("\"'"))
    return 0, ""
