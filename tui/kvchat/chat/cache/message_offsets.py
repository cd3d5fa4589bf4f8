"""Where messages begin and end in a rendered prompt, in tokens: the user messages, at which llama.cpp's server saves
checkpoints for models that cannot rewind, and the seam that a template puts between an answer and the next question.

The template shows it itself, as the server finds it: by the tokens of a marker, in renderings of invented
texts. Where a prompt does not have it in that place, the place is not known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from kvchat.backends.dialect import BackendError, CacheAccess, ChatTurn
from kvchat.cache import Tokens
from kvchat.cache.tracking import TurnSeparator, marker_in, repeated_marker_in
from kvchat.prompt.message import Message, Role
from kvchat.prompt.tools import calls_in
from kvchat.prompt.wire import canonical

FIRST, ANSWER, QUESTION = "U1_USER_MSG", "A_ASST_MSG", "U2_USER_MSG"
"""Invented texts, to find what a template puts around them."""


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
                marker = Tokens()
            self._markers[model] = marker
        return tuple(prompt.places_of(marker))

    async def _tokens(self, marker: str) -> Tokens:
        """The marker's ids as they are within a prompt: at the very start there may be an extra token."""
        if not marker:
            return Tokens()
        once = await self._access.tokens_of(marker)
        return (await self._access.tokens_of(marker + marker)).after(len(once))

    async def _text(self, model: str) -> str:
        question = Message(Role.USER, QUESTION).wire()
        try:
            return marker_in(await self._prompt(model), await self._prompt(model, question), QUESTION)
        except BackendError:  # a template that refuses an empty conversation
            first, answer = Message(Role.USER, FIRST).wire(), Message(Role.ASSISTANT, ANSWER).wire()
            asked = await self._prompt(model, first, answer, question)
            return repeated_marker_in(asked, FIRST, ANSWER, QUESTION)

    async def _prompt(self, model: str, *wires: bytes) -> str:
        return await self._access.prompt_text(ChatTurn(wires, "", model))


ANSWERED, ASKED = Message(Role.ASSISTANT, ANSWER), Message(Role.USER, QUESTION)
_SPECIAL = re.compile(r"<[|｜][^<>\s]+[|｜]>")
_SYSTEM, _ASSISTANT = b'{"role":"system"', b'{"role":"assistant"'


NO_SEPARATOR = TurnSeparator("", Tokens())


class TurnSeparators:
    """What one server's chat templates print between two turns, each rendered once."""

    def __init__(self, access: CacheAccess) -> None:
        self._access = access
        self._known: dict[tuple[Sequence[bytes], str, bytes, bool, bool], TurnSeparator] = {}

    async def after_an_answer(self, turn: ChatTurn) -> TurnSeparator:
        """The separator behind `turn`'s last message; none where that is no answer. One that calls tools is followed by
        what the first of them gave."""
        if not turn.wires or not turn.wires[-1].startswith(_ASSISTANT):
            return NO_SEPARATOR
        first = turn.wires[:1] if turn.wires[0].startswith(_SYSTEM) else ()
        calls = calls_in(turn.wires[-1])
        key = first, turn.model, canonical(dict(turn.template_options)), turn.system_in_user, bool(calls)
        if key not in self._known:
            try:
                seam = await self._seam(await self._between(turn, first, ANSWERED, ASKED))
                if calls:
                    call = replace(calls[0], arguments=canonical({"at": ANSWER}).decode())
                    answer, result = (
                        Message(Role.ASSISTANT, "", calls=(call,)),
                        Message(Role.TOOL, QUESTION, calls=(call,)),
                    )
                    seam = await self._behind_a_call(await self._between(turn, first, answer, result), seam)
                self._known[key] = seam
            except BackendError:
                return NO_SEPARATOR
        return self._known[key]

    async def _behind_a_call(self, text: str, behind_an_answer: TurnSeparator) -> TurnSeparator:
        """The seam in the text between the arguments of a call and its result: that behind an answer or, where the
        template ends the two in different ways (GLM, gpt-oss), what the first special token begins."""
        special = _SPECIAL.search(text)
        ends = (await self._seam(text)).tokens.places_of(behind_an_answer.tokens.first(1))
        if special is None or any(True for _ in ends):
            return behind_an_answer
        return await self._seam(text[special.start() :])

    async def _between(self, turn: ChatTurn, first: tuple[bytes, ...], answer: Message, following: Message) -> str:
        """The text between that of an answer, or the arguments of its call, and what follows it."""
        invented = Message(Role.USER, FIRST).wire(), answer.wire(), following.wire()
        prompt = await self._access.prompt_text(replace(turn, wires=(*first, *invented), known=None))
        return prompt.rpartition(QUESTION)[0].rpartition(ANSWER)[2]

    async def _seam(self, text: str) -> TurnSeparator:
        if not text:
            return NO_SEPARATOR
        # At its very start a prompt may have an extra token.
        once = await self._access.tokens_of(text)
        return TurnSeparator(text, (await self._access.tokens_of(text + text)).after(len(once)))
