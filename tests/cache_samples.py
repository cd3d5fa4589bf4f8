"""A cache report to show, and the figures of a turn."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kvchat.cache.causes.cause import Divergence, Finding, Reason, Remedy
from kvchat.cache.llamacpp.planner import Plan, PlannedWay, Way
from kvchat.figures.accounting import TurnFigures, totals
from kvchat.figures.cause import Cause
from kvchat.figures.speed import SpeedFit
from kvchat.reports.cache_report import CacheReport, HeldState, Ledger, MessageCells, TurnReport, WarmupTotals
from kvchat.reports.warmth import Heat, Warmth
from kvchat.values import said


def figures(prompt: int, cached: int, new: int, *, predicted: int = 20, ttft: float = 140) -> TurnFigures:
    return TurnFigures(prompt, cached, predicted, new, ttft, max(1, prompt - cached) * 3, predicted * 17, 8192)


def a_report(now: float, **changes: Any) -> CacheReport:
    """A conversation of four turns seen at `now` (seconds since the epoch); in the third another client took the slot."""
    costs = [
        figures(1848, 0, 1848, ttft=5280),
        figures(1916, 1868, 48),
        replace(figures(2000, 613, 64), predicted_cached=1936, cause=str(Cause.OTHER_CLIENT)),
        replace(figures(2100, 2019, 80), predicted_cached=2019),
    ]
    parted = Divergence(613, 1, "You are a title generator.", "How many nights did the lamp turn?")
    taken = Finding(
        Cause.OTHER_CLIENT,
        1323,
        said(Reason.FOREIGN_SLOT, slot=0, tokens=318),
        said(Remedy.MORE_SLOTS, flag="--parallel 2", embedded=False),
        parted,
    )
    questions = (
        "How many nights did the lamp turn?",
        "Which was the longest?",
        "What did it cost in oil?",
        "And wicks?",
    )
    report = CacheReport(
        "5e55" * 8,
        "lighthouse log",
        Warmth(Heat.WARM, 2119, 1, now - 250),
        messages=(
            MessageCells("s", "system", "You are the keeper of a lighthouse.", 1810, 1810, 0, 0),
            MessageCells("q1", "user", questions[0], 38, 38, 0, 0),
            MessageCells("a1", "assistant", "Twenty-six nights, from night 34 to night 59.", 171, 171, 0, 0),
            MessageCells("q2", "user", questions[3], 81, 0, 80, 1),
        ),
        turns=tuple(TurnReport(q, c, taken if c.cause else None) for q, c in zip(questions, costs, strict=True)),
        states=(
            HeldState("slot 0", "lighthouse log", 2119, now - 250),
            HeldState("slot 1", "weather", 2101, now - 4000),
            HeldState("parked", "", 1930),
        ),
        exact=True,
        predictions=43,
        exact_predictions=41,
        plan=Plan(
            PlannedWay(Way.AS_IS, 81),
            (PlannedWay(Way.AS_IS, 81), PlannedWay(Way.PIN, 81, 0), PlannedWay(Way.DETOUR, 113)),
        ),
        speed=SpeedFit(1 / 350, (1 / 290 - 1 / 350) / 4096, 12, 5000),
        rules="A request goes to the slot that shares at least a tenth of its prompt, else to the oldest.",
        here=Ledger(totals(costs), {"other_client": (1, 1323)}, WarmupTotals(2, 1204, 3.1)),
        week=Ledger(
            totals([figures(54_324, 48_201, 1_700)]),
            {"restarted": (2, 3100), "other_client": (1, 1323)},
            WarmupTotals(9, 8120, 21.4),
        ),
    )
    return replace(report, **changes)
