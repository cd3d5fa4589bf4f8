"""What servers list: sizes that are told, names that are looked up, and where a model's text goes."""

from __future__ import annotations

from typing import Any

import pytest
from backend_kit import endpoint_of, llamacpp_at, openai_at
from msgspec.structs import replace

from corpus import corpus
from kvchat.backends.dialect import HostClass, ServerInfo
from kvchat.backends.dialects.ollama.backend import OllamaBackend
from kvchat.backends.dialects.ollama.models import entries_in
from kvchat.backends.dialects.rare import JanBackend, LiteLLMBackend
from kvchat.backends.http.endpoint import ResolvedServer
from kvchat.backends.http.payload import Model, models_in
from kvchat.backends.kinds import OPENAI
from standins.jan import JanStandIn
from standins.litellm import LiteLLMStandIn
from standins.ollama import OllamaStandIn, StandInModel
from toyserver import ToyServer, reply

AWAY = "https://ollama.com:443"


def info_of(kind: str, *listing: Model, model: str = "") -> ServerInfo:
    return ServerInfo(kind, "http://127.0.0.1:1", HostClass.LOOPBACK, model, listing, context_size=7)


@pytest.mark.parametrize(
    "size",
    [
        {"meta": {"n_ctx": 0}},
        {"max_model_len": 0},
        {"context_length": 0},
        {"meta": {"n_ctx": 0}, "context_length": 0},
        {},
    ],
)
def test_a_size_of_0_is_not_known(size: dict[str, Any]) -> None:
    (model,) = models_in({"data": [{"id": "m", **size}]}).all
    assert model.context_size is None


async def test_a_proxy_that_tells_a_size_of_0_does_not_know_it() -> None:
    async with LiteLLMStandIn() as server:
        server._get = _without_sizes(server._get)  # type: ignore[method-assign]
        info = await LiteLLMBackend(endpoint_of(server)).identify()
    assert info.context_size is None and "context size" in info.unknown


def _without_sizes(get: Any) -> Any:
    groups = [{"model_group": "chat", "mode": "chat", "max_input_tokens": 0}]
    return lambda path: reply(200, {"data": groups}) if path == "/model_group/info" else get(path)


@pytest.mark.parametrize(
    ("providers", "base", "goes_to"),
    [
        (["anthropic"], None, "anthropic"),
        (["openai"], None, "openai"),
        (["openai"], "https://api.openai.com/v1", "openai"),
        (["openai"], "http://127.0.0.1:8080/v1", ""),
        (["openai"], "http://llama:8080", ""),
        (["openai"], "no address", "openai"),
        (["ollama", "openrouter"], None, "openrouter"),
        (["hosted_vllm"], None, ""),
        ([], None, ""),
        (None, None, ""),
    ],
)
async def test_litellm_tells_which_models_leave(providers: object, base: str | None, goes_to: str) -> None:
    async with LiteLLMStandIn() as server:
        get = server._get
        group = {"model_group": "chat", "mode": "chat", "providers": providers}
        deployment = {"model_name": "chat", "litellm_params": {"model": "x", **({"api_base": base} if base else {})}}
        told = {"/model_group/info": group, "/model/info": deployment}
        server._get = lambda path: reply(200, {"data": [told[path]]}) if path in told else get(path)  # type: ignore[method-assign]
        info = await LiteLLMBackend(endpoint_of(server)).identify()
    assert info.remote_of("chat") == goes_to


def test_a_peer_of_llama_swap_is_another_machine() -> None:
    peer = {"id": "far", "owned_by": "llama-swap", "meta": {"llamaswap": {"peerID": "openrouter"}}}
    far, near = models_in({"data": [peer, {"id": "near", "meta": {"llamaswap": {"other": 1}}}]}).all
    assert "openrouter" in far.remote and not near.remote


@pytest.mark.parametrize(
    ("entry", "is_far"),
    [
        ({"name": "big:120b", "size": 384, "remote_host": "https://ollama.com:443"}, True),
        ({"name": "big:120b", "size": 384, "remote_model": "big:120b"}, True),
        ({"name": "big:120b-cloud", "size": 384}, True),
        ({"name": "big:cloud"}, True),
        ({"name": "my-cloud:latest", "size": 4_000_000_000}, False),
        ({"name": "weather-cloud", "size": 4_000_000_000}, False),
    ],
)
def test_ollama_tells_which_models_leave(entry: dict[str, Any], is_far: bool) -> None:
    (found,) = entries_in({"models": [entry]}, {})
    assert bool(found.model.remote) == is_far


def test_a_name_of_ollamas_cloud_leaves_though_it_is_not_listed() -> None:
    info = info_of("ollama", Model("small:latest"))
    assert info.remote_of("gpt-oss:120b-cloud") == info.remote_of("glm-4.6:cloud") == "https://ollama.com:443"
    assert not info.remote_of("small") and not info.remote_of("other:7b")
    assert not info_of(OPENAI, Model("small")).remote_of("big-cloud")


def test_the_owner_of_a_model_can_be_stored() -> None:
    (model,) = models_in({"data": [{"id": "m", "owned_by": "a\ud800b"}]}).all
    assert model.owner.encode().decode() == model.owner


@pytest.mark.parametrize(
    ("kind", "asked", "found"),
    [
        ("ollama", "big", "big:latest"),
        ("ollama", "big:latest", "big:latest"),
        ("ollama", "big:1b", None),
        ("ollama", "hub/big", None),
        ("ollama", "", None),
        (OPENAI, "big", None),
        (OPENAI, "big:latest", "big:latest"),
    ],
)
def test_only_ollama_lets_the_tag_be_left_out(kind: str, asked: str, found: str | None) -> None:
    info = info_of(kind, Model("small:latest"), Model("big:latest", context_size=99))
    known = info.known(asked)
    assert (known.id if known else None) == found
    assert info.window(asked) == (99 if found else 7)


@pytest.mark.parametrize("asked", ["big", "big:latest"])
async def test_a_model_that_runs_elsewhere_is_known_by_each_of_its_names(asked: str) -> None:
    async with OllamaStandIn(StandInModel(), StandInModel("big:latest", remote_host=AWAY)) as server:
        info = await OllamaBackend(endpoint_of(server)).identify()
    assert info.remote_of(asked) == AWAY and not info.remote_of("") and not info.remote_of(info.model)
    assert replace(info, model=asked).remote_of("") == AWAY


async def test_a_model_that_jan_does_not_list_may_leave_the_machine() -> None:
    async with JanStandIn(remote=("gpt-9",)) as server:
        info = await JanBackend(endpoint_of(server)).identify()
    assert info.remote_of("gpt-9") == info.remote_of("gpt-5") != ""
    assert not info.remote_of("toy-8b") and not info.remote_of("") and not info.remote_of("on-disk-4b")
    assert not info_of("jan").remote_of("gpt-5") and not info_of(OPENAI, Model("a")).remote_of("gpt-5")


async def test_a_server_is_at_the_place_of_another_when_both_go_to_the_same_addresses() -> None:
    async with ToyServer() as server, ToyServer() as other:
        one = llamacpp_at(server)
        assert one.goal == openai_at(server).goal and one.goal != llamacpp_at(other).goal
        moved = replace(endpoint_of(server), place=ResolvedServer(HostClass.LOOPBACK, ("127.0.0.2",)))
        assert one.goal != OllamaBackend(moved).goal


# -- which one is talked to when none is named


def listed(**states: Any) -> dict[str, Any]:
    return {"data": [{"id": id, "status": state} for id, state in states.items()]}


FAILED = {"value": "unloaded", "failed": True, "exit_code": 1}


@corpus(
    ("listing", "chosen"),
    [
        (listed(a={"value": "unloaded"}, b={"value": "loaded"}), "b"),
        (listed(a={"value": "unloaded"}, b={"value": "sleeping"}), "b"),
        (listed(a={"value": "sleeping"}, b={"value": "loaded"}), "b"),
        (listed(a={"value": "loading"}, b={"value": "sleeping"}), "b"),
        (listed(a={"value": "unloaded"}, b={"value": "loading"}), "b"),
        (listed(a=FAILED, b={"value": "unloaded"}), "b"),
        (listed(a=FAILED, b={"value": "of a later version"}), "b"),
        (listed(a=FAILED), "a"),
        (listed(a="failed", b="unloaded"), "b"),
        (listed(a="STOPPED", b="Ready"), "b"),
        ({"data": [{"id": "a", "state": "not-loaded"}, {"id": "b", "state": "loaded"}]}, "b"),
        (listed(a=None, b=7, c=["loaded"]), "a"),
    ],
)
def test_a_model_that_is_there_comes_before_one_that_is_loaded_for_it(listing: Any, chosen: str) -> None:
    found = models_in(listing).chosen
    assert found is not None and found.id == chosen


OTHERS = [
    {"id": "nomic-embed-text-v1.5"},
    {"id": "bge-m3"},
    {"id": "BAAI/bge-reranker-v2"},
    {"id": "intfloat/e5-small"},
    {"id": "whisper-large-v3"},
    {"id": "kokoro-82m"},
    {"id": "qwen3-tts"},
    {"id": "stable-diffusion-xl"},
    {"id": "flux.1-dev"},
    {"id": "sd-turbo"},
    {"id": "dall-e-3"},
    {"id": "all-minilm"},
    {"id": "x", "type": "embeddings"},
    {"id": "x", "type": "embedding"},
    {"id": "x", "mode": "image_generation"},
    {"id": "x", "mode": "audio_transcription"},
    {"id": "x", "model_type": "rerank"},
    {"id": "x", "pipeline_tag": "text-to-image"},
    {"id": "x", "task": "automatic-speech-recognition"},
    {"id": "x", "capabilities": ["embedding"]},
    {"id": "x", "capabilities": ["image"]},
    {"id": "x", "capabilities": {"completion_chat": False}},
    {"id": "x", "architecture": {"output_modalities": ["decisions"]}},
    {"id": "x", "output_modalities": ["audio"]},
]


@corpus("other", OTHERS)
def test_a_model_that_draws_hears_ranks_or_embeds_is_not_the_first_choice(other: dict[str, Any]) -> None:
    loaded = {**other, "status": {"value": "loaded"}}
    found = models_in({"data": [loaded, {"id": "qwen3-8b", "status": {"value": "unloaded"}}]}).chosen
    assert found is not None and found.id == "qwen3-8b"


@corpus(
    "entry",
    [
        {"type": "llm"},
        {"type": "vlm"},
        {"mode": "chat"},
        {"model_type": "LLM"},
        {"pipeline_tag": "image-text-to-text"},
        {"task": "text-generation"},
        {"capabilities": ["completion", "image"]},
        {"capabilities": ["vision", "audio"]},
        {"capabilities": {"completion_chat": True}},
        {"type": "model"},
        {"type": None, "capabilities": []},
    ],
)
def test_a_model_that_chats_is_one(entry: dict[str, Any]) -> None:
    (model,) = models_in({"data": [{"id": "m", **entry}]}).all
    assert model.chats


def test_names_that_chat_are_not_taken_for_others() -> None:
    for name in ("llama-3.2-3b", "albert-chat", "fluxion-8b", "gemma-3-4b", "qwen2.5-coder", "tinybark", "SmolLM2"):
        found = models_in({"data": [{"id": name}, {"id": "zzz"}]}).chosen
        assert found is not None and found.id == name


@corpus("odd", [{"id": 5}, {"id": None}, {"id": ""}, {}, None, 7, ["a"], {"id": {"a": 1}}])
def test_an_odd_entry_costs_no_other_one(odd: Any) -> None:
    assert models_in({"data": [odd, {"id": "a"}, odd]}).ids == ("a",)


def test_a_model_is_listed_once_and_by_any_of_its_names() -> None:
    assert models_in({"data": [{"id": "a"}, {"id": "b"}, {"id": "a"}]}).ids == ("a", "b")
    assert models_in(["a", {"name": "b"}, {"model": "c"}]).ids == ("a", "b", "c")
    assert models_in({"object": "list", "data": None, "models": [{"name": "a"}]}).ids == ("a",)
