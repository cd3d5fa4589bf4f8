"""Two services on one store, as two kvchats have it, and replies that end when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.prompt.message import Role
from toyserver import SSE_HEAD, ToyServer, Visit, chunked, event


class Slow:
    """A reply of two parts: the second one comes after `go`. Each request that came is in `began`."""

    def __init__(self, first: str = "half ", second: str = "and whole") -> None:
        self.first, self.second = first, second
        self.go = asyncio.Event()
        self.began: list[Visit] = []

    async def __call__(self, visit: Visit) -> None:
        def part(text: str, finish: str | None = None) -> bytes:
            return chunked(event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}))

        await visit.send(SSE_HEAD + part(self.first))
        self.began.append(visit)
        ends = [asyncio.create_task(self.go.wait()), asyncio.create_task(visit.gone.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if not visit.gone.is_set():
            await visit.send(part(self.second) + part("", "stop") + chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def history(visit: Visit) -> list[str]:
    """The contents of a request's messages after the system message, without what stands in front of a question."""
    return [message["content"].rpartition("]\n\n")[2] for message in visit.json["messages"][1:]]


def texts(service: ChatService, id: str) -> list[str]:
    """The branch that a window shows."""
    conversation = service.conversations.get(id)
    assert conversation is not None
    return [node.text for node in conversation.path() if node.role is not Role.SYSTEM]


def kept(service: ChatService, id: str) -> list[str]:
    """The branch in use, as it is stored."""
    record = service.store.conversation(id)
    return [node.text for node in service.store.tree(id).path(record.head) if node.role is not Role.SYSTEM]


async def until(service: ChatService, holds: Callable[[], bool]) -> None:
    """Wait until it holds, looked at after each event."""
    told = asyncio.Event()
    forget = service.events.subscribe(lambda _: told.set())
    try:
        async with asyncio.timeout(30):
            while not holds():
                told.clear()
                await told.wait()
    finally:
        forget()


async def say(service: ChatService, id: str, text: str) -> None:
    await service.turns.send(id, Question(text))
    await service.conversations.wait(id)


async def streaming(service: ChatService, server: ToyServer, id: str, text: str, slow: Slow) -> None:
    """Ask, and return when the reply has begun and what came of it is stored."""
    server.on_chat(slow)
    await service.turns.send(id, Question(text))
    conversation = service.conversations.get(id)
    assert conversation is not None
    await until(service, lambda: conversation.live is not None and conversation.live.text == slow.first)
