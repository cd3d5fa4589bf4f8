"""The doctor at servers of other kinds, as far as their stand-ins are faithful: each gets its own flag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvchat.backends.identify import connect
from kvchat.doctor.examine import BUDGET, examine
from kvchat.doctor.report import DoctorReport, Severity, Topic
from kvchat.doctor.verdicts import report
from kvchat.doctor.words import headline
from standins.llamacpp_python import LlamaCppPythonStandIn
from standins.llamacpp_router import LlamaModel, RouterStandIn
from standins.mlxlm import MlxLmStandIn
from standins.ollama import OllamaStandIn, StandInModel
from standins.sglang import SglangStandIn
from standins.vllm import VllmStandIn
from toyserver import ToyServer, tokens

Made = Callable[[], Any]


async def reported(make: Made) -> DoctorReport:
    async with make() as server:
        made = report(await examine(await connect(server.url), agreed=True))
    assert made.complete, made.examination.failure
    assert len(made.examination.turns) == 6 and made.examination.spent_tokens <= BUDGET
    return made


@pytest.mark.parametrize(
    ("make", "topic", "flag"),
    [
        (lambda: SglangStandIn(context_size=32768), Topic.FIGURES, "--enable-cache-report"),
        (lambda: VllmStandIn(context_size=32768, counters=False), Topic.FIGURES, "--enable-prompt-tokens-details"),
        (lambda: VllmStandIn(context_size=2048, details=True), Topic.WINDOW, "--max-model-len"),
        (lambda: OllamaStandIn(), Topic.SIDE_REQUEST, "OLLAMA_NUM_PARALLEL=2"),
        (lambda: OllamaStandIn(), Topic.SLEEP, "OLLAMA_KEEP_ALIVE=-1"),
    ],
)
async def test_a_kind_gets_its_own_flag(make: Made, topic: Topic, flag: str) -> None:
    found = next(verdict for verdict in (await reported(make)).verdicts if verdict.topic is topic)
    assert flag in found.advice


@pytest.mark.parametrize(
    "make",
    [
        lambda: MlxLmStandIn(),
        lambda: SglangStandIn(cache_report=True, context_size=32768),
        lambda: VllmStandIn(details=True, context_size=32768),
    ],
)
async def test_servers_that_keep_what_they_read_and_say_so_are_well(make: Made) -> None:
    assert headline(await reported(make)) == "All is well."


async def test_a_model_that_runs_elsewhere_is_said_to_leave_this_machine() -> None:
    async with OllamaStandIn(StandInModel("big:latest", remote_host="https://ollama.com:443")) as server:
        assert "ollama.com" in (await examine(await connect(server.url))).question
        assert not server.turns


async def test_a_model_that_the_probe_loads_is_looked_at_once_it_is_loaded() -> None:
    async with RouterStandIn(LlamaModel("big", 2048), most=1) as server:
        backend = await connect(server.url)
        assert (await examine(backend)).question == "The model big is not loaded: the probe loads it."
        assert server.loads == [], "looking loads nothing"
        made = report(await examine(backend, agreed=True))
    found = made.examination
    assert server.loads == ["big"] and found.server is not None
    assert (found.server.model, found.window, found.server.slots) == ("big", 2048, 1)
    assert found.template is not None and found.held == (0,), "nothing of it was held before the probe"
    sleep = next(verdict for verdict in made.verdicts if verdict.topic is Topic.SLEEP)
    assert "and 1 is loaded" in sleep.sentence and "--models-max 2" in sleep.advice


async def test_a_model_that_takes_the_place_of_another_one_is_said_to() -> None:
    async with RouterStandIn(LlamaModel("big"), LlamaModel("small"), loaded=["small"], most=1) as server:
        question = (await examine(await connect(server.url), model="big")).question
    assert question.endswith("the probe loads it, and the server unloads another one for it, with all that it holds.")


async def test_a_loaded_model_of_a_router_with_room_takes_no_ones_place() -> None:
    async with RouterStandIn(LlamaModel("big"), LlamaModel("small"), loaded=["small"], most=4) as server:
        question = (await examine(await connect(server.url), model="big")).question
    assert question == "The model big is not loaded: the probe loads it."


async def test_a_server_that_does_not_end_where_it_is_asked_to_is_ended() -> None:
    async with ToyServer() as server:
        server.on_chat(tokens(*["w "] * 3000, prompt=100))
        found = await examine(await connect(server.url), agreed=True)
        assert found.spent_tokens <= BUDGET and server.posts == 1
    made = report(found)
    assert not made.well and "max_tokens" in made.of(Severity.PROBLEM)[0].sentence


async def test_a_server_that_counts_nothing_is_not_called_well() -> None:
    made = await reported(LlamaCppPythonStandIn)
    assert not made.of(Severity.PROBLEM) and headline(made).startswith("Nothing wrong was found")


@pytest.mark.parametrize(("loaded", "most"), [(["small"], 1), (["small"], 2), (["big", "small"], 2)])
async def test_a_named_model_of_a_router_is_examined_not_the_one_in_use(loaded: list[str], most: int) -> None:
    """It told the window, the slots and the template of the model in use, under the name of the other."""
    async with RouterStandIn(LlamaModel("small", 512), LlamaModel("big", 2048), loaded=loaded, most=most) as server:
        backend = await connect(server.url)
        assert backend.info.model == ("small" if len(loaded) == 1 else backend.info.model)
        other = "big" if backend.info.model == "small" else "small"
        made = report(await examine(backend, agreed=True, model=other))
        found = made.examination
        assert found.server is not None and found.server.model == other
        assert found.window == server.models[other].context_size
        assert {visit.json["model"] for visit in server.visits if visit.is_chat} == {other}
        assert backend.info.model != other, "what kvchat talks to stays as it was"


async def test_a_model_that_a_router_does_not_have_is_told_nothing_of() -> None:
    async with RouterStandIn(LlamaModel("small", 512), loaded=["small"]) as server:
        made = report(await examine(await connect(server.url), agreed=True, model="dense"))
        assert not server.loads
    assert made.examination.window is None
    assert "has no model dense. It has: small." in made.verdicts[0].sentence
