"""Chunking: the sections of a document as pieces of about 1,000 characters, each of which is found as a whole.

The rule: the chunks in order are the document, but for blank lines between them and spaces at a cut. None is longer
than `LONGEST`, and none ends with a heading that something follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import islice, pairwise, takewhile

from kvchat.documents.reading.content import Content, Section, Unit, as_title
from kvchat.documents.splitting import FULL, LONGEST, split
from kvchat.index.content import Chunk

__all__ = ["LONGEST", "chunks"]

TINY = 600
"""Characters. Smaller sections are packed together with their neighbours."""
SCRAP = 200
"""Characters. A piece that is shorter goes with a neighbour that is of the same section or around it."""
LONGEST_HEAD = 400
_SEPARATOR = " > "
_MOST_HEADING = 8
"""Lines in which a heading is looked for."""
_BLANK_LINES = re.compile(r"(?:[^\S\n]*+\n)*+")


@dataclass(frozen=True, slots=True)
class _Part:
    """One or several sections, or a piece of one."""

    titles: tuple[str, ...]
    """What all of it stands under."""
    text: str
    first: int
    last: int
    code: bool
    deepest: int
    """How many titles that of its sections has which has most."""
    keep: int = 0
    """Characters at the beginning, of a heading, that are not parted from what follows them."""
    whole: bool = True
    """Whether it is no piece, so that its neighbours may join it."""


def chunks(content: Content, name: str) -> list[Chunk]:
    """The chunks of a document. `name`: of its file; each head begins with it. The keys are unique and in order, and
    say where each chunk stands."""
    by_lines = content.exact and content.unit is Unit.LINE
    stem = [as_title(name.rpartition("/")[2])]
    if content.title and all(section.titles[:1] != (content.title,) for section in content.sections):
        stem.append(as_title(content.title))
    found, taken = list[Chunk](), dict[str, int]()
    for part in _packed(_divided(_with_headings(content.sections, by_lines), by_lines), by_lines):
        text, first, last = _trimmed(part, by_lines)
        key = _key(content.unit, first, last)
        taken[key] = number = taken.get(key, 0) + 1
        found.append(Chunk(f"{key}~{number}" if number > 1 else key, _head(stem, part.titles), text))
    return found


def _key(unit: Unit, first: int, last: int) -> str:
    sign = {Unit.LINE: "", Unit.PAGE: "p", Unit.PARAGRAPH: "¶"}[unit]
    return f"{sign}{first}" if first == last else f"{sign}{first}-{last}"


def _head(stem: Sequence[str], titles: Sequence[str]) -> str:
    """The title path; of a long one the beginning and the end."""
    head = _SEPARATOR.join([*stem, *titles])
    if len(head) <= LONGEST_HEAD:
        return head
    return head[:LONGEST_HEAD // 2].rstrip() + " … " + head[-LONGEST_HEAD // 2 + 3:].lstrip()


def _with_headings(sections: Iterable[Section], by_lines: bool) -> Iterator[_Part]:
    """The sections, each with those in front of it that are nothing but headings."""
    waiting: _Part | None = None
    for section in sections:
        if not section.text.strip():
            continue
        keep = _heading(section.titles, section.text)
        part = _Part(section.titles, section.text, section.first, section.last, section.code, len(section.titles), keep)
        if waiting is not None:
            over = section.titles[:len(waiting.titles)] == waiting.titles
            if len(waiting.text) < TINY and (over or not waiting.code):
                joined = _joined(waiting, part, by_lines)
                part = replace(joined, titles=part.titles, deepest=part.deepest,
                               keep=len(joined.text) - len(part.text) + keep)
            else:
                yield waiting
        waiting = part if keep >= len(section.text) else None
        if waiting is None:
            yield part
    if waiting is not None:
        yield waiting


def _heading(titles: Sequence[str], text: str) -> int:
    """Of how many characters the heading of a section is, with the blank lines below it; 0: it begins with none."""
    if not titles:
        return 0
    sought = _letters(titles[-1])[:40]
    end = 0
    found = False
    for line in islice(StringIO(text, newline="\n"), _MOST_HEADING):
        bare = line.strip()
        underline = bool(bare) and not any(map(str.isalnum, bare[:200]))
        if found and not underline:
            break
        end += len(line)
        if underline or not bare or bare.startswith(".. ") or found:
            continue
        found = bare.startswith("#") or (bool(sought) and sought in _letters(bare))
        if not found:
            return 0
    blank = _BLANK_LINES.match(text, end)
    return (blank.end() if blank else end) if found else 0


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text[:400])).lower()


def _divided(parts: Iterable[_Part], by_lines: bool) -> Iterator[_Part]:
    """The parts, those that are too long in pieces."""
    for part in parts:
        if len(part.text) <= FULL:
            yield part
            continue
        line = part.first
        pieces = _without_scraps(split(part.text, part.keep, code=part.code))
        edges = [0, *(start for start, _ in pieces[1:]), len(part.text)]  # with the blanks: scraps may be put to them
        for start, end in pairwise(edges):
            text = part.text[start:end]
            after = line + text.count("\n")
            first, last = (line, after) if by_lines else (part.first, part.last)
            yield _Part(part.titles, text, first, last, part.code, part.deepest, whole=False)
            line = after


def _without_scraps(pieces: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pieces of a section, the tiny ones put to the piece before them, or behind them, where that has room."""
    found: list[tuple[int, int]] = []
    for start, end in pieces:
        if found and min(end - start, found[-1][1] - found[-1][0]) < SCRAP and end - found[-1][0] <= LONGEST:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _trimmed(part: _Part, by_lines: bool) -> tuple[str, int, int]:
    """What a part says, without blank lines at its edges; and where."""
    blank = _BLANK_LINES.match(part.text)
    begin = blank.end() if blank else 0
    text = part.text[begin:].rstrip()
    if not by_lines:
        return text, part.first, part.last
    first = part.first + part.text.count("\n", 0, begin)
    return text, first, first + text.count("\n")


def _packed(parts: Iterable[_Part], by_lines: bool) -> Iterator[_Part]:
    """The parts, neighbours that are small put together."""
    group: _Part | None = None
    for part in parts:
        if group is not None and (joined := _together(group, part, by_lines)) is not None:
            group = joined
            continue
        if group is not None:
            yield group
        group = part
    if group is not None:
        yield group


def _together(one: _Part, other: _Part, by_lines: bool) -> _Part | None:
    """Two neighbours as one part; None: they stay apart."""
    if by_lines and not (one.whole and other.whole) and min(len(one.text), len(other.text)) < SCRAP:
        return _with_scrap(one, other)
    if not (one.whole and other.whole) or min(len(one.text), len(other.text)) >= TINY:
        return None
    joined = _joined(one, other, by_lines)
    related = len(joined.titles) >= joined.deepest - 1
    return joined if len(joined.text) <= (FULL if related else TINY) else None


def _with_scrap(one: _Part, other: _Part) -> _Part | None:
    """A tiny part and its neighbour, a piece of a section, under the title of the larger; None: they stay apart."""
    large, small = (one, other) if len(one.text) >= len(other.text) else (other, one)
    same = len(_common(one.titles, other.titles))
    opens = small is other and (other.keep >= len(other.text) or other.text.rstrip().endswith((":", "{")))
    if opens or same < min(len(one.titles), len(other.titles)):
        return None
    joined = _joined(one, other, by_lines=True)
    return replace(joined, titles=large.titles, whole=False) if len(joined.text) <= LONGEST else None


def _joined(one: _Part, other: _Part, by_lines: bool) -> _Part:
    """Two neighbours, with the blank lines between them."""
    missing = max(0, other.first - one.first - one.text.count("\n"))
    text = one.text + "\n" * missing if by_lines else one.text.rstrip() + "\n\n"
    return _Part(_common(one.titles, other.titles), text + other.text, one.first, other.last,
                 one.code and other.code, max(one.deepest, other.deepest), one.keep)


def _common(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """The titles that both begin with."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(title for title, _ in same)
