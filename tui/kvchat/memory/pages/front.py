"""Front matter: the lines between two `---` at the top of a page, as note-taking programs write them.

The rule: it is the person's. kvchat reads three keys of it, whose values are JSON literals or plain words, keeps every
line as it is, and reports what cannot be front matter at all instead of guessing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvchat.memory.entry import Kind
from kvchat.memory.pages.comment import comments, kind
from kvchat.memory.pages.problem import PageProblem

VERSION = 1
"""The form of pages that this kvchat knows."""
_KNOWN = ("kvchat", "title", "kind")
_LINE = re.compile(r"[ \t].*|[]}#].*|-(?: .*)?|[^\s:#-][^:]*:(?:[ \t].*)?")
_UNCLOSED = re.compile(r"\"(?:[^\"\\]|\\.)*|'[^']*|\[[^]]*|\{[^}]*")


@dataclass(frozen=True, slots=True)
class Front:
    """What the front matter of a page says."""

    end: int = 0
    """The number of lines that it takes."""
    title: str = ""
    kind: Kind = Kind.FACT
    """Of lines without a comment."""


def front(lines: Sequence[str]) -> Front:
    """The front matter of a page. Raises PageProblem where it is broken."""
    if not lines or lines[0].rstrip() != "---":
        return Front()
    known: dict[str, object] = {}
    unclosed: tuple[int, str] | None = None
    for at, raw in enumerate(lines[1:], start=2):
        line = raw.rstrip()
        if unclosed is not None and not line.startswith((" ", "\t", "]", "}")):
            raise PageProblem(unclosed[0], f"The value of `{unclosed[1]}` is not closed. Close its quotes or brackets.")
        if line in ("---", "..."):
            return _front(at, known)
        if comments(line):
            raise PageProblem(at, "Here is a memory, but the front matter above it has no closing `---`. Add it.")
        if line and not _LINE.fullmatch(line):
            raise PageProblem(at, f"This is no front matter: {line[:40]!r}. Write `name: value`, or take the line out.")
        name, _, value = line.partition(":")
        unclosed = (at, name) if _UNCLOSED.fullmatch(value.strip()) else None
        if name in _KNOWN:
            known[name] = _value(value.strip())
    raise PageProblem(1, "The front matter that begins here has no closing `---`. Add it.")


def _front(end: int, known: dict[str, object]) -> Front:
    version = known.get("kvchat", VERSION)
    if isinstance(version, int) and version > VERSION:
        raise PageProblem(1, f"This page has form {version}, which a newer kvchat wrote. Update kvchat to use it.")
    title = known.get("title")
    named = kind(str(known.get("kind", "")))
    return Front(end, title if isinstance(title, str) else "", named or Kind.FACT)


def _value(value: str) -> object:
    """A JSON literal, or plain words."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        quoted = len(value) > 1 and value[0] == value[-1] == "'"
        return value[1:-1].replace("''", "'") if quoted else value
