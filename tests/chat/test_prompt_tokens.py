"""The tokens of prompts are asked for once, however many want to know them at a time."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace

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


class Template(SlowServer):
    """Renders at once."""

    def __init__(self) -> None:
        super().__init__()
        self.open.set()

    async def prompt_text(self, turn: ChatTurn) -> str:
        await super().prompt_text(turn)
        return self.renders(turn)

    def renders(self, turn: ChatTurn) -> str:
        raise NotImplementedError


def question(text: str) -> bytes:
    return Message(Role.USER, text).wire()


def answered(prompts: PromptTokens, server: Template, turn: ChatTurn, answer: Message) -> ChatTurn:
    """The server says what it has read; the messages with the answer to it."""
    prompts.was_read(turn, server.renders(turn))
    return replace(turn, wires=(*turn.wires, answer.wire()))


async def asks(prompts: PromptTokens, server: Template, texts: list[str], answer: Message) -> int:
    """Turns with these questions; how often the template was asked for in the last one. All prefixes are right."""
    turn, before = TURN, 0
    for text in texts:
        before = server.rendered
        turn = answered(prompts, server, replace(turn, wires=(*turn.wires, question(text))), answer)
        assert await prompts.prefix(turn) == await PromptTokens(type(server)(), EventBus()).prefix(turn), text  # type: ignore[arg-type]
    return server.rendered - before


PLAIN = Message(Role.ASSISTANT, "The keeper.")


class ChatMl(Template):
    """As most templates do it."""

    def renders(self, turn: ChatTurn) -> str:
        said = [(json.loads(wire)["role"], json.loads(wire)["content"]) for wire in turn.wires]
        return "".join(f"<{role}>{text}<end>" for role, text in said) + "<assistant>"


class Trimming(ChatMl):
    def renders(self, turn: ChatTurn) -> str:
        return super().renders(turn).replace(" <end>", "<end>")


class ToolsLast(ChatMl):
    """The tools stand before the last question."""

    def renders(self, turn: ChatTurn) -> str:
        before, last, behind = super().renders(turn).rpartition("<user>")
        return before + "[tools]" + last + behind


@pytest.mark.parametrize(
    ("template", "answer", "times"),
    [
        (ChatMl, PLAIN, 0),
        (Trimming, PLAIN, 0),
        (ChatMl, Message(Role.ASSISTANT, "The keeper. "), 1),
        (ChatMl, Message(Role.ASSISTANT, ""), 1),
        (ChatMl, Message(Role.ASSISTANT, "The keeper.", reasoning="Who else?"), 1),
        (ToolsLast, PLAIN, 1),
    ],
)
async def test_a_template_that_goes_on_as_it_did_is_not_asked_again(
    template: type[Template], answer: Message, times: int
) -> None:
    server = template()
    prompts = PromptTokens(server, EventBus())  # type: ignore[arg-type]
    assert await asks(prompts, server, ["Who?", "Since when?", "And then?"], answer) == times


async def test_one_that_the_server_shows_to_do_otherwise_is_asked_again() -> None:
    server = ChatMl()
    prompts = PromptTokens(server, EventBus())  # type: ignore[arg-type]
    await asks(prompts, server, ["Who?", "Since when?"], PLAIN)
    turn = replace(TURN, wires=(*TURN.wires, question("Who?"), PLAIN.wire(), question("And then?")))
    prompts.was_read_otherwise(turn)
    assert prompts.known_prefix(turn.extended) is None
    before = server.rendered
    await prompts.prefix(answered(prompts, server, turn, PLAIN))
    assert server.rendered == before + 1
