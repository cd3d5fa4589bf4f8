"""A server in memory to examine: one token per word of what it is sent, and a cache of a few prompts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvchat.backends.dialect import (
    BackendError,
    ChatTurn,
    Emit,
    Ended,
    HostClass,
    PrefillResult,
    Reported,
    ServerInfo,
    TextDelta,
    Trouble,
    failure,
)
from kvchat.backends.http.payload import Model
from kvchat.backends.kinds import Figures
from kvchat.cache import ServerState, SlotCount
from kvchat.cache.tokens import Tokens
from kvchat.figures.accounting import PromptProgress
from kvchat.prompt.message import State
from kvchat.prompt.request import system_in_user
from kvchat.text.faults import Fault
from kvchat.values import Statement

URL = "http://127.0.0.1:9999"


def an_info(kind: str = "vllm", **changes: Any) -> ServerInfo:
    known: dict[str, Any] = {"model": "m", "listing": (Model("m"),), "context_size": 8192, "figures": Figures.AFTER}
    return ServerInfo(kind, URL, changes.pop("host_class", HostClass.LOOPBACK), **(known | changes))


@dataclass
class Patient:
    """A server. `keeps`: how many prompts its cache holds; 0 is none."""

    info: ServerInfo = field(default_factory=an_info)
    keeps: int = 100
    reports: bool = True
    ms_per_token: float = 2.0
    refuses_system: bool = False
    fails: Callable[[int], BackendError | None] = lambda number: None
    """The failure of the request with this number, from 0 on."""
    counts: bool = True
    """Whether it tells how many tokens there were."""
    preamble: int = 0
    """Tokens that its template puts in front of every prompt."""
    warns: Statement | None = None
    replicas: int = 1
    """Servers behind this address, asked in turn."""
    turns: list[ChatTurn] = field(default_factory=list)
    evaluated: int = 0
    """Tokens read and written so far."""
    closed: bool = False
    hangs_at: int | None = None
    """The number of the request that is never answered."""
    overruns: bool = False
    """Whether it writes on and on, token by token, and counts only at the end."""
    cancelled: bool = False
    """Whether a request was ended from the other side."""
    hung: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once that request has come."""

    def __post_init__(self) -> None:
        self._held: list[list[list[str]]] = [[] for _ in range(self.replicas)]

    async def identify(self) -> ServerInfo:
        return self.info

    def body(self, turn: ChatTurn) -> bytes:
        return b""

    async def alive(self) -> bool:
        return True

    async def aclose(self) -> None:
        self.closed = True

    async def chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        number = len(self.turns)
        self.turns.append(turn)
        if number == self.hangs_at:
            self.hung.set()
            await asyncio.Event().wait()
        if (error := self.fails(number)) is not None:
            return Ended(State.ERROR, error=error)
        wires = system_in_user(turn.wires) if turn.system_in_user else turn.wires
        if self.refuses_system and b'"system"' in wires[0]:
            refusal = failure(Trouble.SYSTEM_ROLE, Fault.TOLD, sentence="No system role here.", status=400)
            return Ended(State.ERROR, error=refusal)
        prompt = ["preamble"] * self.preamble + words_of(wires)
        cached = self._cached(prompt, number % self.replicas)
        if self.overruns:
            await self._write_on(emit, len(prompt))
        predicted = turn.parameters.max_tokens or 1
        answer = [f"w{number}x{index}" for index in range(predicted)]
        self._keep(prompt + answer, number % self.replicas)
        self.evaluated += len(prompt) - cached + predicted
        emit(TextDelta(" ".join(answer)))
        if not self.counts:
            return self._ended()
        emit(
            Reported(
                len(prompt),
                cached if self.reports else None,
                predicted,
                (len(prompt) - cached) * self.ms_per_token,
                predicted * 20.0,
            )
        )
        return self._ended()

    async def _write_on(self, emit: Emit, prompt: int) -> None:
        self.evaluated += prompt
        try:
            for _ in range(100_000):
                self.evaluated += 1
                emit(TextDelta("w "))
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    def _ended(self) -> Ended:
        return Ended(State.LENGTH, model=self.info.model, warnings=(self.warns,) if self.warns else ())

    def _cached(self, prompt: list[str], replica: int) -> int:
        return max((min(shared(prompt, held), len(prompt) - 1) for held in self._held[replica]), default=0)

    def _keep(self, prompt: list[str], replica: int) -> None:
        """The newest stands last; one that the new one goes on from is replaced."""
        held = [old for old in self._held[replica] if shared(old, prompt) < len(old)]
        self._held[replica] = [*held, prompt][-self.keeps :] if self.keeps else []


def words_of(wires: Any) -> list[str]:
    """What a trivial template makes of the messages: role and words."""
    found: list[str] = []
    for wire in wires:
        message = json.loads(wire)
        found += [f"<{message['role']}>", *message["content"].split()]
    return [*found, "<assistant>"]


def shared(one: list[str], other: list[str]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@dataclass
class OpenPatient(Patient):
    """One that tells of its slots and renders prompts."""

    info: ServerInfo = field(default_factory=lambda: an_info("llama.cpp", slots=1, figures=Figures.BEFORE))
    asleep: bool = False
    slots: list[SlotCount] = field(default_factory=lambda: [SlotCount(0)])
    rendered: int = 0
    looks_at_slots: int = 0

    async def prompt_text(self, turn: ChatTurn) -> str:
        self.rendered += 1
        return " ".join(words_of(turn.wires))

    async def tokens_of(self, text: str) -> Tokens:
        return Tokens(range(len(text.split())))

    async def server_state(self) -> ServerState:
        return ServerState("m", "b1", "p1", self.asleep)

    async def slot_counts(self) -> list[SlotCount]:
        self.looks_at_slots += 1
        return self.slots

    async def prefill(
        self, prompt: Tokens, progressed: Callable[[PromptProgress], None], slot: int | None = None
    ) -> PrefillResult:
        raise failure(Trouble.REFUSED, Fault.TOLD, sentence="Not here.")
