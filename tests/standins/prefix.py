"""What stand-ins of servers share: a prompt of words, a cache of the longest common prefix, and a chat over HTTP.

The rule: one token is one word, so every count is exact. A template is `<role> words... <end>` for each message, then
`<assistant>`; what a server adds, refuses or hides is the stand-in's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import ChatTurn, Ended, Reported, StreamEvent, TextDelta
from toyserver import Answer, ToyServer, Visit, chunked, event, raw, reply

CHAT_PATH = "/v1/chat/completions"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)
DONE = b"data: [DONE]\n\n"
SESSION = "0123456789abcdef0123456789abcdef"


def rendered(messages: Iterable[Mapping[str, Any]], *, unfinished: bool = False) -> list[str]:
    """The prompt of a chat, a word for a token. `unfinished`: the last message is to be gone on with."""
    words: list[str] = []
    for message in messages:
        words += [f"<{message['role']}>", *str(message["content"]).split(), "<end>"]
    return words[:-1] if unfinished else [*words, "<assistant>"]


@dataclass(frozen=True)
class Read:
    """How a prompt was read."""

    prompt: int
    cached: int

    @property
    def evaluated(self) -> int:
        return self.prompt - self.cached


class PrefixCache:
    """The last sequences of a server, each reusable up to where a new one differs."""

    def __init__(self, slots: int = 1) -> None:
        self._slots = slots
        self._held: list[list[str]] = []

    def read(self, words: Sequence[str], answer: Sequence[str]) -> Read:
        """Read a prompt and write its answer behind it. The last token of a prompt is always evaluated."""
        best = max(self._held, key=lambda held: _common(held, words), default=[])
        cached = min(_common(best, words), len(words) - 1)
        if best and (cached or len(self._held) >= self._slots):
            self._held.remove(best)
        self._held = [*self._held, [*words, *answer]][-self._slots :]
        return Read(len(words), cached)

    def clear(self) -> None:
        self._held.clear()


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


class WordServer(ToyServer):
    """A chat server that counts words. `reads` tells what it had to read, request by request."""

    def __init__(self, *, model: str = "toy-8b", context_size: int = 4096, key: str = "", slots: int = 1) -> None:
        super().__init__("openai", model=model)
        self._routes.clear()
        self.model = model
        self.context_size = context_size
        self.key = key
        self.cache = PrefixCache(slots)
        self.reads: list[Read] = []
        self.says = "All is well here today."

    def get(self, path: str, value: object, status: int = 200) -> None:
        """Answer GETs of `path` with JSON, or with text."""
        is_text = isinstance(value, str)
        self.on(
            path,
            reply(
                status,
                value.encode() if isinstance(value, str) else value,
                content_type="text/plain" if is_text else "application/json",
            ),
        )

    def _answer_to(self, visit: Visit) -> Answer:
        if (refused := self.refusal(visit)) is not None:
            return refused
        if visit.method == "GET":
            return self._routes.get(visit.path) or self.unknown(visit)
        return self.chat(visit) if visit.path == CHAT_PATH else self.unknown(visit)

    def refusal(self, visit: Visit) -> Answer | None:
        """What is answered before anything is looked at: to a wrong key, a wrong host."""
        return None

    def unknown(self, visit: Visit) -> Answer:
        return reply(404, {"detail": "Not Found"})

    def chat(self, visit: Visit) -> Answer:
        raise NotImplementedError

    def has_key(self, visit: Visit) -> bool:
        return not self.key or visit.headers.get("authorization") == f"Bearer {self.key}"

    def read(self, words: Sequence[str]) -> Read:
        """Read a prompt, and write the answer behind it."""
        read = self.cache.read(words, self.says.split())
        self.reads.append(read)
        return read

    def usage(self, read: Read) -> dict[str, Any]:
        written = len(self.says.split())
        return {"prompt_tokens": read.prompt, "completion_tokens": written, "total_tokens": read.prompt + written}

    def told(
        self, usage: Mapping[str, object] | None, *, model: str = "", finish: str = "stop", before: Iterable[bytes] = ()
    ) -> Answer:
        """The answer as a stream: the words one by one, why it ended, and the figures, if there are any."""
        model = model or self.model
        texts = [text if place == 0 else f" {text}" for place, text in enumerate(self.says.split())]
        parts = [
            _part(model, {"role": "assistant"}),
            *(_part(model, {"content": text}) for text in texts),
            _part(model, {}, finish),
        ]
        if usage is not None:
            parts.append({"object": "chat.completion.chunk", "model": model, "choices": [], "usage": usage})
        return streamed([*before, *map(event, parts), DONE])


def _part(model: str, delta: Mapping[str, object], finish: str | None = None) -> dict[str, object]:
    return {
        "object": "chat.completion.chunk",
        "model": model,
        "choices": [{"index": 0, "delta": dict(delta), "finish_reason": finish}],
    }


def streamed(events: Iterable[bytes], *, whole: bool = True) -> Answer:
    """An event stream of ready-made events; not `whole`: the connection breaks behind them."""
    return raw(STREAM_HEAD + b"".join(map(chunked, events)) + (b"0\r\n\r\n" if whole else b""))


@dataclass(frozen=True)
class Turn:
    """One turn of a conversation, as it was seen from both sides."""

    read: Read
    new: int
    """Tokens that this turn added: its prompt without the one before and the answer to that."""
    ended: Ended
    reported: Reported
    body: bytes


async def converse(
    backend: HttpBackend, server: WordServer, turns: int = 10, *, words: int = 12, **options: Any
) -> list[Turn]:
    """A conversation that is only ever added to, with the answers as they were received."""
    wires = [_wire("system", "Be brief and kind to everybody who asks.")]
    found: list[Turn] = []
    held = 0
    for number in range(turns):
        wires.append(_wire("user", " ".join(f"word{number}.{place}" for place in range(words))))
        turn = ChatTurn(tuple(wires), SESSION, **options)
        events: list[StreamEvent] = []
        ended = await backend.chat(turn, events.append)
        text = "".join(each.text for each in events if isinstance(each, TextDelta))
        reported = next((each for each in reversed(events) if isinstance(each, Reported)), Reported())
        read = server.reads[-1]
        found.append(Turn(read, read.prompt - held, ended, reported, server.chats[-1].body))
        held = read.prompt + len(text.split())
        wires.append(_wire("assistant", text))
    return found


def _wire(role: str, content: str) -> bytes:
    return json.dumps({"role": role, "content": content}, separators=(",", ":")).encode()
