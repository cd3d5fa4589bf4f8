"""Chips: a long paste or an attached file stands in the composer as a short label, its text beside it.

The rule: a chip is whole or gone. Its label in the text is what sends its block; an edit takes all of it or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from kvchat.prompt.context import IMAGE, ContextBlock
from kvchat.prompt.drafts import LABEL as _LABEL
from kvchat.prompt.drafts import PASTE, Draft, chips_of, decoded, label_of, labels_of, measure, plain_paste

__all__ = [
    "PASTE",
    "Draft",
    "block_of",
    "blocks_in",
    "chips_of",
    "decoded",
    "expanded",
    "is_long",
    "label_of",
    "labels_of",
    "new_label",
    "next_number",
    "plain_paste",
    "spans",
]

LONG_PASTE = 4096
"""Bytes from which a paste becomes a chip."""
LONG_LINE = 2048
"""Bytes of one line from which a paste becomes a chip: a text area is slow on long lines."""

_PASTED = re.compile(r"\[pasted (\d+): ")


def is_long(text: str) -> bool:
    """Whether a paste is shown as a chip."""
    if len(text.encode(errors="replace")) > LONG_PASTE:
        return True
    return any(len(line.encode(errors="replace")) > LONG_LINE for line in text.splitlines())


def block_of(text: str, number: int) -> ContextBlock:
    """The block of the paste with this number."""
    return ContextBlock(PASTE, f"pasted {number} ({measure(text)})", text)


def new_label(block: ContextBlock, chips: Mapping[str, ContextBlock]) -> str:
    """A label for a file's block that no other block has."""
    return next(label for label in labels_of(block) if chips.get(label, block) == block)


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
    """`text` with every chip that stands for a text replaced by that."""
    texts = {label: block.text for label, block in chips.items() if block.kind != IMAGE}
    return _LABEL.sub(lambda found: texts.get(found[0], found[0]), text)


def blocks_in(text: str, chips: Mapping[str, ContextBlock]) -> tuple[ContextBlock, ...]:
    """The blocks whose labels are in `text`, in the order of their first label."""
    labels = dict.fromkeys(found[0] for found in _LABEL.finditer(text))
    return tuple(chips[label] for label in labels if label in chips)
