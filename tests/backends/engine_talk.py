"""Conversations for the tests of engines with a prefix cache: turns that only append, what a request cost, and the
answers by which one engine is told from another: of the stand-ins, and recorded from real servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from backend_kit import Heard, endpoint_of

from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import ChatTurn, Ended, Reported, StreamEvent
from kvchat.backends.http.payload import Response, Responses
from kvchat.backends.recognition import is_of
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.prompt.wire import canonical
from kvchat.text.notes import note_sentence
from standins.blocks import EngineStandIn, Read
from standins.llamacpp_python import LlamaCppPythonStandIn
from standins.llamafile import LlamafileStandIn
from standins.mlxlm import MlxLmStandIn
from standins.sglang import SglangStandIn
from standins.vllm import VllmStandIn
from toyserver import ToyServer, raw

RECORDED = Path(__file__).parents[1] / "fixtures/servers"
SESSION = "0123456789abcdef0123456789abcdef"
SYSTEM = {"role": "system", "content": "You are a patient gardener who answers in short sentences ."}
ENGINES: dict[str, Callable[[], ToyServer]] = {
    "vllm": VllmStandIn,
    "vllm behind a proxy": lambda: VllmStandIn(only_api=True),
    "sglang": SglangStandIn,
    "mlx-lm": MlxLmStandIn,
    "llama-cpp-python": LlamaCppPythonStandIn,
    "llamafile, old": LlamafileStandIn,
    "llamafile, new": lambda: LlamafileStandIn(is_new=True),
    "llama.cpp": ToyServer,
    "openai": lambda: ToyServer("openai"),
}
PATHS = {
    "/v1/models": "v1-models",
    "/version": "version",
    "/": "root",
    "/health": "health",
    "/props": "props",
    "/extras/tokenize/count": "extras-tokenize-count",
    "/server_info": "server_info",
}
"""What is asked, and how its recordings are named."""


class Talk:
    """A conversation with a backend. `reported` are the figures of its turns."""

    def __init__(self, backend: HttpBackend, session: str = SESSION) -> None:
        self.backend = backend
        self.session = session
        self.wires = [canonical(SYSTEM)]
        self.reported: list[Reported] = []
        self.heard = Heard()

    def turn(self, **options: Any) -> ChatTurn:
        parameters = options.pop("parameters", None) or Parameters(temperature=0.0)
        return ChatTurn(tuple(self.wires), self.session, self.backend.info.model, parameters, **options)

    async def ask(self, text: str, **options: Any) -> Ended:
        """Send a question; the reply is appended as it was received."""
        self.wires.append(canonical({"role": "user", "content": text}))
        self.heard = Heard()
        ended = await self.backend.chat(self.turn(**options), self.heard)
        self.reported.append(self.heard.reported)
        if self.heard.text:
            self.wires.append(canonical({"role": "assistant", "content": self.heard.text}))
        return ended

    async def stopped(self, text: str, words: int) -> None:
        """Ask, and stop the answer when so many words have come; they stay, as a stopped answer does."""
        self.wires.append(canonical({"role": "user", "content": text}))
        heard = self.heard = Heard()
        enough = asyncio.Event()

        def emit(event: StreamEvent) -> None:
            heard(event)
            if len(heard.text.split()) >= words:
                enough.set()

        task = asyncio.create_task(self.backend.chat(self.turn(), emit))
        async with asyncio.timeout(120):
            await enough.wait()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        self.wires.append(canonical({"role": "assistant", "content": heard.text}))

    async def ten_turns(self) -> None:
        for number in range(10):
            ended = await self.ask(f"What about plant number {number} in my garden ?")
            assert ended.state is State.DONE, note_sentence(ended.note)


async def talk_with(server: EngineStandIn, dialect: type[HttpBackend], **options: Any) -> Talk:
    """A conversation with an identified server."""
    backend = dialect(endpoint_of(server, **options))
    await backend.identify()
    return Talk(backend)


def assert_only_new_was_read(reads: list[Read], slack: int) -> None:
    """Each turn after the first evaluated what was new in it, and at most `slack` tokens more."""
    assert len(reads) == 10
    for before, now in pairwise(reads):
        new = now.prompt - before.prompt - before.predicted
        assert new <= now.evaluated <= new + slack


async def recognised_by(dialect: type[HttpBackend]) -> set[str]:
    """The engines that are taken for the kind of a class, by the answers of stand-ins and by recorded ones."""
    found = {name for name in recordings() if is_of(dialect.kind, recorded_answers(name))}
    for name, start in ENGINES.items():
        async with start() as server:
            if is_of(dialect.kind, await HttpBackend(endpoint_of(server)).asked(PATHS)):
                found.add(name)
    return found


def recordings() -> list[str]:
    return [folder.name for folder in RECORDED.iterdir() if (folder / "get-v1-models.http").exists()]


def recorded_answers(server: str) -> Responses:
    """What a real server said when it was asked what it is."""
    found = {path: RECORDED / server / f"get-{name}.http" for path, name in PATHS.items()}
    return {path: _response(file.read_bytes()) for path, file in found.items() if file.exists()}


def _response(data: bytes) -> Response:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Response(int(first.split()[1]), headers, body)


async def replayed(dialect: type[HttpBackend], server: str, name: str) -> tuple[Ended, Heard]:
    """How an answer that was recorded from a real server is read."""
    heard = Heard()
    async with ToyServer("openai") as toy:
        toy.on_chat(raw((RECORDED / server / f"{name}.http").read_bytes()))
        backend = dialect(endpoint_of(toy))
        ended = await backend.chat(ChatTurn((canonical({"role": "user", "content": "Hi"}),), SESSION, "toy"), heard)
    return ended, heard


def fields_of(body: bytes) -> list[str]:
    """The names of a body's fields, in their order."""
    return list(json.loads(body))
