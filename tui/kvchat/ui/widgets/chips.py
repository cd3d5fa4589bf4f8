"""Chips: a long paste or an attached file stands in the composer as a short label, its text beside it.

The rule: a chip is whole or gone. Its label in the text is what sends its block; an edit takes all of it or nothing.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kvchat.display import one_line
from kvchat.prompt.context import FILE, ContextBlock

PASTE = "paste"
LONG_PASTE = 4096
"""Bytes from which a paste becomes a chip."""
LONG_LINE = 2048
"""Bytes of one line from which a paste becomes a chip: a text area is slow on long lines."""

_LABEL = re.compile(r"\[[^\[\]\n]{1,80}: [\d,]+ (?:lines?|characters)\]")
_PASTED = re.compile(r"\[pasted (\d+): ")
_NAME = 48
"""Characters of a file's name in a label."""
_SEPARATOR = "\x1e"
"""Between a draft's text and its pastes; a text area never holds this control character."""

_DROPPED = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def plain_paste(text: str) -> str:
    """Pasted text as text: every kind of line end is a newline, other control characters are left out."""
    text = re.sub("\r\n?|\x85|\u2028|\u2029|\x0b|\x0c", "\n", text)
    return text.translate(_DROPPED)


def is_long(text: str) -> bool:
    """Whether a paste is shown as a chip."""
    if len(text.encode(errors="replace")) > LONG_PASTE:
        return True
    return any(len(line.encode(errors="replace")) > LONG_LINE for line in text.splitlines())


def _measure(text: str) -> str:
    lines = len(text.splitlines())
    return f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"


def block_of(text: str, number: int) -> ContextBlock:
    """The block of the paste with this number."""
    return ContextBlock(PASTE, f"pasted {number} ({_measure(text)})", text)


def label_of(block: ContextBlock) -> str:
    """The label of a paste's block: [pasted 1: 2,040 lines]; of a file's the first of its labels."""
    if block.kind == PASTE:
        return "[" + block.source.replace(" (", ": ", 1).removesuffix(")") + "]"
    return next(labels_of(block))


def labels_of(block: ContextBlock) -> Iterator[str]:
    """The labels that a file's block may have, the shortest first: [setup.md: 312 lines], [guide/setup.md: 312 lines],
    [setup.md 2: 312 lines]; of what changed in it: [change of setup.md: 12 lines]."""
    file, _, state = block.ref.rpartition("#")
    path, sort = (file or block.source).split("/"), "change of " if ".." in state else ""
    lines = len(block.text.splitlines())
    what = f"{lines:,} line{'s' * (lines != 1)}"
    names = ["/".join(path[-parts:]) for parts in (1, 2, 3) if parts <= len(path)]
    names += [f"{path[-1]} {number}" for number in range(2, 1000)]
    for name in dict.fromkeys(names):
        plain = one_line(re.sub(r"[\[\]]", "", plain_paste(name))) or "file"
        yield f"[{sort}{plain if len(plain) <= _NAME else '…' + plain[1 - _NAME:]}: {what}]"


def new_label(block: ContextBlock, chips: Mapping[str, ContextBlock]) -> str:
    """A label for a file's block that no other block has."""
    return next(label for label in labels_of(block) if chips.get(label, block) == block)


def chips_of(text: str, blocks: Sequence[ContextBlock]) -> dict[str, ContextBlock]:
    """The blocks of a message by their labels in its text."""
    chips: dict[str, ContextBlock] = {}
    for block in blocks:
        if block.kind == PASTE:
            chips[label_of(block)] = block
        elif block.kind == FILE:
            fitting = (label for label in itertools.islice(labels_of(block), 9) if label in text and label not in chips)
            if (label := next(fitting, "")):
                chips[label] = block
    return chips


def next_number(texts: Iterable[str]) -> int:
    """The first number no label of a paste in `texts` uses."""
    return 1 + max((int(found[1]) for text in texts for found in _PASTED.finditer(text)), default=0)


def spans(line: str, chips: Mapping[str, ContextBlock]) -> Iterator[tuple[int, int]]:
    """Where the labels of `chips` stand in `line`, as (start, end)."""
    if chips and "[" in line:
        for found in _LABEL.finditer(line):
            if found[0] in chips:
                yield found.span()


def expanded(text: str, chips: Mapping[str, ContextBlock]) -> str:
    """`text` with every chip replaced by its text."""
    return _LABEL.sub(lambda found: chips[found[0]].text if found[0] in chips else found[0], text)


def blocks_in(text: str, chips: Mapping[str, ContextBlock]) -> tuple[ContextBlock, ...]:
    """The blocks whose labels are in `text`, in the order of their first label."""
    labels = dict.fromkeys(found[0] for found in _LABEL.finditer(text))
    return tuple(chips[label] for label in labels if label in chips)


@dataclass(frozen=True, slots=True)
class Draft:
    """What is in a composer: the text, and the chips by label."""

    text: str = ""
    chips: Mapping[str, ContextBlock] = field(default_factory=dict)

    def encoded(self) -> str:
        """The draft as one string for the store: the text alone, or the text and the blocks it refers to."""
        labels = dict.fromkeys(found[0] for found in _LABEL.finditer(self.text))
        kept = [_stored(label, self.chips[label]) for label in labels if label in self.chips]
        return self.text + _SEPARATOR + json.dumps(kept, ensure_ascii=False) if kept else self.text


def _stored(label: str, block: ContextBlock) -> list[str]:
    return [block.source, block.text] if block.kind == PASTE else [block.source, block.text, block.ref, label]


def decoded(stored: str) -> Draft:
    """The draft that was `encoded`. Any other string is a text; damaged blocks are left out, the text stays."""
    text, separator, rest = stored.partition(_SEPARATOR)
    chips: dict[str, ContextBlock] = {}
    if separator:
        try:
            for source, body, *more in json.loads(rest):
                block = ContextBlock(FILE if more else PASTE, str(source), str(body), str(more[0]) if more else "")
                chips[str(more[1]) if more else label_of(block)] = block
        except (ValueError, TypeError, IndexError):
            chips = {}
    return Draft(text, chips)
