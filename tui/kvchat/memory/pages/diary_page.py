"""A page of the diary: one section for each extraction. Pure.

The rule: it is only added to. What is there is kept byte for byte, readable or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from kvchat.memory.pages.escape import encoded

_BEGINNING = "# {day}\n\nWhat kvchat noted on this day. Nothing is read from here: keep it, change it or delete it.\n"


def has(page: bytes, id: str) -> bool:
    """Whether a page has the section of that id."""
    return _mark(id).encode() in page


def added(page: bytes, day: str, id: str, lines: Sequence[str], heading: str) -> bytes:
    """The page with one more section."""
    end = "\r\n" if b"\r\n" in page else "\n"
    bullets = (f"- {_one_line(line.removeprefix('- '))}" for line in lines)
    section = [f"## {_one_line(heading)} {_mark(id)}", "", *bullets]
    start = page or _BEGINNING.format(day=day).encode()
    gap = end if start.endswith((b"\n", b"\r")) else end * 2
    return start + (gap + end.join(section) + end).encode()


def _one_line(text: str) -> str:
    return encoded(" ".join(text.split()) or "…")[0]


def _mark(id: str) -> str:
    return f"<!-- {quote(id, safe='-_.:')} -->"
