"""The service behind a router with two real replicas, and who read how much of which conversation."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
from passthrough import Passthrough
from routers import Router, routing

from kvchat.backends.dialect import SESSION_HEADERS
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import ServerSettings, Settings
from kvchat.prompt.request import Parameters
from kvchat.store import Store
from tiny_server import tiny_server

WORDS = ("the", "sea", "is", "wide", "and", "old", "boats", "drift", "under", "a", "pale", "moon", "while", "rain")
KEY_VARIABLE = "KVCHAT_TEST_ROUTER_KEY"
MANY = 40
"""Conversations that are tried until two are on different replicas."""


@contextmanager
def two_servers(model: Path, **options: object) -> Iterator[list[str]]:
    """Two real servers; each holds one conversation, and nothing besides, unless told otherwise."""
    chosen: dict[str, object] = {"n_parallel": 1, "n_ctx": 4096, "kv_unified": False, "cache_ram_mib": 0} | options
    with ExitStack() as stack:
        yield [stack.enter_context(tiny_server(model, **chosen)) for _ in range(2)]


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer, as the replica that gave it reports it."""

    replica: int
    new: int
    """Tokens that the branch did not have after its last answer."""
    evaluated: int
    whole: int
    """Tokens of the whole prompt."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A router with its replicas."""

    url: str
    replicas: Sequence[Passthrough]
    router: Router
    word: int
    """The token that every answer is made of, so that conversations are the same in every run."""

    def settings(self, server: ServerSettings | None = None) -> Settings:
        server = replace(server or ServerSettings(), base_url=self.url)
        if self.router.key:
            server = replace(server, api_key_env=KEY_VARIABLE)
        parameters = Parameters(temperature=0.0, max_tokens=12, extra={"logit_bias": {str(self.word): 100}})
        return replace(Settings(), server=server, parameters=parameters)

    async def replica_of(self, session: str) -> int:
        """The replica to which the router sends this session: one tiny chat request finds out."""
        before = [len(replica.passed) for replica in self.replicas]
        headers = dict.fromkeys(SESSION_HEADERS, session)
        if self.router.key:
            headers["authorization"] = f"Bearer {self.router.key}"
        async with httpx.AsyncClient(trust_env=False, headers=headers, timeout=120) as client:
            (model, *_) = (await client.get(f"{self.url}/v1/models")).json()["data"]
            answer = await client.post(
                f"{self.url}/v1/chat/completions",
                json={
                    "model": model["id"],
                    "max_tokens": 1,
                    "messages": [{"role": "user", "content": "Who is there?"}],
                },
            )
            answer.raise_for_status()
        return next(
            number
            for number, replica in enumerate(self.replicas)
            if any(passed.is_chat for passed in replica.passed[before[number] :])
        )

    def turns(self, mark: str) -> list[Turn]:
        """The answers to the conversation whose instructions hold `mark`, in their order."""
        found = []
        for number, replica in enumerate(self.replicas):
            for passed in replica.passed:
                if passed.is_chat and mark in str(passed.json["messages"][0]["content"]):
                    timings = passed.timings
                    assert timings is not None, passed
                    found.append((timings["prompt_n"] + timings["cache_n"], timings, number))
        turns, before = [], 0
        for whole, timings, number in sorted(found, key=lambda item: item[0]):
            turns.append(Turn(number, whole - before, timings["prompt_n"], whole))
            before = whole + timings["predicted_n"]
        return turns


@asynccontextmanager
async def cluster(router: Router, servers: Sequence[str], folder: Path) -> AsyncIterator[Cluster]:
    """`router` before these servers, each behind a passthrough that writes down what comes."""
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(Passthrough(url)) for url in servers]
        url = await stack.enter_async_context(routing(router, [replica.url for replica in replicas], folder))
        async with httpx.AsyncClient(trust_env=False) as client:
            word = (await client.post(f"{servers[0]}/tokenize", json={"content": " the"})).json()["tokens"][0]
        yield Cluster(url, replicas, router, word)


@asynccontextmanager
async def service_on(settings: Settings, folder: Path) -> AsyncIterator[ChatService]:
    service = ChatService(Store.open(folder), settings)
    try:
        await service.servers.connect()
        yield service
    finally:
        await service.aclose()


def instructions(mark: str) -> str:
    """A system prompt that begins unlike any other."""
    chance = random.Random(mark)
    return f"{mark}: " + " ".join(chance.choice(WORDS) for _ in range(80))


async def apart(service: ChatService, here: Cluster, marks: Sequence[str]) -> list[str]:
    """Conversations, one for each mark, that the router sends to different replicas."""
    found: dict[int, str] = {}
    for _ in range(MANY):
        id = (await service.new_conversations.create(instructions(marks[len(found)]), reuse=False)).id
        found.setdefault(await here.replica_of(id), id)
        if len(found) == len(marks):
            return list(found.values())
    raise AssertionError(f"{here.router.name} sends {MANY} sessions to one replica")


async def alternate(service: ChatService, ids: Sequence[str], rounds: int) -> None:
    """Ask each conversation in every round, the first of one round being the last of the next."""
    for number in range(rounds):
        for id in ids if number % 2 else reversed(ids):
            chance = random.Random(f"{id in ids[:1]} {number}")
            words = " ".join(chance.choice(WORDS) for _ in range(chance.choice((20, 30, 40))))
            await service.turns.send(id, Question(f"Question {number}: {words}?"))
            await service.conversations.wait(id)
