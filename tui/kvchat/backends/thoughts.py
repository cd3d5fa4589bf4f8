"""An answer taken apart into reasoning and content, by the tags that its template puts around a thought.

The rule: every character that came is told once, but for the tags and the white space beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ThoughtTags:
    """What a template puts around an answer's reasoning; empty where it has none that kvchat knows."""

    begin: str = ""
    end: str = ""
    closing: str = ""
    """From a thought's last character to the answer's first."""

    def leaves_open(self, prompt: str) -> bool:
        """Whether what is sampled behind this prompt is a thought."""
        return bool(self.begin) and prompt.rstrip().endswith(self.begin)


NO_TAGS = ThoughtTags()

_BEGIN = re.compile(r"(<[\w:|-]+>|\[[A-Z_]+\])\s*\Z")
_END = re.compile(r"\s*(</[\w:|-]+>|\[/[A-Z_]+\])\s*")


def tags_in(rendered: str, thought: str, answer: str) -> ThoughtTags:
    """The tags of a template, seen in a prompt that ends with an answer and its thought."""
    before, _, rest = rendered.rpartition(thought)
    begin, end = _BEGIN.search(before), _END.match(rest)
    if begin is None or end is None or begin[1][1:] != end[1][2:] or not rest.startswith(end[0] + answer):
        return NO_TAGS
    return ThoughtTags(begin[1], end[1], end[0])


Begins = Literal["start", "thought", "answer"]
"""Where an answer begins: `start`, where it may open a thought itself."""
Part = tuple[Literal["content", "reasoning_content"], str]


class Thoughts:
    """Takes an answer apart into reasoning and content as it comes. What may become a tag, or is white space beside
    one, is held back until that shows."""

    def __init__(self, tags: ThoughtTags, at: Begins) -> None:
        self._tags = tags
        self._at: Begins = at if tags.begin else "answer"
        self._held = ""
        self._skips = False
        """Whether white space that comes next belongs to a tag."""

    def take(self, text: str) -> Iterator[Part]:
        self._held += text
        if self._at == "start":
            begun = self._held.lstrip()
            if begun.startswith(self._tags.begin):
                self._at, self._held, self._skips = "thought", begun[len(self._tags.begin) :], True
            elif not self._tags.begin.startswith(begun):
                self._at = "answer"
        if self._at == "thought":
            thought, tag, rest = self._skipped().partition(self._tags.end)
            if tag:
                yield from _part("reasoning_content", thought.rstrip())
                self._at, self._held, self._skips = "answer", rest, True
            else:
                sure = (
                    len(thought.rstrip())
                    if not (ahead := _ahead(thought, self._tags.end))
                    else len(thought[:-ahead].rstrip())
                )
                self._held = thought[sure:]
                yield from _part("reasoning_content", thought[:sure])
        if self._at == "answer":
            content, self._held = self._skipped(), ""
            yield from _part("content", content)

    def ended(self) -> Iterator[Part]:
        """What was held back to the end."""
        held, self._held = self._held, ""
        yield from _part("reasoning_content" if self._at == "thought" else "content", held)

    def _skipped(self) -> str:
        found = self._held.lstrip() if self._skips else self._held
        self._skips = self._skips and not found
        return found


def _part(kind: Literal["content", "reasoning_content"], text: str) -> Iterator[Part]:
    if text:
        yield kind, text


def _ahead(text: str, tag: str) -> int:
    """How many characters at the end of a text may be the beginning of a tag."""
    return next((count for count in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:count])), 0)
