"""What the cache did over some days: the sums that `kvchat stats` shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from kvchat.cache.accounting import SideTotals, Totals, TurnFigures, WarmupTotals, misses, sum_of, totals
from kvchat.cache.speed import SpeedFit

Served = tuple[str, str]
"""A server's place and a model."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer's figures, when it was begun (seconds since the epoch), and what gave it."""

    at: float
    by: Served
    figures: TurnFigures


@dataclass(frozen=True, slots=True)
class Day:
    """A local day."""

    date: date
    totals: Totals


@dataclass(frozen=True, slots=True)
class Stats:
    """Some days, the last one today."""

    days: tuple[Day, ...]
    totals: Totals
    ttft_s: float | None = None
    """Seconds to the first token, the median; None where no answer has it."""
    misses: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By cause of waste: turns and tokens."""
    warmup: WarmupTotals = field(default_factory=WarmupTotals)
    memory: SideTotals = field(default_factory=SideTotals)


def first_midnight(now: float, days: int) -> float:
    """When the first of so many local days began, the last of which is that of `now`; seconds since the epoch."""
    day = datetime.fromtimestamp(now).date() - timedelta(days=days - 1)
    return datetime(day.year, day.month, day.day).timestamp()


def stats(answers: Sequence[Answered], speeds: Mapping[Served, SpeedFit | None], now: float, days: int,
          warmup: WarmupTotals, memory: SideTotals) -> Stats:
    """The sums of answers since `first_midnight`. `speeds`: the prefill speed of what gave them; of one that is not
    known, the answers themselves tell."""
    by_day: dict[date, dict[Served, list[TurnFigures]]] = defaultdict(lambda: defaultdict(list))
    everywhere: dict[Served, list[TurnFigures]] = defaultdict(list)
    for answer in answers:
        by_day[datetime.fromtimestamp(answer.at).date()][answer.by].append(answer.figures)
        everywhere[answer.by].append(answer.figures)
    known = {by: speeds.get(by) for by in everywhere}
    today = datetime.fromtimestamp(now).date()
    dates = [today - timedelta(days=back) for back in reversed(range(days))]
    waits = sorted(answer.figures.ttft_ms for answer in answers if answer.figures.ttft_ms is not None)
    return Stats(
        tuple(Day(day, _sum(by_day[day], known)) for day in dates), _sum(everywhere, known),
        waits[len(waits) // 2] / 1000 if waits else None, misses(answer.figures for answer in answers), warmup, memory)


def _sum(turns: Mapping[Served, Iterable[TurnFigures]], speeds: Mapping[Served, SpeedFit | None]) -> Totals:
    return sum_of(totals(figures, speeds[by]) for by, figures in turns.items())
