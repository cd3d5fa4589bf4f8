"""Titles: ask a model for one, and check its answer.

A title is one short plain line. Any other answer is refused, and the user's first words stay the title.
"""

from __future__ import annotations

import re

from kvchat.memory.learning.answers import LONGEST_ANSWER, values
from kvchat.memory.learning.vetting import objection
from kvchat.prompt.conversation import NEW_TITLE, TITLE_LENGTH

TITLE_FIELD = '"title" names our whole conversation in three to six words.'
"""What an extraction says of the field, where it asks for a title too."""
INSTRUCTION = "Write a title of three to six words for our conversation, in my language. Answer with the title alone."
ANSWER_TOKENS = 16
LINES = 8
"""Lines of an answer that are looked at."""
WORDS = 8
"""A line with more words is a sentence, and no title."""

_INTRODUCTION = re.compile(
    r"\A.{0,60}?\b(?:title|titel|titre|t[ií]tulo)\b[^:：]{0,40}[:：]|\A\W*(?:标题是?|タイトル)\s*[:：]", re.IGNORECASE
)
_MARKS = re.compile(r"[*`\"“”„«»‹›「」『』]+|\A\s*(?:[#>•-]+\s+|\d+[.)]\s+)")
_SPOKEN = re.compile(
    r"\A(?:i|i['’]\w+|sorry|sure|certainly|of course|here|thanks|thank you|the user)\b|[\[\]{}<>|]", re.IGNORECASE
)
"""How a model speaks that does something else, and what only machines write."""
_NONE = frozenset(
    {"title", "untitled", "conversation", "chat", "none", "ok", "okay", "yes", "no", NEW_TITLE.casefold()}
)


def title_field(answer: str) -> str:
    """The title in an extraction's answer; empty: there is none."""
    found = (value["title"] for value in values(answer) if isinstance(value, dict) and "title" in value)
    title = next(found, "")
    return cleaned(title) if isinstance(title, str) else ""


def cleaned(answer: str, *, cut: bool = False) -> str:
    """The title in an answer that is to be nothing else, without quotes, Markdown and control characters; empty: there
    is none. `cut`: the answer was cut off at its end."""
    lines = [line for line in answer[:LONGEST_ANSWER].strip().splitlines()[:LINES] if line.strip()]
    for line in lines[:-1] if cut else lines:
        title = _plain(line)
        if any(char.isalnum() for char in title) and title.casefold() not in _NONE and not title.endswith((":", "：")):
            return "" if _is_something_else(title) else title
    return ""


def _is_something_else(title: str) -> bool:
    too_long = len(title) >= TITLE_LENGTH or len(title.split()) > WORDS  # a schema's limit cuts it there
    return bool(too_long or _SPOKEN.search(title) or objection(title) or _echoes(title))


def _plain(line: str) -> str:
    line = _INTRODUCTION.sub("", "".join(char if char.isprintable() else " " for char in line))
    return " ".join(_MARKS.sub("", _MARKS.sub("", line)).split()).strip("_'‘’ ").rstrip(".,;!。、！ ")


def _echoes(title: str) -> bool:
    """Whether it is a piece of what was asked."""
    return any(title.casefold() in _plain(asked).casefold() for asked in (INSTRUCTION, TITLE_FIELD))
