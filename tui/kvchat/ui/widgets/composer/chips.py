"""Chips: a long paste or an attached file is a short label in the composer; its text is kept apart.

A chip is whole or gone. Its span in the text is what sends its block; an edit takes all of it or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kvchat.prompt.context import ContextBlock
from kvchat.prompt.drafts import PASTE, labels_of, measure

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
