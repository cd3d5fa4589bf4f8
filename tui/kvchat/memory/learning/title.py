"""Titles: how a model is asked for one, and what is believed of its answer.

The rule: a title is one short plain line. Whatever else a model answers is none, and the person's first words stay.
"""

from __future__ import annotations

import re

from kvchat.memory.learning.answers import values, without_thoughts
from kvchat.memory.learning.vetting import objection
from kvchat.prompt.conversation import NEW_TITLE, TITLE_LENGTH, shortened

TITLE_FIELD = '"title" names our whole conversation in three to six words.'
"""What an extraction says of the field, where it asks for a title too."""
INSTRUCTION = "Name our conversation in three to six words, in my language. Answer with that title alone."
ANSWER_TOKENS = 16
LINES = 8
"""Lines of an answer that are looked at."""
RAMBLING = TITLE_LENGTH * 3 // 2
"""Characters from which on a line is no title that is too long, but something else."""

_INTRODUCTION = re.compile(
    r"\A.{0,60}?\b(?:title|titel|titre|t[ií]tulo)\b[^:：]{0,40}[:：]|\A\W*(?:标题是?|タイトル)\s*[:：]", re.IGNORECASE)
_MARKS = re.compile(r"[*`\"“”„«»‹›「」『』]+|\A\s*(?:[#>•-]+\s+|\d+[.)]\s+)")
_NONE = frozenset({"title", "untitled", "conversation", "chat", "none", "sure", "ok", "okay", "yes", "no",
                   NEW_TITLE.casefold()})


def title_field(answer: str) -> str:
    """The title in an extraction's answer; empty: there is none."""
    found = (value["title"] for value in values(answer) if isinstance(value, dict) and "title" in value)
    title = next(found, "")
    return cleaned(title) if isinstance(title, str) else ""


def cleaned(answer: str, *, cut: bool = False) -> str:
    """The title in an answer that is to be nothing else, without quotes, Markdown and control characters; empty: there
    is none. `cut`: the answer was cut off at its end."""
    lines = [line for line in without_thoughts(answer).strip().splitlines()[:LINES] if line.strip()]
    for number, line in enumerate(lines, 1):
        title = _plain(line)
        if cut and number == len(lines):
            title = title.rpartition(" ")[0]  # its last word may be half of one
        if any(char.isalnum() for char in title) and title.casefold() not in _NONE and not title.endswith((":", "：")):
            return "" if len(title) > RAMBLING or objection(title) or _echoes(title) else shortened(title)
    return ""


def _plain(line: str) -> str:
    line = _INTRODUCTION.sub("", "".join(char if char.isprintable() else " " for char in line))
    return " ".join(_MARKS.sub("", _MARKS.sub("", line)).split()).strip("_'‘’ ").rstrip(".,;!。、！")


def _echoes(title: str) -> bool:
    """Whether it is a piece of what was asked."""
    return any(title.casefold() in _plain(asked).casefold() for asked in (INSTRUCTION, TITLE_FIELD))
