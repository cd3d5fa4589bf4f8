"""What a chat template puts around messages, found in prompts of invented texts that it renders: the text in front of a
user message, at which llama.cpp's server saves checkpoints for models that cannot rewind, and that between an answer
and the next question.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from msgspec import Struct

from kvchat.cache.tokens import Tokens

_SEGMENT = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|[^<\[]+|.", re.DOTALL)


def marker_in(without: str, asked: str, question: str) -> str:
    """The text in front of a question: `without` is a prompt without any, `asked` the same with it. Both end with
    the header of the answer that is asked for."""
    header = _shared(without[::-1], asked[::-1])
    shared = _shared(without[: len(without) - header], asked)
    return _marker(asked[shared : max(shared, asked.rfind(question))])


def repeated_marker_in(asked: str, first: str, answer: str, question: str) -> str:
    """The text in front of both questions of a prompt, of which the first is answered."""
    before, _, rest = asked.partition(first)
    between = rest.partition(answer)[2].partition(question)[0]
    shared = _shared(_SEGMENT.findall(before)[::-1], _SEGMENT.findall(between)[::-1])
    return _marker("".join(_SEGMENT.findall(between)[-shared:]) if shared else "")


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """How many items both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _marker(before: str) -> str:
    """A marker is what is left without the ends of earlier messages."""
    segments = _SEGMENT.findall(before)
    while segments and (not segments[0].strip() or _ends_a_message(segments[0])):
        del segments[0]
    return "".join(segments).strip()


def _ends_a_message(segment: str) -> bool:
    return segment[0] in "<[" and any(word in segment.lower() for word in ("end", "close", "eot", "</s>"))


class TurnSeparator(Struct, frozen=True):
    """The text between an answer's text and the next question's; empty where that does not show."""

    text: str
    tokens: Tokens

    def start(self, prompt: str, tokens: Tokens) -> int | None:
        """How many tokens are before the separator that `prompt`, whose ids are `tokens`, ends with. None: it does not
        end so, or the ids of the separator merge with the answer's."""
        start = len(tokens) - len(self.tokens)
        fits = self.text and prompt.endswith(self.text) and start >= 0 and tokens.after(start) == self.tokens
        return start if fits else None
