"""Mentions: `@handbook`, `@handbook/guide/setup.md`, `@./notes.txt` in what the user writes.

A mention that names nothing is just text; the text of a message is never changed for one. What is quoted or code
mentions nothing, and a file of the disk is mentioned only where a word begins after white space. `\\@` is never a
mention. A pasted one mentions nothing either: the spans of a text decide that elsewhere.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from kvchat.documents.collection import Collection
from kvchat.documents.loading import path_meant

_NAMED = re.compile(r'@(?:"([^"\n]{1,1000})"|((?:\\ |[^\s@"<>|]){1,1000}))')
_MENTION = re.compile(rf'(?<![\w@./"\\]){_NAMED.pattern}')
_AFTER = ".,;:!?)]}'’”»…，。、；：！？）】」』"
"""What may follow a mention without belonging to it."""
_IN_NAMES = re.compile(r"[\w./~-]")
"""Characters of collection names and most paths: at others a name may end."""
_SHORTER = 8
"""The places in a name, from its beginning, where it is tried to end."""
_FENCE = re.compile(r"\s*(?:[-*+]\s+|\d{1,9}[.)]\s+)?(`{3,}(?=[^`]*$)|~{3,})", re.MULTILINE)
_NO_PROSE = re.compile(r" {0,3}>|\t| {4}")
"""How a quoted line begins, or one of indented code."""
_TICKS = re.compile(r"`+")


class MentionKind(StrEnum):
    """What a mention means."""

    COLLECTION = "collection"
    FOLDER = "folder"
    FILE = "file"


class Mention(Struct, frozen=True):
    """One that can be written, offered while the user writes it."""

    text: str
    """What follows the `@`, without quotes: `handbook/guide/`."""
    label: str
    """How it is shown: its last part."""
    kind: MentionKind


class WrittenMention(Struct, frozen=True):
    """A mention in a text."""

    names: tuple[str, ...]
    """What it may mean, the longest first: `v1.2.` is `v1.2.` or `v1.2`."""
    start: int
    end: int
    """Behind its longest name."""
    is_picked: bool = False
    """Whether it was completed, picked from the list or touched: it was something then."""

    def end_of(self, name: str) -> int:
        """Behind this one of its names."""
        return self.end - len(self.names[0]) + len(name)


def written(text: str) -> Iterator[WrittenMention]:
    """The mentions in a text, in their order."""
    found = list(_MENTION.finditer(text))
    code = _not_prose(text) if found else []
    at = 0
    for one in found:
        start = one.start()
        while at < len(code) and code[at][1] <= start:
            at += 1
        if at < len(code) and code[at][0] <= start:
            continue
        names = (one[1],) if one[1] is not None else _names(one[2])
        if start and not text[start - 1].isspace() and is_of_disk(names[0]):
            continue
        yield WrittenMention(names, start, one.end())


def at_place(text: str, place: int) -> WrittenMention | None:
    """The mention in whose characters this place of a text is, its end counted in; None: none."""
    return next((one for one in written(text) if one.start <= place <= one.end), None)


def is_of_disk(name: str) -> bool:
    """Whether a mention names a file of the disk, not one of a collection."""
    return name.startswith(("/", "./", "../", "~/")) or name == "~"


def quoted(name: str) -> str:
    """The name as it is written after the `@`."""
    return f'"{name}"' if re.search(r"[\s@\"<>|]", name) else name


def without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text without these spans: what is searched for."""
    parts, at = [], 0
    for start, end in sorted(spans):
        parts.append(text[at:start])
        at = max(at, end)
    return " ".join(" ".join((*parts, text[at:])).split())


def _names(name: str) -> tuple[str, ...]:
    """A name and the shorter ones that it may be: `handbook's` is `handbook's` or `handbook`."""
    ends = [at for at, sign in enumerate(name) if not _IN_NAMES.match(sign)][:_SHORTER]
    shorter = (name[:at] for at in reversed(ends))
    every = (name, name.rstrip(_AFTER), *(each for part in shorter for each in (part, part.rstrip(_AFTER))))
    return tuple(dict.fromkeys(filter(None, every))) or (name,)


def _not_prose(text: str) -> list[tuple[int, int]]:
    """Where code and quoted lines stand, in their order."""
    spans: list[tuple[int, int]] = []
    at = paragraph = 0
    fence = ""
    for line in text.splitlines(keepends=True):
        end = at + len(line)
        opened = None if fence else _FENCE.match(line)
        if fence or opened or not line.strip() or _NO_PROSE.match(line):
            spans += _inline(text, paragraph, at)
            spans.append((at, end))
            paragraph = end
        if opened:
            fence = opened[1]
        elif fence and _closes(line.strip(), fence):
            fence = ""
        at = end
    return spans + _inline(text, paragraph, at)


def _closes(line: str, fence: str) -> bool:
    return len(line) >= len(fence) and line == fence[0] * len(line)


def _inline(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Inline code in a paragraph: what is between equally many backticks."""
    runs = [found.span() for found in _TICKS.finditer(text, start, end)]
    later: dict[int, list[int]] = {}
    for number in range(len(runs) - 1, -1, -1):
        later.setdefault(runs[number][1] - runs[number][0], []).append(number)
    spans = []
    number = 0
    while number < len(runs):
        same = later[runs[number][1] - runs[number][0]]
        while same and same[-1] <= number:
            same.pop()
        if same:
            spans.append((runs[number][0], runs[same[-1]][1]))
            number = same[-1]
        number += 1
    return spans


def collections(known: Sequence[Collection], beginning: str, most: int) -> list[Mention]:
    """The collections whose names contain this, those that begin with it first."""
    folded = beginning.casefold()
    found = [one.name for one in known if folded in one.name.casefold()]
    found.sort(key=lambda name: not name.casefold().startswith(folded))
    return [Mention(name, name, MentionKind.COLLECTION) for name in found[:most]]


def within(collection: Collection, docs: Sequence[str], beginning: str, most: int) -> list[Mention]:
    """Of the documents of a collection that match: the folders and files one level below what is written, then files
    that match anywhere."""
    folder = beginning.rpartition("/")[0]
    above = f"{folder}/" if folder else ""
    begun: dict[str, Mention] = {}
    others: dict[str, Mention] = {}
    for doc in docs:
        path = doc.removeprefix(collection.scope)
        if path.casefold().startswith(beginning.casefold()):
            first, slash, _ = path[len(above) :].partition("/")
            text = f"{collection.name}/{path[: len(above)]}{first}{slash}"
            begun.setdefault(text, Mention(text, first + slash, MentionKind.FOLDER if slash else MentionKind.FILE))
        else:
            text = f"{collection.name}/{path}"
            others.setdefault(text, Mention(text, path, MentionKind.FILE))
    ordered = sorted(begun.values(), key=lambda one: (one.kind is not MentionKind.FOLDER, one.label.casefold()))
    return [*ordered, *sorted(others.values(), key=lambda one: one.label.casefold())][:most]


def on_disk(beginning: str, most: int) -> list[Mention]:
    """The folders and files of the disk that a path begins like. Hidden ones only where a dot was written."""
    if beginning in ("~", ".", ".."):
        beginning += "/"
    folder, _, last = beginning.rpartition("/")
    try:
        with os.scandir(path_meant(f"{folder}/")) as entries:
            found = [(entry.name, entry.is_dir()) for entry in entries if _fits(entry.name, last)]
    except (OSError, RuntimeError, ValueError):
        return []
    found.sort(key=lambda one: (not one[1], one[0].casefold()))
    named = ((name + "/" if is_folder else name, is_folder) for name, is_folder in found)
    return [
        Mention(f"{folder}/{name}", name, MentionKind.FOLDER if is_folder else MentionKind.FILE)
        for name, is_folder in named
    ][:most]


def in_folder(beginning: str, collections: Iterable[str], most: int) -> list[Mention]:
    """The folders and files of the working folder that a name begins like; where a collection has the name, by a path
    that only a file can have."""
    known = {name.casefold() for name in collections}
    found = on_disk(f"./{beginning}", most)
    bare = ((one.text.removeprefix("./"), one) for one in found)
    return [
        one if text.partition("/")[0].casefold() in known or is_of_disk(text) else replace(one, text=text)
        for text, one in bare
    ]


def _fits(name: str, beginning: str) -> bool:
    hidden = name.startswith(".") and not beginning.startswith(".")
    folded, begun = (unicodedata.normalize("NFC", one).casefold() for one in (name, beginning))
    return name.isprintable() and not hidden and folded.startswith(begun)
