"""Discovery over stand-ins of every kind of server: each is found as what it is, whatever port it has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from kvchat.backends import kinds
from kvchat.backends.discovery import FoundServer, discover
from kvchat.backends.identify import connect
from standins.jan import JanStandIn
from standins.koboldcpp import KoboldCppStandIn
from standins.litellm import LiteLLMStandIn
from standins.llamacpp_python import LlamaCppPythonStandIn
from standins.llamacpp_router import LlamaModel, RouterStandIn
from standins.llamafile import LlamafileStandIn
from standins.llamaswap import LlamaSwapStandIn
from standins.lmstudio import LMStudioStandIn
from standins.localai import LocalAIStandIn
from standins.mlxlm import MlxLmStandIn
from standins.ollama import OllamaStandIn
from standins.ollama_engine import QWEN
from standins.sglang import SglangStandIn
from standins.tabbyapi import TabbyAPIStandIn
from standins.textgen import TextGenStandIn
from standins.vllm import VllmStandIn
from toyserver import ToyServer

LONG = 20.0
"""Seconds that no test waits for."""

SERVERS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "llama.cpp": (lambda: ToyServer(model="toy", slots=2), {"model": "toy", "context_size": 4096, "slots": 2}),
    "llama.cpp router": (
        lambda: RouterStandIn(LlamaModel("a"), LlamaModel("b"), loaded=["b"]),
        {"kind": "llama.cpp", "model": "b", "loaded": ("b",)},
    ),
    "llamafile": (LlamafileStandIn, {"model": "toy"}),
    "llama-cpp-python": (LlamaCppPythonStandIn, {"model": "toy"}),
    "llama-swap": (
        lambda: LlamaSwapStandIn(LlamaModel("a"), LlamaModel("b"), ready="b"),
        {"model": "b", "loaded": ("b",), "context_size": 4096},
    ),
    "ollama": (lambda: OllamaStandIn(QWEN), {"model": "qwen3:8b", "loaded": ()}),
    "lmstudio": (LMStudioStandIn, {"model": "toy-8b", "loaded": ("toy-8b",)}),
    "vllm": (VllmStandIn, {"model": "toy", "context_size": 4096}),
    "sglang": (SglangStandIn, {"model": "toy", "context_size": 4096}),
    "mlx-lm": (MlxLmStandIn, {"model": "/models/toy"}),
    "koboldcpp": (KoboldCppStandIn, {"model": "koboldcpp/toy-8b", "context_size": 4096}),
    "tabbyapi": (TabbyAPIStandIn, {"phase": "needs a key", "model": ""}),
    "text-generation-webui": (TextGenStandIn, {"model": "toy-8b"}),
    "localai": (LocalAIStandIn, {}),
    "jan": (JanStandIn, {"model": "toy-8b"}),
    "litellm": (LiteLLMStandIn, {}),
    "openai": (lambda: ToyServer("openai", model="other"), {"model": "other"}),
}


def test_every_kind_has_its_place_in_recognition_and_a_server_here() -> None:
    served = {facts.get("kind", name) for name, (_, facts) in SERVERS.items()}
    assert served | {kinds.CLOUD} == set(kinds.RECOGNITION) == set(kinds.KINDS)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_of_each_kind_is_known_by_its_answers_without_a_post(name: str) -> None:
    make, facts = SERVERS[name]
    async with make() as server:
        (found,) = await discover([server.port], within=LONG)
        asked = [visit.path for visit in server.visits]
        assert [visit for visit in server.visits if visit.method != "GET"] == []
    assert len(asked) == len(set(asked)), "asked twice"
    expected = {"kind": name, "phase": "ready", **facts}
    assert {fact: getattr(found, fact) for fact in expected} == expected
    assert found.title == kinds.title_of(found.kind)


async def test_all_kinds_at_once_are_told_apart() -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(make()) for make, _ in SERVERS.values()]
        found: list[FoundServer] = await discover([server.port for server in servers], within=LONG)
    assert [server.kind for server in found] == [facts.get("kind", name) for name, (_, facts) in SERVERS.items()]


@pytest.mark.parametrize(
    "name", [name for name in SERVERS if name not in ("tabbyapi", "llama-cpp-python")]
)  # a key first; not described
async def test_what_is_found_is_what_connecting_finds(name: str) -> None:
    async with SERVERS[name][0]() as server:
        (found,) = await discover([server.port], within=LONG)
    async with SERVERS[name][0]() as server:
        info = (await connect(server.url)).info
    assert (found.kind, found.model, found.context_size, found.slots, [model.id for model in found.listing]) == (
        info.kind,
        info.model,
        info.context_size,
        info.slots,
        [model.id for model in info.listing],
    )
