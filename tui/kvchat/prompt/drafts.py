"""Drafts: a text with its spans, what in it was pasted, attached or mentioned, and the string that keeps both.

A span with a block sends that; the text and its spans are stored and found again together. What was pasted
mentions nothing, and neither does a text of which it is not known.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kvchat.prompt.citations import guess_in, name_of
from kvchat.prompt.context import FILE, IMAGE, STDIN, ContextBlock
from kvchat.sanitize import one_line

PASTE, MENTION, GIVEN = "paste", "mention", "given"
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
    """A text with `words` in its first field, wherever that is; without a field they go below it."""
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


class Span(Struct, frozen=True):
    """A part of a text: pasted, put there, or a chip. Those of a text are in order and do not overlap."""

    start: int
    end: int
    kind: str
    """`PASTE`, `FILE`, `IMAGE`, `MENTION`, or `GIVEN`: what kvchat put there, of which nothing is known."""
    block: ContextBlock | None = None
    """The content that its label replaces; None: a short paste, which is in the text itself, a mention, or what was
    given."""

    @property
    def is_chip(self) -> bool:
        """Whether it is whole or gone."""
        return self.block is not None or self.kind == MENTION

    def moved(self, by: int) -> Span:
        return replace(self, start=self.start + by, end=self.end + by)


Spans = tuple[Span, ...]


def edited(spans: Spans, start: int, end: int, length: int, put: Iterable[Span] = ()) -> Spans:
    """The spans of a text in which what stood from `start` to `end` is `length` characters now, with the spans `put` in
    it, counted from its beginning. A chip of which a part changed is one no more; of a paste stays what is left."""
    by = length - (end - start)
    found = [span.moved(start) for span in put]
    for span in spans:
        if span.end <= start:
            found.append(span)
        elif span.start >= end:
            found.append(span.moved(by))
        elif not span.is_chip:
            left, right = replace(span, end=start), replace(span, start=start + length, end=span.end + by)
            found += [part for part in (left, right) if part.start < part.end]
    return tuple(sorted(found, key=lambda span: span.start))


def cut_out(spans: Spans, start: int, end: int) -> Spans:
    """The spans of the part of a text from `start` to `end`: chips that are whole in it, what of pastes is in it."""
    inside = (span for span in spans if span.start < end and span.end > start)
    parts = (replace(span, start=max(span.start, start), end=min(span.end, end)) for span in inside)
    return tuple(part.moved(-start) for part in parts if not part.is_chip or part in spans)


def given(text: str, parts: Iterable[Span] = (), kind: str = GIVEN) -> Spans:
    """The spans of a text that was not typed here: but for these parts all of it is of one kind."""
    spans: Spans = (Span(0, len(text), kind),) if text else ()
    for part in parts:
        spans = edited(spans, part.start, part.end, part.end - part.start, (part.moved(-part.start),))
    return spans


def pasted_of(spans: Spans, kinds: Collection[str] = (PASTE, GIVEN)) -> tuple[tuple[int, int], ...]:
    """Where short pastes stand, and what was given."""
    return tuple((span.start, span.end) for span in spans if span.kind in kinds and not span.is_chip)


def blocks_in(spans: Spans) -> tuple[ContextBlock, ...]:
    """The blocks of a text, in the order of their first label."""
    return tuple(dict.fromkeys(span.block for span in spans if span.block is not None))


def expanded(text: str, spans: Spans) -> str:
    """`text` with every chip that replaces a text expanded to it."""
    for span in reversed(spans):
        if span.block is not None and span.kind != IMAGE:
            text = text[: span.start] + span.block.text + text[span.end :]
    return text


def labelled(text: str, labels: Callable[[str], ContextBlock | None]) -> Iterator[Span]:
    """The chips of a text: its labels that `labels` knows a block for."""
    for found in LABEL.finditer(text) if "[" in text else ():
        if (block := labels(found[0])) is not None:
            yield Span(found.start(), found.end(), block.kind, block)


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


def draft_of(text: str, blocks: Sequence[ContextBlock], spans: Iterable[Span] = ()) -> Draft:
    """A message as a draft: its text with its chips, and with these pastes and mentions; the rest is given. Blocks lose
    the numbers that they had. What was piped in, and has no label, gets one in front."""
    for block in [block for block in blocks if block.kind == STDIN]:
        pasted = ContextBlock(PASTE, f"{block.source} ({measure(block.text)})", block.text)
        front = f"{label_of(pasted)}\n\n"
        text, blocks, spans = front + text, [*blocks, pasted], [span.moved(len(front)) for span in spans]
    chips = {label: replace(block, source=name_of(block)) for label, block in chips_of(text, blocks).items()}
    return Draft(text, given(text, (*spans, *labelled(text, chips.get))))


class Draft(Struct, frozen=True):
    """What is in a composer: the text and its spans."""

    text: str = ""
    spans: Spans = ()

    @property
    def blocks(self) -> tuple[ContextBlock, ...]:
        return blocks_in(self.spans)

    def encoded(self) -> str:
        """The draft as one string for the store."""
        return Unsent(self).encoded()

    def _rows(self) -> dict[str, object]:
        return {
            "blocks": [[block.kind, block.source, block.text, block.ref] for block in self.blocks],
            "spans": span_rows(self.spans, self.blocks),
        }

    def rewritten(self, text: str) -> Draft:
        """What this became in an editor: what stood there is what it was, and what is new was typed."""
        from difflib import SequenceMatcher

        words, now = (re.findall(r"\w+|\W", one) for one in (self.text, text))
        spans, at = list[Span](), [0, 0]
        pasted = "\n".join(self.text[start:end] for start, end in pasted_of(self.spans))
        for what, start, end, new_start, new_end in SequenceMatcher(None, words, now, False).get_opcodes():
            lengths = [sum(map(len, words[start:end])), sum(map(len, now[new_start:new_end]))]
            if what == "equal":
                spans += (span.moved(at[1]) for span in cut_out(self.spans, at[0], at[0] + lengths[0]))
            else:  # a pasted mention that was moved is text all the same
                moved = re.compile(r"@\S*").finditer(text[: at[1] + lengths[1]], at[1])
                spans += (Span(found.start(), found.end(), GIVEN) for found in moved if found[0] in pasted)
            at = [at[0] + lengths[0], at[1] + lengths[1]]
        return Draft(text, tuple(spans))

    def before(self, later: Draft) -> Draft:
        """This draft with another one below it."""
        if not self.text or not later.text:
            return self if self.text else later
        return self.then(Draft("\n\n")).then(later)

    def then(self, later: Draft) -> Draft:
        """This draft and another one right behind it."""
        return Draft(self.text + later.text, (*self.spans, *(span.moved(len(self.text)) for span in later.spans)))


class Edit(Struct, frozen=True):
    """A question that is being changed, and what it has become so far."""

    question: str
    """The id of its message."""
    draft: Draft


class Unsent(Struct, frozen=True):
    """All that is written in a conversation and not sent."""

    draft: Draft = Draft()
    """The next message."""
    edits: tuple[Edit, ...] = ()
    """Each of another question; the last one is the one that is being written."""
    place: float | None = None
    """In the queue, of the message that was taken out of it to be edited: that is the draft now."""

    def edited(self, question: str, draft: Draft | None) -> Unsent:
        """With this as the edit of a question, the last one; None: with none of it."""
        others = tuple(one for one in self.edits if one.question != question)
        return replace(self, edits=others if draft is None else (*others, Edit(question, draft)))

    def encoded(self) -> str:
        """All of it as one string for the store: the text of the message alone, or that and what belongs to it."""
        draft = self.draft
        if not (draft.spans or "@" in draft.text or self.edits or self.place is not None):
            return draft.text
        more = draft._rows()
        if self.edits:
            more["edits"] = [{"question": e.question, "text": e.draft.text, **e.draft._rows()} for e in self.edits]
        if self.place is not None:
            more["place"] = self.place
        return draft.text + _SEPARATOR + json.dumps(more, ensure_ascii=False)


def span_rows(spans: Spans, blocks: Sequence[ContextBlock]) -> list[list[object]]:
    """Spans as JSON has them, each with the place of its block among `blocks`."""
    return [
        [span.start, span.end, span.kind, *([] if span.block is None else [blocks.index(span.block)])] for span in spans
    ]


def spans_of(rows: Sequence[Sequence[Any]], blocks: Sequence[ContextBlock], text: str) -> Spans:
    """The spans of `text` that were `span_rows`. Raises ValueError, TypeError and IndexError for anything else."""
    spans = tuple(
        Span(int(start), min(int(end), len(text)), str(kind), *(blocks[at] for at in block))
        for start, end, kind, *block in rows
    )
    ends = [0, *(place for span in spans for place in (span.start, span.end)), len(text)]
    if ends != sorted(ends):
        raise ValueError("these are not the spans of this text")
    return spans


def decoded(stored: str) -> Draft:
    """The message in what was `encoded`."""
    return unsent_in(stored).draft


def unsent_in(stored: str) -> Unsent:
    """What was `encoded`. Any other string is a message; it, and one with damaged spans, mentions nothing."""
    written, _, rest = stored.partition(_SEPARATOR)
    text = plain_paste(written)
    try:
        more = json.loads(rest)
        edits = (Edit(str(e["question"]), _draft_in(plain_paste(str(e["text"])), e)) for e in more.get("edits", ()))
        place = more.get("place")
        return Unsent(_draft_in(text, more), tuple(edits), None if place is None else float(place))
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, RecursionError):
        return Unsent(Draft(text, given(text) if "@" in text else ()))


def _draft_in(text: str, rows: Mapping[str, Any]) -> Draft:
    blocks = [ContextBlock(*map(str, block)) for block in rows["blocks"]]
    return Draft(text, spans_of(rows["spans"], blocks, text))
