"""What the small servers with a prefix cache share: a prompt of one token per word, the cache, and streaming.

The rule: what a request cost is counted here, from the prompt as it was rendered, and never from what is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toyserver import Answer, ToyServer, Visit, chunked, event, reply

Words = tuple[str, ...]


def rendered(messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None) -> Words:
    """The prompt: each message's role, words and end, then the beginning of the answer. A template option that is
    not known to keep the prompt as it is stands at its beginning, as in real templates."""
    words = [f"<{name}={value}>" for name, value in sorted((options or {}).items())]
    for message in messages:
        words += [f"<{message['role']}>", *(message.get("content") or "").split(), "<end>"]
    return (*words, "<assistant>")


def shared(first: Words, second: Words) -> int:
    """How many tokens two prompts have in common at their beginning."""
    pairs = zip(first, second, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


class PrefixCache:
    """Sequences that were read, the last `capacity` of them; found again in whole blocks of `block` tokens."""

    def __init__(self, block: int = 1, capacity: int = 1000) -> None:
        self._block = block
        self._capacity = capacity
        self._kept: list[Words] = []

    def found(self, prompt: Words) -> int:
        """Tokens of `prompt` that are there. At least one is always computed, for its logits."""
        best = max(self._kept, key=lambda kept: shared(kept, prompt), default=())
        if best:
            self._kept.remove(best)
            self._kept.append(best)
        return min(shared(best, prompt), len(prompt) - 1) // self._block * self._block

    def keep(self, tokens: Words) -> None:
        self._kept = [kept for kept in self._kept if shared(kept, tokens) < len(kept)]
        self._kept = [*self._kept, tokens[: len(tokens) // self._block * self._block]][-self._capacity :]


@dataclass(frozen=True)
class Read:
    """What one request really cost."""

    prompt: int
    cached: int
    predicted: int

    @property
    def evaluated(self) -> int:
        return self.prompt - self.cached


class EngineStandIn(ToyServer):
    """A server with a cache. A subclass says how it answers (`answer_to`) and what it keeps."""

    def __init__(
        self,
        *,
        model: str = "toy",
        say: Callable[[int], str] = lambda turn: f"This is answer {turn} .",
        hold_after: int | None = None,
    ) -> None:
        super().__init__("openai")
        self.model = model
        self.reads: list[Read] = []
        self.hold_after = hold_after
        """Say nothing more after so many words, until the client goes."""
        self._say = say

    @property
    def asked(self) -> list[Any]:
        """The bodies of the chat requests."""
        return [visit.json for visit in self.chats]

    def words(self, request: Mapping[str, Any], longest: int | None) -> tuple[list[str], str]:
        """The answer's words and its finish reason."""
        turn = sum(message["role"] == "user" for message in request["messages"])
        words = self._say(turn).split()
        if longest is not None and longest < len(words):
            return words[:longest], "length"
        return words, "stop"

    async def hold(self, visit: Visit, said: int) -> bool:
        """Whether the client has gone; waits for that where the answer is to stop after `said` words."""
        if said == self.hold_after:
            await visit.gone.wait()
        await asyncio.sleep(0)
        return visit.gone.is_set()

    def _answer_to(self, visit: Visit) -> Answer:
        return self.answer_to(visit)

    def answer_to(self, visit: Visit) -> Answer:
        raise NotImplementedError


def pieces(words: Sequence[str]) -> Iterator[str]:
    """The words as a server streams them: the blanks go with what follows."""
    for number, word in enumerate(words):
        yield f" {word}" if number else word


def part(model: str, delta: Mapping[str, Any], finish: str | None = None, **extra: Any) -> dict[str, Any]:
    """A part of a streamed answer."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1795325418,
        "model": model,
        "choices": [{"index": 0, "delta": dict(delta), "finish_reason": finish}],
        **extra,
    }


def stream_head(server: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return (
        f"{status}\r\nserver: {server}\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        "transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    ).encode()


async def say(visit: Visit, value: object) -> None:
    """Send an event, unless the client has gone."""
    if not visit.gone.is_set():
        await visit.send(chunked(event(value)))


DONE = chunked(b"data: [DONE]\n\n")
END = b"0\r\n\r\n"


def uvicorn(status: int, value: object = None) -> Answer:
    return reply(status, value, server="uvicorn")


LOST = uvicorn(404, {"detail": "Not Found"})
