"""What the cache saved over some days, and what was wasted: sums over the answers of all conversations.

A day is a calendar day of a time zone. Each figure of the whole span is the sum of its days'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta, tzinfo

from msgspec import Struct, field

from kvchat.figures.accounting import (
    SideTotals,
    Totals,
    TurnFigures,
    WarmupTotals,
    measured_speed,
    misses,
    sum_of,
    totals,
)
from kvchat.figures.speed import SpeedFit

WEEK = 7
"""Days, today included."""


Served = tuple[str, str]
"""A server's place and a model; empty: not known."""


class Answered(Struct, frozen=True):
    """One answer's figures, when it began, and where it was asked for."""

    at: float
    """Seconds since the epoch."""
    by: Served
    figures: TurnFigures
    is_step: bool = False
    """Whether it called tools, so that its turn went on."""


class Day(Struct, frozen=True):
    """The sums of one day."""

    date: date
    totals: Totals = field(default_factory=Totals)


class Stats(Struct, frozen=True):
    """The sums of a span of days."""

    days: tuple[Day, ...]
    """Every day of the span, oldest first, whether or not there was an answer."""
    totals: Totals
    misses: Mapping[str, tuple[int, int]]
    """By cause of waste: how many turns, how many tokens."""
    ttft_ms: float | None
    """The median time to the first token; None where none was measured."""
    warmup: WarmupTotals = field(default_factory=WarmupTotals)
    memory: SideTotals = field(default_factory=SideTotals)


def span(now: float, days: int, zone: tzinfo | None = None) -> list[date]:
    """The last `days` days in a time zone (None: this machine's), oldest first; `now` (seconds since the epoch) lies in
    the last one."""
    today = datetime.fromtimestamp(now, zone).date()
    return [today - timedelta(back) for back in reversed(range(days))]


def begins(day: date, zone: tzinfo | None = None) -> float:
    """The first instant of a day, in seconds since the epoch."""
    return datetime.combine(day, time.min, zone).timestamp()


_ByServer = dict[Served, list[TurnFigures]]


def stats(
    answers: Sequence[Answered],
    speeds: Mapping[Served, SpeedFit | None],
    days: Sequence[date],
    zone: tzinfo | None = None,
    warmup: WarmupTotals | None = None,
    memory: SideTotals | None = None,
) -> Stats:
    """The sums over the answers of these days. `speeds`: of each server and model; where there is none, the speed is
    that of its answers here. Of several answers to one request, whose prompt was prefilled once, only the first is a
    turn; the others' tokens count as written. An answer from after the last day (the clock was set back) counts as of
    that."""
    today, cells = begins(days[-1], zone), {day: _ByServer() for day in days}
    of_server, counted, written, steps = _ByServer(), [], dict.fromkeys(days, 0), dict.fromkeys(days, 0)
    for answer in answers:
        day = days[-1] if answer.at >= today else datetime.fromtimestamp(answer.at, zone).date()
        if day in cells and answer.figures.alternative:
            written[day] += answer.figures.predicted_tokens or 0
        elif day in cells:
            for group in (cells[day], of_server):
                group.setdefault(answer.by, []).append(answer.figures)
            counted.append(answer.figures)
            steps[day] += answer.is_step
    speed_of = {by: speeds.get(by) or measured_speed(turns) for by, turns in of_server.items()}
    found = tuple(
        Day(
            day,
            sum_of(
                [
                    *(totals(turns, speed_of[by]) for by, turns in cells[day].items()),
                    Totals(steps=steps[day], predicted_tokens=written[day]),
                ]
            ),
        )
        for day in days
    )
    first = [figures.ttft_ms for figures in counted if figures.ttft_ms is not None]
    return Stats(
        found,
        sum_of(day.totals for day in found),
        misses(counted),
        _median(first),
        warmup or WarmupTotals(),
        memory or SideTotals(),
    )


def _median(values: Iterable[float]) -> float | None:
    """As of the standard library, whose module takes longer to load than the rest of a command."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[~middle]) / 2 if ordered else None
