"""What is found out of an Ollama server: that it is one, its models, windows and templates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ollama_kit import Talk, connected

from kvchat.backends import identify
from kvchat.backends.dialects.ollama.backend import OllamaBackend
from kvchat.backends.dialects.ollama.models import facts_in, full_name, template_facts
from kvchat.backends.http.payload import Response
from kvchat.backends.kinds import Figures
from kvchat.backends.recognition import is_of
from kvchat.prompt.message import State
from standins.ollama import QWEN, OllamaStandIn, StandInModel
from toyserver import ToyServer, reply


def answers_of(server: OllamaStandIn, **answers: Response) -> dict[str, Response]:
    return {
        "/": Response(200, {}, b"Ollama is running"),
        "/api/version": Response(200, {}, json.dumps({"version": server.version}).encode()),
        **answers,
    }


async def test_the_server_is_recognised_by_its_answers() -> None:
    async with OllamaStandIn() as server, ToyServer("openai") as other, ToyServer() as third:
        found = [await identify.connect(each.url) for each in (server, other, third)]
        assert [backend.info.kind for backend in found] == ["ollama", "openai", "llama.cpp"]


async def test_identify_tells_models_window_and_what_the_template_does() -> None:
    async with OllamaStandIn(StandInModel("embed:latest", "bert", embeds=True), QWEN) as server:
        info = (await connected(server)).info
        assert (info.kind, info.build, info.model, info.context_size) == ("ollama", "0.32.0", "qwen3:8b", 8192)
        assert info.figures is Figures.ESTIMATED and info.unknown == ("slots",)
        assert "5 minutes" in info.unloads
        embed, qwen = info.listing
        assert not embed.chats
        assert (qwen.loaded, qwen.size, qwen.about) == (False, 5_200_000_000, "8.0B, Q4_K_M")
        assert (qwen.context_size, embed.context_size) == (8192, None)
        assert info.template is not None
        assert (info.template.date, info.template.drops_reasoning, info.template.system_role) == (False, True, True)


@pytest.mark.parametrize(
    ("model", "options", "size"),
    [
        (StandInModel(longest=2048), {}, 2048),
        (StandInModel(num_ctx=16384), {}, 16384),
        (StandInModel(), {"context_size": 20000}, 20000),
        (StandInModel(longest=2048), {"context_size": 20000}, 2048),
    ],
)
async def test_the_window_asked_for_is_the_window_told(model: StandInModel, options: dict[str, Any], size: int) -> None:
    async with OllamaStandIn(model) as server:
        backend = await connected(server, **options)
        await Talk(backend).ask("Hi")
        assert backend.info.context_size == server.turns[0].num_ctx == server.asked[0]["options"]["num_ctx"] == size


async def test_the_window_of_a_loaded_model_is_kept_even_when_it_is_unloaded_later() -> None:
    async with OllamaStandIn() as server:
        await Talk(await connected(server, context_size=12000)).ask("Hi")
        backend = await connected(server)
        assert backend.info.context_size == 12000 and backend.info.listing[0].loaded is True
        server.engine.unload()
        await backend.identify()
        assert backend.info.context_size == 12000 and backend.info.listing[0].loaded is False


async def test_an_old_server_without_ps_and_show_can_still_be_talked_to() -> None:
    async with OllamaStandIn() as server:
        real = server._answer_to
        gone = reply(404, b"404 page not found", content_type="text/plain")
        server._answer_to = lambda v: gone if v.path in ("/api/ps", "/api/show") else real(v)  # type: ignore
        backend = await connected(server)
        assert (backend.info.context_size, backend.info.listing[0].loaded, backend.info.template) == (8192, None, None)
        assert (await Talk(backend).ask("Hi")).state is State.DONE


def test_imitators_are_not_taken_for_ollama() -> None:
    server = OllamaStandIn()
    assert is_of(OllamaBackend.kind, answers_of(server))
    assert not is_of(OllamaBackend.kind, {})
    assert not is_of(
        OllamaBackend.kind,
        {"/": Response(200, {}, b"SGLang is running")} | {"/api/version": answers_of(server)["/api/version"]},
    )
    assert not is_of(OllamaBackend.kind, {"/": answers_of(server)["/"]})
    for path in ("/.well-known/localai.json", "/.well-known/serviceinfo", "/running", "/props", "/server_info"):
        assert not is_of(OllamaBackend.kind, answers_of(server, **{path: Response(200, {}, b"{}")})), path
        assert is_of(OllamaBackend.kind, answers_of(server, **{path: Response(404, {}, b"")})), path


@pytest.mark.parametrize("name", ["a", "a:1b", "lib/a", "host:5000/lib/a", "host:5000/lib/a:q4"])
def test_a_name_without_tag_is_the_latest(name: str) -> None:
    assert full_name(name) == (name if name.endswith((":1b", ":q4")) else f"{name}:latest")


def test_a_template_is_read_for_what_costs_the_cache() -> None:
    moved = "{{ range $i, $_ := .Messages }}{{ if and (eq (len (slice $.Messages $i)) 1) $.System }}{{ $.System }}"
    marked = "{{ if and $.IsThinkSet (eq $i $lastUserIdx) }}/think{{ end }}{{ .System }}"
    assert template_facts(moved).moves_system is True and template_facts(moved).keeps_prefix is False
    assert template_facts(marked).keeps_prefix is False and template_facts(marked).moves_system is False
    assert template_facts("{{ if .System }}{{ .System }}{{ end }}").moves_system is False
    assert template_facts("Today is {{ currentDate }}").date is True
    assert template_facts('{{ if eq .Role "user" }}{{ .Content }}{{ end }}').system_role is False
    assert (
        template_facts("{{ range .Messages }}{{ if .Thinking }}{{ .Thinking }}{{ end }}{{ end }}").drops_reasoning
        is False
    )
    assert template_facts("{% if m.role == 'system' %}{{ strftime_now('%d') }}{% endif %}").date is True
    assert facts_in({"template": "{{ .System }}", "renderer": "qwen3-coder"}).template is None
