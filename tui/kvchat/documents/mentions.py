"""Mentions: `@handbook`, `@handbook/guide/setup.md`, `@./notes.txt` in what a person writes.

The rule: a mention that means nothing is just text; the text of a message is never changed for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

_MENTION = re.compile(r'(?<![\w@./"])@(?:"([^"\n]{1,1000})"|([^\s@"<>|]{1,1000}))')
_AFTER = ".,;:!?)]}'’”»…"
"""What may follow a mention without belonging to it."""


class Kind(StrEnum):
    """What a mention means."""

    COLLECTION = "collection"
    FOLDER = "folder"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Mention:
    """One that can be written, offered while a person writes it."""

    text: str
    """What stands after the `@`, without quotes: `handbook/guide/`."""
    label: str
    """How it is shown: its last part."""
    kind: Kind


@dataclass(frozen=True, slots=True)
class Written:
    """A mention in a text."""

    names: tuple[str, ...]
    """What it may mean, the longest first: `v1.2.` is `v1.2.` or `v1.2`."""
    start: int
    end: int
    """Behind its longest name."""


def written(text: str) -> Iterator[Written]:
    """The mentions in a text, in their order."""
    for found in _MENTION.finditer(text):
        if found[1] is not None:
            yield Written((found[1],), *found.span())
            continue
        name = found[2]
        shorter = name.rstrip(_AFTER)
        yield Written(tuple(dict.fromkeys(filter(None, (name, shorter)))), *found.span())


def is_of_disk(name: str) -> bool:
    """Whether a mention names a file of the disk, not one of a collection."""
    return name.startswith(("/", "./", "../", "~"))


def quoted(name: str) -> str:
    """The name as it is written after the `@`."""
    return f'"{name}"' if re.search(r"[\s@\"<>|]", name) else name


def without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text without what stands at these places: what is searched for."""
    parts, at = [], 0
    for start, end in sorted(spans):
        parts.append(text[at:start])
        at = max(at, end)
    return " ".join(" ".join((*parts, text[at:])).split())
