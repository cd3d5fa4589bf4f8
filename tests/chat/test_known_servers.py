"""What is kept of servers over restarts: fields that they refuse, and their kinds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvchat.backends.dialect import Backend
from kvchat.backends.discovery import FoundServer, discover
from kvchat.chat.question import Question
from kvchat.chat.server import connection
from kvchat.chat.server.connection import Connector
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.message import State
from kvchat.store import Store
from toyserver import Answer, ToyServer, error, reply, tokens

FIELD = "session_id"


async def asked(folder: Path, server: ToyServer) -> str:
    """A run of kvchat that asks one question; what the server is taken for."""
    settings = changed(changed(Settings(), "server.base_url", server.url), "cache.warm_up", False)
    service = ChatService(Store.open(folder), settings)
    try:
        conversation = await service.new_conversations.create(reuse=False)
        await service.turns.send(conversation.id, Question("How many nights?"))
        await service.conversations.wait(conversation.id)
        answer = service.conversations.load(conversation.id).path()[-1]
        assert answer.state is State.DONE
        info = service.servers.link(conversation.id).info
        assert info is not None
        return info.kind
    finally:
        await service.aclose()


def bodies(server: ToyServer) -> list[set[str]]:
    return [set(json.loads(visit.body)) for visit in server.visits if visit.is_chat]


@pytest.mark.parametrize(
    "refusal",
    [
        reply(422, {"detail": f"Unexpected keys in the request: {{'{FIELD}'}}"}),  # transformers serve
        reply(422, {"detail": [{"type": "extra_forbidden", "loc": ["body", FIELD], "msg": "not permitted"}]}),
        error(400, f"Unrecognized request argument supplied: {FIELD}"),
    ],
)
async def test_a_field_that_a_server_refused_is_not_sent_after_a_restart(tmp_path: Path, refusal: Answer) -> None:
    """Each run sent it once more, and each first answer of a run waited for the refusal."""
    async with ToyServer() as server:
        server.on_chat(refusal, tokens("Ten"), tokens("Ten"), tokens("Ten"))
        for _ in range(3):
            await asked(tmp_path, server)
        first, *later = bodies(server)
        assert FIELD in first and later == [first - {FIELD}] * 3


async def test_another_kind_of_server_at_the_address_is_sent_it_again(tmp_path: Path) -> None:
    async with ToyServer() as server:
        server.on_chat(error(422, f"Unknown field: {FIELD}"), tokens("Ten"))
        assert await asked(tmp_path, server) == "llama.cpp"
        server.on("/props", reply(404))
        server.on("/v1/models", reply(200, {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 4096}]}))
        server.on("/version", reply(200, {"version": "0.33.0"}))
        server.on_chat(tokens("Ten"))
        assert await asked(tmp_path, server) == "vllm"
        assert FIELD in bodies(server)[-1]


@pytest.mark.parametrize("empty", [{"object": "list", "data": []}, {"data": None}, []])
async def test_a_server_known_by_its_models_is_still_the_same_while_it_has_none(tmp_path: Path, empty: object) -> None:
    async with ToyServer("openai") as server:
        server.on("/v1/models", reply(200, {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 4096}]}))
        server.on_chat(tokens("Ten"), tokens("Ten"))
        assert await asked(tmp_path, server) == "vllm"
        server.on("/v1/models", reply(200, empty))
        assert await asked(tmp_path, server) == "vllm"


def without_a_model(server: ToyServer) -> ToyServer:
    """An Ollama as it was just installed."""
    server.on("/", reply(200, b"Ollama is running", content_type="text/plain"))
    server.on("/api/version", reply(200, {"version": "0.33.3"}))
    server.on("/api/ps", reply(200, {"models": []}))
    server.on("/api/tags", reply(200, {"models": []}))
    server.on("/v1/models", reply(200, {"object": "list", "data": None}))
    return server


@pytest.mark.parametrize("beside", ["a server", "a model file", "nothing"])
async def test_a_server_without_a_model_is_the_last_resort(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beside: str
) -> None:
    """An Ollama without a model was chosen before the built-in engine, and the first question failed."""
    file = tmp_path / "small.gguf"
    async with ToyServer("openai") as bare, ToyServer("openai", model="m") as other:
        ports = [without_a_model(bare).port, *([other.port] if beside == "a server" else [])]
        found = await discover(ports, within=20.0)
        started: list[Path] = []

        async def found_here() -> list[FoundServer]:
            return sorted(found, key=lambda server: server.base_url != bare.url)

        async def start(self: Connector, path: Path) -> Backend:
            started.append(path)
            return await self._reached(other.url)

        monkeypatch.setattr(connection, "found_here", found_here)
        monkeypatch.setattr(connection, "default_model_file", lambda: file if beside == "a model file" else None)
        monkeypatch.setattr(Connector, "_started", start)
        connector = Connector(Settings(), lambda: None)
        try:
            info = (await connector.ready()).info
        finally:
            await connector.aclose()
    assert started == ([file] if beside == "a model file" else [])
    assert (info.kind, info.base_url) == (("ollama", bare.url) if beside == "nothing" else ("openai", other.url))
