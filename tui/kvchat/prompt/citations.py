"""Citations: the passages of a branch by their numbers, and what an answer's `[2]` means.

Numbers go on over a branch, so that a number means one passage wherever it occurs, and none that an answer
names gets another meaning; and a passage whose text the branch has already is not sent again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kvchat.patterns import compiled_later
from kvchat.prompt.context import FILE, NOTE, PASSAGE, SUMMARY, ContextBlock
from kvchat.prompt.message import Node, Role

CITE = "The texts below are numbered; name the numbers you rely on, as in [1]."
"""Said once on a branch, in front of its first passages."""

_NUMBER = compiled_later(r"\A\[([0-9]{1,6})\] ")
_GUESS = compiled_later(r" \(read as ([\w -]{1,20})\)\Z")
_ONE = r"\[\s?(\d{1,6}(?:\s*[,;–-]\s*\d{1,6}){0,50})\s?\]"
_BRACKET = compiled_later(_ONE)
_CITED = compiled_later(rf"(?<![\]\w])((?:{_ONE.replace('(', '(?:', 1)})++)([(\[])?")
"""Brackets in a row, and what would make a link's text of the last."""
_DEFINED = compiled_later(r"^ {0,3}\[\d{1,6}\]:", re.MULTILINE)
_WIDEST = 50
"""Numbers in a range: a wider one is none."""
_LARGEST_NUMBER = 999
"""The highest number in an answer or a summary that is taken for a citation, and not for a year."""

_SENTENCE_ENDS = (*".!?:;…。！？)\"'”’»",)

_FENCE = compiled_later(r" {0,3}(?:[>*+-] *|\d{1,9}[.)] +)*+(`{3,}+|~{3,}+)([^\n]*)")
_TICKS = compiled_later("`+")


def number_of(block: ContextBlock) -> int | None:
    """The number under which an answer can cite a block; None: it has none."""
    found = _NUMBER.match(block.source) if block.kind in (FILE, PASSAGE) else None
    return int(found[1]) if found else None


def name_of(block: ContextBlock) -> str:
    """What a block is from, without its number."""
    return _NUMBER.sub("", block.source, count=1) if block.kind in (FILE, PASSAGE) else block.source


def with_guess(source: str, encoding: str) -> str:
    """The source of a block whose text was read in an encoding that is a guess; empty: it is none."""
    return f"{source} (read as {encoding})" if encoding else source


def guess_in(source: str) -> str:
    """The encoding in a source that `with_guess` gave; empty where there is none."""
    found = _GUESS.search(source)
    return found[1] if found else ""


def sources(path: Iterable[Node]) -> dict[int, ContextBlock]:
    """What each number means on a branch."""
    numbered = ((number_of(block), block) for node in path for block in node.message.blocks)
    return {number: block for number, block in numbered if number is not None}


def numbered(blocks: Sequence[ContextBlock], path: Sequence[Node]) -> list[ContextBlock]:
    """The blocks of a question after `path`: files and passages with the next numbers, whatever numbers they had, and
    the note in front of the first of them on this branch. What the branch has already is left out, whoever
    brought it."""
    known = [block for node in path for block in node.message.blocks]
    there = [block for block in known if block.kind in (FILE, PASSAGE)]
    is_said = any(_is_note(block) for block in known)
    number = max(_taken(path), default=0)
    found: list[ContextBlock] = []
    for block in blocks:
        if _is_note(block):
            continue
        if block.kind not in (FILE, PASSAGE):
            found.append(block)
            continue
        if is_there(block, there):
            continue
        if not is_said:
            found.append(ContextBlock(NOTE, "kvchat", CITE))
            is_said = True
        number += 1
        there.append(block)
        found.append(ContextBlock(block.kind, f"[{number}] {name_of(block)}", block.text, block.ref))
    return found


def _is_note(block: ContextBlock) -> bool:
    return block.kind == NOTE and block.text == CITE


def _taken(path: Iterable[Node]) -> Iterator[int]:
    """The numbers that mean something on a branch, also those that only an answer or a summary of earlier turns still
    names: what they stood for may be gone from it."""
    for node in path:
        texts = [block.text for block in node.message.blocks if block.kind == SUMMARY]
        if node.role is Role.ASSISTANT:
            texts.append(node.text)
        yield from (number for text in texts for number in cited(text) if number <= _LARGEST_NUMBER)
        yield from (number for block in node.message.blocks if (number := number_of(block)) is not None)


def is_there(block: ContextBlock, there: Sequence[ContextBlock]) -> bool:
    """Whether the latest that `there`, oldest first, says of the place of `block` in its document is what `block` says.
    An earlier state counts no more, even if it was the same or had more in it."""
    later: set[str] = set()
    for known in reversed(there):
        if known.kind not in (FILE, PASSAGE) or not _is_same(_document(known), _document(block)):
            continue
        if known.kind == block.kind and (known.ref == block.ref or known.kind == FILE):
            return known.ref == block.ref and known.text.strip() == block.text.strip()
        if known.ref not in later and _has(known, block.text.strip()):
            return True
        if known.kind == FILE:
            return False
        later.add(known.ref)
    return False


def holds(known: ContextBlock, block: ContextBlock) -> bool:
    """Whether `known` says of a place in a document what `block` says. Of more blocks than one see `is_there`."""
    return is_there(block, (known,))


def _has(known: ContextBlock, text: str) -> bool:
    """Whether a block has a text as whole lines; in a file, whose long lines are cut into passages, also as whole
    sentences."""
    if f"\n{text}\n" in f"\n{known.text.strip()}\n":
        return True
    at = known.text.find(text) if known.kind == FILE else -1
    if at < 0 or not (at == 0 or known.text[at - 1].isspace()):
        return False
    after = known.text[at + len(text) : at + len(text) + 1]
    return after in ("", "\n") or (after.isspace() and text[-1:] in _SENTENCE_ENDS)


def _document(block: ContextBlock) -> str:
    return block.ref.rpartition("#")[0]


def _is_same(one: str, other: str) -> bool:
    """Whether two names mean the same document: `docs/handbook/guide/setup.md` is the file `.../guide/setup.md`."""
    if one == other:
        return True
    within, whole = sorted((one, other), key=lambda name: not name.startswith("docs/"))
    parts = within.split("/", 2)
    return len(parts) == 3 and parts[0] == "docs" and not whole.startswith("docs/") and whole.endswith(f"/{parts[2]}")


def cited(text: str) -> list[int]:
    """The numbers that an answer cites, in the order of their first mention: `[1]`, `[2, 3]`, `[4-6]`, `[1][2]`. Not
    the index of `a[1]`, nor a link's text, nor what is in code."""
    if "[" not in text:
        return []
    return list(dict.fromkeys(number for _, _, numbers in citations(_without_code(text)) for number in numbers))


def citations(text: str) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """The citations in a piece of prose: start and end of each bracket, and the numbers in it."""
    defined = {match.end() - 1 for match in _DEFINED.finditer(text)}
    for row in _CITED.finditer(text):
        brackets = list(_BRACKET.finditer(text, row.start(1), row.end(1)))
        if row[2] or row.end(1) in defined:
            brackets.pop()  # the text of a link, or where one is defined
        for bracket in brackets:
            if numbers := tuple(_numbers(bracket[1])):
                yield bracket.start(), bracket.end(), numbers


def _numbers(listed: str) -> Iterator[int]:
    for part in re.split(r"\s*[,;]\s*", listed):
        ends = [int(end) for end in re.split(r"\s*[–-]\s*", part)]
        if len(ends) < 3 and ends[-1] - ends[0] < _WIDEST:
            yield from range(ends[0], ends[-1] + 1)


def _without_code(text: str) -> str:
    """The prose of a text in Markdown: its fences and inline code are blank."""
    if "`" not in text and "~~~" not in text:
        return text
    prose: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
            line = ""
        elif mark and not (mark[1][0] == "`" and "`" in mark[2]):
            fence, line = mark[1], ""
        prose.append(line)
    return "\n\n".join(_without_ticks(paragraph) for paragraph in re.split(r"\n[ \t]*\n", "\n".join(prose)))


def _without_ticks(text: str) -> str:
    """A paragraph without its inline code: what is between two equally long runs of backticks."""
    runs = [match.span() for match in _TICKS.finditer(text)]
    following: dict[int, int] = {}
    partner: list[int | None] = [None] * len(runs)
    for at in range(len(runs) - 1, -1, -1):
        length = runs[at][1] - runs[at][0]
        partner[at] = following.get(length)
        following[length] = at
    parts, done, at = [], 0, 0
    while at < len(runs):
        other = partner[at]
        if other is not None:
            parts.append(text[done : runs[at][0]])
            done, at = runs[other][1], other
        at += 1
    return "`".join([*parts, text[done:]])


def resolved(text: str, known: Mapping[int, ContextBlock]) -> dict[int, ContextBlock]:
    """The sources that an answer cites, of those that its branch has."""
    return {number: known[number] for number in cited(text) if number in known}
