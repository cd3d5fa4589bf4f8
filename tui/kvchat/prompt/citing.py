"""Citing: the passages of a branch by their numbers, and what an answer's `[2]` means.

The rule: numbers go on over a branch, so that a number means one passage wherever it stands; and a passage whose text
stands on the branch already is not sent again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from kvchat.prompt.context import FILE, NOTE, PASSAGE, ContextBlock
from kvchat.prompt.message import Node

CITE = "The texts below are numbered; name the numbers you rely on, as in [1]."
"""Said once on a branch, in front of its first passages."""

_NUMBER = re.compile(r"\[(\d{1,4})\] ")
_CITED = re.compile(r"(?<![\]\w])\[(\d{1,4}(?:\s*[,;–-]\s*\d{1,4})*)\](?![\[(:])")


def number_of(block: ContextBlock) -> int | None:
    """The number under which an answer can cite a block; None: it has none."""
    found = _NUMBER.match(block.source) if block.kind in (FILE, PASSAGE) else None
    return int(found[1]) if found else None


def name_of(block: ContextBlock) -> str:
    """What a block is from, without its number."""
    return _NUMBER.sub("", block.source, count=1) if block.kind in (FILE, PASSAGE) else block.source


def sources(path: Iterable[Node]) -> dict[int, ContextBlock]:
    """What each number means on a branch."""
    numbered = ((number_of(block), block) for node in path for block in node.message.blocks)
    return {number: block for number, block in numbered if number is not None}


def numbered(blocks: Sequence[ContextBlock], path: Sequence[Node]) -> list[ContextBlock]:
    """The blocks of a question after `path`: files and passages with the next numbers, and the note in front of the
    first of them on this branch. What stands on the branch already is left out, whoever brought it."""
    there = [block for node in path for block in node.message.blocks if block.kind in (FILE, PASSAGE)]
    taken = [number for block in there if (number := number_of(block)) is not None]
    number = max(taken, default=0)
    found: list[ContextBlock] = []
    for block in blocks:
        if block.kind not in (FILE, PASSAGE) or number_of(block) is not None:
            found.append(block)
            continue
        if any(holds(known, block) for known in there):
            continue
        if not taken and not any(known.kind == NOTE for known in found):
            found.append(ContextBlock(NOTE, "kvchat", CITE))
        number += 1
        there.append(block)
        found.append(ContextBlock(block.kind, f"[{number}] {block.source}", block.text, block.ref))
    return found


def holds(known: ContextBlock, block: ContextBlock) -> bool:
    """Whether all that `block` says stands in `known`: the same document's same words."""
    same = known.ref.rpartition("#")[0] == block.ref.rpartition("#")[0]
    return same and block.text.strip() in known.text


def cited(text: str) -> list[int]:
    """The numbers that an answer cites, in the order of their first mention: `[1]`, `[2, 3]`, `[4-6]`. Not the index
    of `a[1]`, nor a link's text."""
    found: dict[int, None] = {}
    for match in _CITED.finditer(text):
        for part in re.split(r"\s*[,;]\s*", match[1]):
            first, _, last = (end.strip() for end in part.replace("–", "-").partition("-"))
            numbers = range(int(first), int(last or first) + 1)
            found |= dict.fromkeys(numbers if len(numbers) <= 50 else ())
    return list(found)


def resolved(text: str, known: Mapping[int, ContextBlock]) -> dict[int, ContextBlock]:
    """The sources that an answer cites, of those that its branch has."""
    return {number: known[number] for number in cited(text) if number in known}
