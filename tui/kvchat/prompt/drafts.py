"""Drafts: a text whose long pastes and attached files stand in it as short labels, and the string that keeps both.

The rule: a label in the text is what sends its block; the text and its blocks are stored and found again together. An
`@` mentions something only where the person typed it, so which of them were typed is stored too; where that is not
known, none was.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvchat.prompt.citations import guess_in, name_of
from kvchat.prompt.context import FILE, IMAGE, STDIN, ContextBlock
from kvchat.sanitize import one_line

PASTE = "paste"
LABEL = re.compile(r"\[(?:[^\[\]\n]{1,80}: [\d,]+ (?:lines?|characters)|image [^\[\]\n]{1,80} \d{1,5}x\d{1,5})\]")
FIELD = re.compile(r"\{\{ *([^{}\n]{1,60}?) *\}\}")
"""`{{name}}`: what is to be filled in before a text is sent."""

_NAME = 48
"""Characters of a file's name in a label."""
_SEPARATOR = "\x1e"
"""Between a draft's text and its pastes; a text area never holds this control character."""

_DROPPED = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def plain_paste(text: str) -> str:
    """Pasted text as text: every kind of line end is a newline, other control characters are left out."""
    text = re.sub("\r\n?|\x85|\u2028|\u2029|\x0b|\x0c", "\n", text)
    return text.translate(_DROPPED)


def filled(text: str, words: str) -> str:
    """A text with `words` in its first field, wherever that stands; without a field they stand below it."""
    if not words:
        return text
    if found := FIELD.search(text):
        return FIELD.sub(lambda one: words if one[1] == found[1] else one[0], text)
    return f"{text.rstrip()}\n\n{words}" if text.strip() else words


def measure(text: str) -> str:
    """How long a pasted text is, as its label tells."""
    lines = len(text.splitlines())
    return f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"


def label_of(block: ContextBlock) -> str:
    """The label of a paste's block: [pasted 1: 2,040 lines]; of a file's the first of its labels."""
    if block.kind == PASTE:
        return "[" + block.source.replace(" (", ": ", 1).removesuffix(")") + "]"
    return next(labels_of(block))


def labels_of(block: ContextBlock) -> Iterator[str]:
    """The labels that a file's block may have, the shortest first: [setup.md: 312 lines], [guide/setup.md: 312 lines],
    [setup.md 2: 312 lines]; of what changed in it: [change of setup.md: 12 lines]; of an image:
    [image lamp.png 640x480]; of one whose encoding is a guess: [plan.txt, read as KOI8-R: 9 lines]."""
    file, _, state = block.ref.rpartition("#")
    path, sort = (file or name_of(block)).split("/"), "change of " if ".." in state else ""
    lines, guess = len(block.text.splitlines()), guess_in(block.source)
    what = (f", read as {guess}" if guess else "") + f": {lines:,} line{'s' * (lines != 1)}"
    names = ["/".join(path[-parts:]) for parts in (1, 2, 3) if parts <= len(path)]
    names += [f"{path[-1]} {number}" for number in range(2, 1000)]
    for name in dict.fromkeys(names):
        plain = one_line(re.sub(r"[\[\]]", "", plain_paste(name))) or "file"
        plain = plain if len(plain) <= _NAME else "…" + plain[1 - _NAME :]
        yield f"[image {plain} {block.text}]" if block.kind == IMAGE else f"[{sort}{plain}{what}]"


def chips_of(text: str, blocks: Sequence[ContextBlock]) -> dict[str, ContextBlock]:
    """The blocks of a message by their labels in its text."""
    chips: dict[str, ContextBlock] = {}
    for block in blocks:
        if block.kind == PASTE:
            chips[label_of(block)] = block
        elif block.kind in (FILE, IMAGE):
            fitting = (label for label in itertools.islice(labels_of(block), 9) if label in text and label not in chips)
            if label := next(fitting, ""):
                chips[label] = block
    return chips


def draft_of(text: str, blocks: Sequence[ContextBlock], typed: frozenset[int] = frozenset()) -> str:
    """A message as a draft: its text, and the blocks that have labels in it without the numbers that they had. What was
    piped in, and has none, gets one in front."""
    for block in [block for block in blocks if block.kind == STDIN]:
        pasted = ContextBlock(PASTE, f"{block.source} ({measure(block.text)})", block.text)
        text, blocks = f"{label_of(pasted)}\n\n{text}", [*blocks, pasted]
    kept = chips_of(text, blocks)
    return Draft(text, {label: replace(block, source=name_of(block)) for label, block in kept.items()}, typed).encoded()


@dataclass(frozen=True, slots=True)
class Draft:
    """What is in a composer: the text, the chips by label, and which mentions count."""

    text: str = ""
    chips: Mapping[str, ContextBlock] = field(default_factory=dict)
    typed: frozenset[int] = frozenset()
    """Which of the `@` in the text, counted from 0, the person typed or touched. The others came with a paste."""

    def encoded(self) -> str:
        """The draft as one string for the store: the text alone, or the text and what belongs to it."""
        labels = dict.fromkeys(found[0] for found in LABEL.finditer(self.text))
        kept = [_stored(label, self.chips[label]) for label in labels if label in self.chips]
        typed = sorted(self.typed & {*range(self.text.count("@"))})
        more = {"chips": kept, "typed": typed} if typed else kept
        return self.text + _SEPARATOR + json.dumps(more, ensure_ascii=False) if more else self.text

    def before(self, later: Draft) -> Draft:
        """This draft with another one below it."""
        if not later.text:
            return Draft(self.text, {**later.chips, **self.chips}, self.typed)
        moved = {sign + self.text.count("@") for sign in later.typed}
        return Draft(f"{self.text}\n\n{later.text}", {**later.chips, **self.chips}, self.typed | moved)


def _stored(label: str, block: ContextBlock) -> list[str]:
    if block.kind == PASTE:
        return [block.source, block.text]
    return [block.source, block.text, block.ref, label, *([IMAGE] if block.kind == IMAGE else [])]


def decoded(stored: str) -> Draft:
    """The draft that was `encoded`. Any other string is a text; damaged blocks are left out, the text stays."""
    text, separator, rest = stored.partition(_SEPARATOR)
    chips: dict[str, ContextBlock] = {}
    typed: frozenset[int] = frozenset()
    if separator:
        try:
            more = json.loads(rest)
            listed = more["chips"] if isinstance(more, dict) else more
            for source, body, *of_file in listed:
                kind = PASTE if not of_file else IMAGE if IMAGE in of_file[2:] else FILE
                block = ContextBlock(kind, str(source), str(body), *map(str, of_file[:1]))
                chips[str(of_file[1]) if of_file else label_of(block)] = block
            if isinstance(more, dict):
                typed = frozenset(sign for sign in more["typed"] if isinstance(sign, int))
        except (ValueError, TypeError, IndexError, KeyError):
            chips = {}
    return Draft(text, chips, typed)
