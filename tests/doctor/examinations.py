"""Examinations as data: a healthy one, and what is changed in it."""

from __future__ import annotations

from typing import Any

from kvchat.backends.dialect import HostClass, ServerInfo, TemplateFacts
from kvchat.backends.kinds import Figures
from kvchat.doctor.report import Examination, ProbeTurn, Step, Topic, Verdict
from kvchat.doctor.verdicts import verdicts
from kvchat.figures.accounting import TurnFigures

WELL_TEMPLATE = TemplateFacts(False, False, True, False, False, True)
PROMPTS = {Step.FIRST: 40, Step.ONE: 340, Step.TWO: 390, Step.THREE: 440, Step.SIDE: 42, Step.AFTER_SIDE: 490}
"""Prompt tokens of each step; each answer has 16, each further question 34."""


def a_server(kind: str = "llama.cpp", **changes: Any) -> ServerInfo:
    known: dict[str, Any] = {"model": "m", "context_size": 16384, "slots": 1, "figures": Figures.BEFORE, "build": "b1"}
    return ServerInfo(kind, "http://127.0.0.1:8080", changes.pop("host_class", HostClass.LOOPBACK), **(known | changes))


def probe(
    cached: dict[Step, int | None] | None = None, speed: float = 100.0, ttft: dict[Step, float] | None = None
) -> list[ProbeTurn]:
    """The turns of a probe. `cached`: where it is not all that was there before; `speed`: tokens per second."""
    made = []
    for step, prompt in PROMPTS.items():
        grown = step not in (Step.FIRST, Step.ONE, Step.SIDE)
        hit = (cached or {}).get(step, prompt - 35 if grown else 0)
        ms = None if hit is None else (prompt - hit) / speed * 1000
        new = 34 if grown else prompt
        first = (ttft or {}).get(step, ms)
        made.append(ProbeTurn(step, TurnFigures(prompt, hit, 16, new, first, ms, 800.0)))
    return made


def an_examination(**changes: Any) -> Examination:
    server = changes.pop("server", a_server())
    known: dict[str, Any] = {
        "template": WELL_TEMPLATE,
        "held": (0,),
        "replicas": 1,
        "turns": probe(),
        "spent_tokens": 700,
        "seconds": 7.0,
        "trained_context": 32768,
    }
    return Examination(server.base_url, server, **(known | changes))


def about(topic: Topic, **changes: Any) -> Verdict:
    """The one verdict of an examination that is about `topic`."""
    return one(verdicts(an_examination(**changes)), topic)


def one(made: list[Verdict], topic: Topic) -> Verdict:
    found = [verdict for verdict in made if verdict.topic is topic]
    assert len(found) == 1, f"{len(found)} verdicts about {topic}: {made}"
    return found[0]
