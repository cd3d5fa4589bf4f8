"""The tokens of prompts are asked for once, however many want to know them at a time."""

from __future__ import annotations

import asyncio

import pytest

from kvchat.backends.dialect import ChatTurn
from kvchat.cache.tokens import Tokens
from kvchat.chat.cache.prompt_tokens import PromptTokens
from kvchat.chat.events import EventBus
from kvchat.prompt.message import Message, Role

TURN = ChatTurn((Message(Role.SYSTEM, "You keep the light.").wire(),), "one", "toy")
OTHER = ChatTurn((Message(Role.SYSTEM, "You keep the log.").wire(),), "two", "toy")


class SlowServer:
    """Its template and tokeniser answer when `open` is set."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.rendered = 0

    async def prompt_text(self, turn: ChatTurn) -> str:
        self.rendered += 1
        await self.open.wait()
        return "\n".join(wire.decode() for wire in turn.wires)

    async def tokens_of(self, text: str, known: object = None) -> Tokens:
        return Tokens([ord(letter) for letter in text])


@pytest.fixture
def server() -> SlowServer:
    return SlowServer()


@pytest.fixture
def prompts(server: SlowServer) -> PromptTokens:
    return PromptTokens(server, EventBus())  # type: ignore[arg-type]


async def test_two_who_want_the_same_prefix_ask_once(server: SlowServer, prompts: PromptTokens) -> None:
    wanted = [asyncio.create_task(prompts.prefix(TURN)) for _ in range(3)]
    await asyncio.sleep(0)
    server.open.set()
    first, *others = await asyncio.gather(*wanted)
    assert first and others == [first, first] and server.rendered == 1
    assert await prompts.prefix(TURN) == first and server.rendered == 1


async def test_who_wants_another_one_does_not_wait(server: SlowServer, prompts: PromptTokens) -> None:
    wanted = [asyncio.create_task(prompts.prefix(turn)) for turn in (TURN, OTHER)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert server.rendered == 2
    server.open.set()
    assert all(await asyncio.gather(*wanted))


async def test_who_waited_asks_where_the_first_one_was_cancelled(server: SlowServer, prompts: PromptTokens) -> None:
    first, second = (asyncio.create_task(prompts.prefix(TURN)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    server.open.set()
    assert await second
    assert server.rendered == 2
