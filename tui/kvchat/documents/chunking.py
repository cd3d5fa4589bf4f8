"""Chunking: cut the sections of a document into pieces of about 1,000 characters, each of which is found as a whole.

The chunks in order are the document, but for blank lines between them and spaces at a cut. None is longer than
`LONGEST`, and none ends with a heading that something follows. A long text is cut between paragraphs rather than
between lines, between lines rather than within one, in a code fence only if that is too long, at sentences and words
rather than in them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from itertools import islice, pairwise, takewhile

from msgspec import Struct
from msgspec.structs import replace

from kvchat.documents.reading.content import Content, Section, Unit, as_title, lines_of
from kvchat.documents.reading.markdown import Fences
from kvchat.index.content import Chunk

FULL = 1200
"""Characters that a piece has at most, if it can be helped."""
LONGEST = 2000
"""Characters that no piece exceeds."""
_AIM = 1100
_SHORTEST = 600
"""Characters from which on a long line is cut."""
_IN_FENCE, _IN_LINE, _IN_PARAGRAPH, _AT_ITEM, _AFTER_COLON = 1500, 400, 250, 100, 150
"""What a cut at such a place costs, in characters that a piece may rather be longer or shorter."""
_INDENTED, _MOST_INDENTED = 8, 15

_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,4}[.)])\s")
_ENDS = (re.compile(r"[.!?…][\"')\]»”’]{0,3}\s+|[。！？]"), re.compile(r"\s+"), re.compile(r"[,;，、；>})\]|]"))
"""Where a line is cut: behind the last sentence in reach, else behind the last word, else behind a sign."""
_JOINER = "\u200d"


def split(text: str, keep: int = 0, *, code: bool = False) -> Iterator[tuple[int, int]]:
    """The pieces of a text, each by its first character and the one after its last. Only blank space is left out. No
    cut is in the first `keep` characters, nor right behind them. `code`: it has no fences."""
    lines = lines_of(text)
    if len(max(lines, key=len, default="")) > FULL:
        lines = [piece for line in lines for piece in _cut(line)]
    starts, ends = _edges(lines)
    fenced = not code and ("```" in text or "~~~" in text)
    costs = _costs(lines, starts, ends, keep, Fences() if fenced else None)
    first, last = 0, max((at for at, end in enumerate(ends) if end >= 0), default=-1)
    while first <= last:
        if ends[first] < 0:
            first += 1
            continue
        after = _after(first, last, starts, ends, costs)
        end = max(ends[first:after])
        yield starts[first], end
        first = after


def _edges(lines: Sequence[str]) -> tuple[list[int], list[int]]:
    """Where each line starts, and where what it says ends; -1 for a blank one."""
    starts, ends = list[int](), list[int]()
    offset = 0
    for line in lines:
        starts.append(offset)
        said = len(line.rstrip())
        ends.append(offset + said if said else -1)
        offset += len(line)
    return starts, ends


def _costs(
    lines: Sequence[str], starts: Sequence[int], ends: Sequence[int], keep: int, fences: Fences | None
) -> list[int | None]:
    """What it costs to cut in front of each line; None: not there."""
    costs = list[int | None]()
    blank, whole, colon, in_fence = True, True, False, False  # what the line before is
    for line, start, end in zip(lines, starts, ends, strict=True):
        if end < 0 or start <= keep:
            costs.append(None)
        elif not whole:
            costs.append(_IN_LINE)
        else:
            cost = 0 if blank else _AT_ITEM if _ITEM.match(line) else _IN_PARAGRAPH
            if line[0] in " \t":
                cost += min(len(line) - len(line.lstrip()), _MOST_INDENTED) * _INDENTED
            costs.append(cost + (_AFTER_COLON if colon else 0) + (_IN_FENCE if in_fence else 0))
        if fences is not None:
            fences.holds(line)
            in_fence = fences.is_open
        blank, whole = end < 0, line[-1] == "\n"
        colon = colon if blank else line[end - start - 1] == ":"
    return costs


def _after(first: int, last: int, starts: Sequence[int], ends: Sequence[int], costs: Sequence[int | None]) -> int:
    """The line that the next piece starts with, if one starts with line `first`."""
    begin = starts[first]
    left = ends[last] - begin
    if left <= FULL:
        return last + 1
    aim = left / -(-left // _AIM)
    best, least, forced, end = 0, float("inf"), first + 1, begin
    for at in range(first, last + 1):
        size = end - begin
        cost = costs[at]
        if at > first and cost is not None and abs(size - aim) + cost < least:
            best, least = at, abs(size - aim) + cost
        forced = max(forced, at)
        end = max(end, ends[at])
        if end - begin > LONGEST or size - aim > least:
            return best or forced
    return last + 1 if abs(left - aim) < least else best


def _cut(line: str) -> Iterator[str]:
    """A line in pieces of at most `FULL` characters."""
    at = 0
    while len(line) - at > FULL:
        end = _end(line, at)
        yield line[at:end]
        at = end
    if at < len(line):
        yield line[at:]


def _end(line: str, at: int) -> int:
    """Where the piece of a long line ends that begins at `at`."""
    window = line[at + _SHORTEST : at + _AIM]
    for pattern in _ENDS:
        ends = [found.end() for found in pattern.finditer(window)]
        if ends:
            return at + _SHORTEST + ends[-1]
    end = at + _AIM
    while end > at + _AIM - 40 and (
        line[end] == _JOINER
        or line[end - 1] == _JOINER
        or unicodedata.combining(line[end])
        or unicodedata.category(line[end]) in ("Mn", "Me", "Cf")
    ):
        end -= 1
    return end if end > at + _AIM - 40 else at + _AIM


TINY = 600
"""Characters. Smaller sections are packed together with their neighbours."""
SCRAP = 200
"""Characters. A piece that is shorter goes with a neighbour that is of the same section or around it."""
LONGEST_HEAD = 400
_SEPARATOR = " > "
_MOST_HEADING = 8
"""Lines in which a heading is looked for."""
_BLANK_LINES = re.compile(r"(?:[^\S\n]*+\n)*+")


class _Part(Struct, frozen=True):
    """One or several sections, or a piece of one."""

    titles: tuple[str, ...]
    """The headings above all of it."""
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
    give the place of each chunk."""
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
    return head[: LONGEST_HEAD // 2].rstrip() + " … " + head[-LONGEST_HEAD // 2 + 3 :].lstrip()


def _with_headings(sections: Iterable[Section], by_lines: bool) -> Iterator[_Part]:
    """The sections, each with those in front of it that are nothing but headings."""
    waiting: _Part | None = None
    for section in sections:
        if not section.text.strip():
            continue
        keep = _heading(section.titles, section.text)
        part = _Part(section.titles, section.text, section.first, section.last, section.code, len(section.titles), keep)
        if waiting is not None:
            over = section.titles[: len(waiting.titles)] == waiting.titles
            if len(waiting.text) < TINY and (over or not waiting.code):
                joined = _joined(waiting, part, by_lines)
                part = replace(
                    joined, titles=part.titles, deepest=part.deepest, keep=len(joined.text) - len(part.text) + keep
                )
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
    return _Part(
        _common(one.titles, other.titles),
        text + other.text,
        one.first,
        other.last,
        one.code and other.code,
        max(one.deepest, other.deepest),
        one.keep,
    )


def _common(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """The titles that both begin with."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(title for title, _ in same)
