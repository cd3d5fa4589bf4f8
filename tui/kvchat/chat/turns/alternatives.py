"""Several answers to one question: as many of them in one request as the server can give, so that the prompt is
prefilled once; each request's answers go to runs of their own.

Nobody else goes on with the conversation until one of them is chosen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends.dialect import Emit, Ended, OfAlternative, ServerInfo, StreamEvent
from kvchat.chat.errors import ChatError
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.message import CUT, Node, State
from kvchat.sanitize import one_line
from kvchat.text.problems import ChatProblem

MOST_ANSWERS = 9
"""Answers to one question at the most: each is chosen by a digit."""
USUAL = 3
"""Where it is not said how many."""


class AlternativesRequest(Struct, frozen=True):
    """How many answers, or of which models one each."""

    count: int
    models: tuple[str, ...] = ()

    def requests(self, most: int) -> list[tuple[int, str]]:
        """The requests to make, one after the other: how many answers each asks for, and of which model (empty: the
        conversation's). `most`: answers that one can ask for."""
        if self.models:
            return [(1, model) for model in self.models]
        return [(min(most, self.count - before), "") for before in range(0, self.count, most)]


def parse_alternatives(text: str, server: ServerInfo | None) -> tuple[AlternativesRequest, str]:
    """What `text` asks for, and the question behind it: a number, or names of the server's models. Without either it is
    the usual number, but no more than one request gives, and all of it is the question. Raises ChatError."""
    words = text.split()
    number = words[0] if words and words[0].isdecimal() else ""
    if number:
        if not 2 <= int(number[:4]) <= MOST_ANSWERS:
            raise ChatError(ChatProblem.HOW_MANY, most=MOST_ANSWERS, number=number[:12])
        return AlternativesRequest(int(number)), text.strip()[len(number) :].strip()
    models = list(takewhile(lambda word: server is not None and server.known(word) is not None, words))
    if not models:
        most = server.most_answers if server is not None else 1
        return AlternativesRequest(min(USUAL, most) if most > 1 else USUAL), text.strip()
    if len(models) != len(words):
        raise ChatError(ChatProblem.UNKNOWN_MODEL, model=one_line(words[len(models)], 40))
    if not 2 <= len(models) <= MOST_ANSWERS:
        raise ChatError(ChatProblem.HOW_MANY_MODELS, most=MOST_ANSWERS)
    return AlternativesRequest(len(models), tuple(models)), ""


class SharedRequest:
    """One request for several answers. `answer` is what each run takes for its request."""

    def __init__(self, count: int, chat: Callable[[Emit], Awaitable[Ended]]) -> None:
        self._chat = chat
        self._emits: dict[int, Emit] = {}
        self._ends = [asyncio.get_running_loop().create_future() for _ in range(count)]
        self._left = 0
        self._task: asyncio.Task[None] | None = None

    async def answer(self, at: int, emit: Emit) -> Ended:
        """Return when this answer has ended. When none is waited for any more, the request is closed."""
        self._emits[at] = emit
        if len(self._emits) == len(self._ends):
            self._task = asyncio.create_task(self._send())
        try:
            ended: Ended = await asyncio.shield(self._ends[at])
            return ended
        finally:
            self._left += 1
            if self._left == len(self._emits) and self._task is not None:
                if not all(end.done() for end in self._ends):
                    self._task.cancel()
                await asyncio.wait({self._task})

    async def _send(self) -> None:
        try:
            ended = await self._chat(self._hear)
        except Exception as error:
            for end in self._ends:
                if not end.done():
                    end.set_exception(error)
            return
        for end in self._ends:
            if not end.done():
                end.set_result(ended)

    def _hear(self, event: StreamEvent) -> None:
        if not isinstance(event, OfAlternative):
            for emit in self._emits.values():
                emit(event)
        elif not isinstance(event.event, Ended):
            self._emits[event.at](event.event)
        elif not self._ends[event.at].done():
            self._ends[event.at].set_result(event.event)


def with_figures(answers: Sequence[Node], first: TurnFigures | None) -> list[Node]:
    """The answers to one request, the first with the figures `first`, the others with those of its prompt, which they
    share."""
    found = []
    for at, answer in enumerate(answers):
        figures = answer.figures if at else first
        if figures is not None and first is not None:
            figures = replace(
                figures,
                alternative=at,
                new_tokens=first.new_tokens,
                cause=first.cause,
                predicted_cached=first.predicted_cached,
                evidence=first.evidence,
                remedy=first.remedy,
                block=first.block,
            )
        found.append(replace(answer, figures=figures))
    return found


def usual_choice(answers: Sequence[Node]) -> Node:
    """The one that is taken where the user takes none: the first that is whole, else the first that has words."""
    whole = (answer for answer in answers if answer.state is State.DONE)
    words = (answer for answer in answers if not answer.is_wordless)
    return next(whole, None) or next(words, answers[0])


def is_over(answers: Sequence[Node]) -> bool:
    """Whether no further answer is asked for after these: one was stopped, or failed."""
    return any(answer.state in CUT and answer.state is not State.LENGTH for answer in answers)
