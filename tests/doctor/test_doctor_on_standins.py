"""The doctor at servers of other kinds, as far as their stand-ins are faithful: each gets its own flag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvchat.backends.identify import connect
from kvchat.doctor.examine import BUDGET, examine
from kvchat.doctor.report import Report, Severity, Topic
from kvchat.doctor.verdicts import report
from kvchat.doctor.words import headline
from standins.llamacpp_python import LlamaCppPythonStandIn
from standins.mlxlm import MlxLmStandIn
from standins.ollama import OllamaStandIn
from standins.sglang import SglangStandIn
from standins.vllm import VllmStandIn

Made = Callable[[], Any]


async def reported(make: Made) -> Report:
    async with make() as server:
        made = report(await examine(await connect(server.url), agreed=True))
    assert made.complete, made.examination.failure
    assert len(made.examination.turns) == 6 and made.examination.spent_tokens <= BUDGET
    return made


@pytest.mark.parametrize(("make", "topic", "flag"), [
    (lambda: SglangStandIn(context_size=32768), Topic.FIGURES, "--enable-cache-report"),
    (lambda: VllmStandIn(context_size=32768, counters=False), Topic.FIGURES, "--enable-prompt-tokens-details"),
    (lambda: VllmStandIn(context_size=2048, details=True), Topic.WINDOW, "--max-model-len"),
    (lambda: OllamaStandIn(), Topic.SIDE_REQUEST, "OLLAMA_NUM_PARALLEL=2"),
    (lambda: OllamaStandIn(), Topic.SLEEP, "OLLAMA_KEEP_ALIVE=-1"),
])
async def test_a_kind_gets_its_own_flag(make: Made, topic: Topic, flag: str) -> None:
    found = next(verdict for verdict in (await reported(make)).verdicts if verdict.topic is topic)
    assert flag in found.advice


@pytest.mark.parametrize("make", [lambda: MlxLmStandIn(), lambda: SglangStandIn(cache_report=True, context_size=32768),
                                  lambda: VllmStandIn(details=True, context_size=32768)])
async def test_servers_that_keep_what_they_read_and_say_so_are_well(make: Made) -> None:
    assert headline(await reported(make)) == "All is well."


async def test_a_server_that_counts_nothing_is_not_called_well() -> None:
    made = await reported(LlamaCppPythonStandIn)
    assert not made.of(Severity.PROBLEM) and headline(made).startswith("Nothing wrong was found")
