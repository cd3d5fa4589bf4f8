"""Splitting: a long text at the places where it falls apart best.

The rule: it is cut between paragraphs rather than between lines, between lines rather than within one, in a code fence
only if that is too long, at sentences and words rather than in them; and never right below a heading.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from kvchat.documents.reading.content import lines_of
from kvchat.documents.reading.markdown import Fences

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


def _costs(lines: Sequence[str], starts: Sequence[int], ends: Sequence[int], keep: int,
           fences: Fences | None) -> list[int | None]:
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
    window = line[at + _SHORTEST:at + _AIM]
    for pattern in _ENDS:
        ends = [found.end() for found in pattern.finditer(window)]
        if ends:
            return at + _SHORTEST + ends[-1]
    end = at + _AIM
    while end > at + _AIM - 40 and (line[end] == _JOINER or line[end - 1] == _JOINER or unicodedata.combining(line[end])
                                    or unicodedata.category(line[end]) in ("Mn", "Me", "Cf")):
        end -= 1
    return end if end > at + _AIM - 40 else at + _AIM
