"""Where the user messages of a rendered prompt begin, in tokens, as llama.cpp's server finds them.

The server saves checkpoints there, for models that cannot rewind. The rule: it looks for the tokens of a marker that
it takes from the chat template once, and so does this, from the same two renderings; a template that shows none gives
no places.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from kvchat.backends.dialect import BackendError, CacheAccess, ChatTurn
from kvchat.cache.tokens import NO_TOKENS, Tokens
from kvchat.prompt.message import Message, Role

FIRST, QUESTION, ANSWER = "U2_USER_MSG", "U1_USER_MSG", "A_ASST_MSG"
_SEGMENT = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|[^<\[]+|.", re.DOTALL)


class UserStarts:
    """The marker of one server's chat template."""

    def __init__(self, access: CacheAccess) -> None:
        self._access = access
        self._markers: dict[str, Tokens] = {}
        """By model: the marker's token ids; empty where there is none."""

    async def places(self, model: str, prompt: Tokens) -> tuple[int, ...]:
        """The tokens of `prompt` at which user messages begin, in order; none where the server does not tell."""
        marker = self._markers.get(model)
        if marker is None:
            try:
                marker = await self._tokens(await self._text(model))
            except BackendError:
                marker = NO_TOKENS
            self._markers[model] = marker
        return tuple(prompt.places_of(marker))

    async def _tokens(self, marker: str) -> Tokens:
        """The marker's ids as they are within a prompt: at its start there may be a token that stands there only."""
        if not marker:
            return NO_TOKENS
        once = await self._access.tokens_of(marker)
        return (await self._access.tokens_of(marker + marker)).after(len(once))

    async def _text(self, model: str) -> str:
        question = Message(Role.USER, QUESTION).wire()
        try:
            return marker_in(await self._prompt(model), await self._prompt(model, question))
        except BackendError:  # a template that refuses an empty conversation
            first, answer = Message(Role.USER, FIRST).wire(), Message(Role.ASSISTANT, ANSWER).wire()
            return repeated_marker_in(await self._prompt(model, first, answer, question))

    async def _prompt(self, model: str, *wires: bytes) -> str:
        return await self._access.prompt_text(ChatTurn(wires, "", model))


def marker_in(without: str, asked: str) -> str:
    """What stands in front of a question: `without` is a prompt without any, `asked` the same with it. Both end with
    the header of the answer that is asked for."""
    header = _shared(without[::-1], asked[::-1])
    shared = _shared(without[:len(without) - header], asked)
    return _marker(asked[shared:max(shared, asked.rfind(QUESTION))])


def repeated_marker_in(asked: str) -> str:
    """What stands in front of both questions of a prompt."""
    first, _, rest = asked.partition(FIRST)
    between = rest.partition(ANSWER)[2].partition(QUESTION)[0]
    shared = _shared(_SEGMENT.findall(first)[::-1], _SEGMENT.findall(between)[::-1])
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
