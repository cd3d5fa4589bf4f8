"""Chips: a long paste stands in the composer as a short label, its text beside it.

The rule: a chip is whole or gone. Its label in the text is what sends its block; an edit takes all of it or nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kvchat.prompt.context import ContextBlock

PASTE = "paste"
LONG_PASTE = 4096
"""Bytes from which a paste becomes a chip."""
LONG_LINE = 2048
"""Bytes of one line from which a paste becomes a chip: a text area is slow on long lines."""

_LABEL = re.compile(r"\[pasted (\d+): [\d,]+ (?:lines|characters)\]")
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
    """The label of a paste's block: [pasted 1: 2,040 lines]."""
    return "[" + block.source.replace(" (", ": ", 1).removesuffix(")") + "]"


def next_number(texts: Iterable[str]) -> int:
    """The first number no label in `texts` uses."""
    return 1 + max((int(found[1]) for text in texts for found in _LABEL.finditer(text)), default=0)


def spans(line: str, chips: Mapping[str, ContextBlock]) -> Iterator[tuple[int, int]]:
    """Where the labels of `chips` stand in `line`, as (start, end)."""
    if chips and "[" in line:
        for found in _LABEL.finditer(line):
            if found[0] in chips:
                yield found.span()


def expanded(text: str, chips: Mapping[str, ContextBlock]) -> str:
    """`text` with every chip replaced by what was pasted."""
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
        """The draft as one string for the store: the text alone, or the text and the pastes it refers to."""
        kept = [[block.source, block.text] for block in blocks_in(self.text, self.chips)]
        return self.text + _SEPARATOR + json.dumps(kept, ensure_ascii=False) if kept else self.text


def decoded(stored: str) -> Draft:
    """The draft that was `encoded`. Any other string is a text; damaged pastes are left out, the text stays."""
    text, separator, rest = stored.partition(_SEPARATOR)
    chips: dict[str, ContextBlock] = {}
    if separator:
        try:
            blocks = [ContextBlock(PASTE, str(source), str(body)) for source, body in json.loads(rest)]
            chips = {label_of(block): block for block in blocks}
        except (ValueError, TypeError):
            pass
    return Draft(text, chips)
