"""What the tests of the Ollama dialect share: a connected backend, and a conversation that only grows."""

from __future__ import annotations

from typing import Any

from backend_kit import Heard, endpoint_of

from kvchat.backends.base import OneTokenWarmUp
from kvchat.backends.dialect import ChatTurn, Ended, Reported, ServerOptions
from kvchat.backends.dialects.ollama.backend import OllamaBackend
from kvchat.backends.http.transport import Clock
from kvchat.prompt.wire import canonical
from toyserver import ToyServer

NEWEST = "0.33.3"
"""The first version that counts cached tokens."""


async def connected(server: ToyServer, clock: Clock | None = None, **options: Any) -> OllamaBackend:
    backend = OllamaBackend(endpoint_of(server), clock=clock, options=ServerOptions(**options))
    await backend.identify()
    return backend


class Talk:
    """A conversation that only ever grows, as kvchat keeps it: the wires of each turn begin with those before."""

    def __init__(self, backend: OllamaBackend | OneTokenWarmUp, session: str = "s1", **options: Any) -> None:
        self.backend = backend
        self.wires: tuple[bytes, ...] = (canonical({"role": "system", "content": "Be brief . " * 10}),)
        self.session = session
        self.options = options
        self.reports: list[Reported] = []

    def turn(self, question: str) -> ChatTurn:
        asked = canonical({"role": "user", "content": question})
        return ChatTurn((*self.wires, asked), self.session, **self.options)

    async def ask(self, question: str) -> Ended:
        heard, turn = Heard(), self.turn(question)
        ended = await self.backend.chat(turn, heard)
        self.reports.append(heard.reported)
        if ended.error is None:
            answer = {"role": "assistant", "content": heard.text}
            if heard.reasoning:
                answer["reasoning_content"] = heard.reasoning
            self.wires = (*turn.wires, canonical(answer))
        return ended


def words(count: int, word: str = "word") -> str:
    return " ".join(f"{word}{number}" for number in range(count))
