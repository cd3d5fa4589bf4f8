"""A person with the service on servers with tiny models, for the causes of wasted tokens."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.figures.accounting import TurnFigures
from kvchat.figures.cause import Cause
from kvchat.prompt.message import Node, Role
from kvchat.prompt.request import Parameters
from kvchat.text.findings import evidence_sentence, remedy_sentence
from kvchat.values import Statement
from tiny_server import tiny_server

WORDS = "The lamp turned over the sea while the keeper wrote the log of the night. "
SYSTEM = WORDS * 20
SEA = 3617
"""The token ` sea`, which all tiny models share."""
STEADY = Parameters(temperature=0.0, max_tokens=12, extra={"logit_bias": [[SEA, 100]]})
"""Answers that read back as the very tokens they were written in."""
SEPARATE = {"kv_unified": False}
ROOM = 4096

HEAD = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
START = "{%- if add_generation_prompt -%}<|im_start|>assistant\n{% endif -%}"
TEMPLATES = {
    "clock": "<|im_start|>system\nIt is {{ strftime_now('%H:%M:%S') }}.<|im_end|>\n"
    "{%- for m in messages -%}" + HEAD + "{% endfor -%}" + START,
    "moving": "{%- for m in messages -%}{%- if m.role == 'system' -%}{%- set held = m.content -%}{%- endif -%}"
    "{%- if m.role != 'system' -%}<|im_start|>{{ m.role }}\n"
    "{% if loop.last %}{{ messages[0].content }}\n{% endif %}{{ m.content }}<|im_end|>\n{% endif -%}"
    "{%- endfor -%}" + START,
}


class Chat:
    """A person with the service."""

    def __init__(self, service: ChatService) -> None:
        self.service = service
        self._closed = False

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self.service.aclose()

    async def begin(self, system: str = SYSTEM) -> str:
        return (await self.service.new_conversations.create(system, reuse=False)).id

    async def looked_at(self, id: str) -> None:
        """The person looks at a conversation until all that is to be read ahead of it has been."""
        await self.service.conversations.open(id)
        await self.rested()

    async def rested(self) -> None:
        """Return when nothing is read ahead any more."""
        await self.service.warm_up.ended()

    async def say(self, id: str, text: str = "And then? ") -> TurnFigures:
        await self.service.turns.send(id, Question(text))
        return await self.answered(id)

    async def answered(self, id: str) -> TurnFigures:
        await self.service.conversations.wait(id)
        if (cache := self.service.servers.link().cache) is not None:
            await cache.settled()
        figures = self.branch(id)[-1].figures
        assert figures is not None, self.branch(id)[-1]
        return figures

    def conversation(self, id: str) -> OpenConversation:
        conversation = self.service.conversations.get(id)
        assert conversation is not None
        return conversation

    def branch(self, id: str) -> list[Node]:
        return list(self.conversation(id).path())

    def questions(self, id: str) -> list[Node]:
        return [node for node in self.branch(id) if node.role is Role.USER]

    async def turns(self, id: str, count: int, words: int = 4) -> None:
        """Ordinary turns, none of which has anything to explain."""
        for turn in range(count):
            figures = await self.say(id, f"Question {turn}: {WORDS * words}")
            assert figures.cause is None, figures.evidence


Start = Callable[..., Chat]


@contextmanager
def served(model: Path, slots: int = 1, **options: Any) -> Iterator[str]:
    with tiny_server(model, **{"n_parallel": slots, "n_ctx": ROOM * slots, **SEPARATE, **options}) as url:
        yield url


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came to that")


def sleeps(url: str) -> bool:
    return httpx.get(f"{url}/props").json()["is_sleeping"] is True


def another_program_asks(url: str) -> None:
    httpx.post(
        f"{url}/v1/chat/completions",
        timeout=30,
        json={"messages": [{"role": "user", "content": "Something else entirely. " * 30}], "max_tokens": 4},
    )


def told(figures: TurnFigures, cause: Cause, *words: str) -> None:
    """The turn was explained by `cause`, in a sentence with these words and the tokens it cost."""
    assert figures.cause == cause, (figures.evidence, figures)
    assert isinstance(figures.evidence, Statement), "it is stored as a kind and its arguments"
    sentence = evidence_sentence(figures.evidence, figures.wasted_tokens or 0)
    said = f"{sentence} {remedy_sentence(figures.remedy)}"
    for word in words:
        assert word in said, said
    read = re.search(r"([\d,]*\d) tokens were prefilled again", sentence)
    assert read is None or int(read[1].replace(",", "")) == figures.wasted_tokens, figures


def thinking(thoughts: str, tokens: int = 120, answer: str = "Yes, it turns.") -> Parameters:
    """Answers that begin with these thoughts."""
    text = json.dumps(f"{thoughts}\n</think>\n\n{answer}")
    return Parameters(temperature=0.0, max_tokens=tokens, extra={"grammar": f"root ::= {text}"})


ANSWER = "It turns all night, and the keeper winds its clockwork every four hours, as the log says. "
"""What follows thoughts, long enough to be worth reading ahead."""
THOUGHTS = thinking("The lamp turns at night, so the keeper has to wake. " * 2, answer=ANSWER)


@asynccontextmanager
async def meddling(url: str, meddle: Callable[[dict[str, Any]], None]) -> AsyncIterator[str]:
    """A proxy before a server that changes the body of every chat request by `meddle`."""
    port = httpx.URL(url).port

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        body = await reader.readexactly(int(length[1])) if length else b""
        if b"/chat/completions" in head:
            meddle(request := json.loads(body))
            body = json.dumps(request).encode()
            head = re.sub(rb"(?i)(content-length: *)\d+", rb"\g<1>%d" % len(body), head)
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        server_writer.write(head + body)
        try:
            while data := await server_reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        finally:
            server_writer.close()
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
