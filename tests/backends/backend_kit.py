"""What the tests of the backends share: a turn to send, a collector of events, and backends at toy servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from kvchat.backends.base import OneTokenWarmUp
from kvchat.backends.dialect import (
    ChatTurn,
    HostClass,
    Progressed,
    ReasoningDelta,
    Reported,
    StreamEvent,
    TextDelta,
    Waiting,
)
from kvchat.backends.dialects.llamacpp import LlamaCppBackend
from kvchat.backends.http.endpoint import BaseUrl, Endpoint, ResolvedServer
from kvchat.backends.http.transport import Clock
from toyserver import ToyServer


@dataclass
class Heard:
    """Everything a chat emitted."""

    events: list[StreamEvent] = field(default_factory=list)

    def __call__(self, event: StreamEvent) -> None:
        self.events.append(event)

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, TextDelta))

    @property
    def reasoning(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, ReasoningDelta))

    @property
    def reported(self) -> Reported:
        return next((e for e in reversed(self.events) if isinstance(e, Reported)), Reported())

    @property
    def progress(self) -> list[tuple[int, int, int]]:
        found = [e.progress for e in self.events if isinstance(e, Progressed)]
        return [(p.total, p.cached, p.processed) for p in found]

    @property
    def waiting(self) -> list[Waiting]:
        return [e for e in self.events if isinstance(e, Waiting)]


def a_turn(text: str = "Hi", **options: Any) -> ChatTurn:
    wires = (
        b'{"role":"system","content":"Be brief."}',
        json.dumps({"role": "user", "content": text}, ensure_ascii=False, separators=(",", ":")).encode(),
    )
    return ChatTurn(wires, **{"session_id": "0123456789abcdef0123456789abcdef", **options})


def endpoint_of(server: ToyServer, host_class: HostClass = HostClass.LOOPBACK, **options: Any) -> Endpoint:
    """An endpoint at a toy server that claims to stand elsewhere."""
    return Endpoint(BaseUrl("http", "127.0.0.1", server.port), ResolvedServer(host_class, ("127.0.0.1",)), **options)


def llamacpp_at(
    server: ToyServer, clock: Clock | None = None, *, context_size: int = 4096, **options: Any
) -> LlamaCppBackend:
    """A backend that takes the toy for a llama.cpp server, without asking it."""
    backend = LlamaCppBackend(endpoint_of(server, **options), clock=clock)
    backend._info = replace(backend.info, takes_local_extras=True, context_size=context_size)
    return backend


def openai_at(server: ToyServer, clock: Clock | None = None, **options: Any) -> OneTokenWarmUp:
    return OneTokenWarmUp(endpoint_of(server, **options), clock=clock)


def hurried() -> Clock:
    """A clock on which waiting takes a thousandth of its time."""
    return Clock(sleep=lambda seconds: asyncio.sleep(seconds / 1000))


class FakeTime:
    """A clock that only moves when somebody sleeps, and not before `ready` says so. `at` runs a function when a
    time is reached."""

    def __init__(self, ready: Callable[[], bool] = lambda: True) -> None:
        self.seconds = 0.0
        self._ready = ready
        self._due: list[tuple[float, Callable[[], object]]] = []

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        self._due.append((seconds, act))

    async def sleep(self, seconds: float) -> None:
        while not self._ready():  # noqa: ASYNC110 (the condition is the caller's, and has no event)
            await asyncio.sleep(0.001)
        self.seconds += seconds
        for due in [due for due in self._due if due[0] <= self.seconds]:
            self._due.remove(due)
            due[1]()
        await asyncio.sleep(0.001)

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: self.seconds, sleep=self.sleep)
