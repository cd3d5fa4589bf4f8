"""What the cache saved over some days, and what was wasted: sums over the answers of all conversations.

The rule: a day is a calendar day of a time zone. Each figure of the whole span is the sum of its days'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime, time, timedelta, tzinfo

from kvchat.cache.accounting import NOISE, Totals, TurnFigures, WarmupTotals, measured_speed, totals
from kvchat.cache.causes.cause import Cause
from kvchat.cache.speed import SpeedFit

WEEK = 7
"""Days, today included."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer's figures, when it began, and where it was asked for."""

    created: float
    """Seconds since the epoch."""
    figures: TurnFigures
    server: str = ""
    """The server's base URL; empty: not known."""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Day:
    """The sums of one day."""

    date: date
    totals: Totals = field(default_factory=Totals)


@dataclass(frozen=True, slots=True)
class Stats:
    """The sums of a span of days."""

    days: tuple[Day, ...]
    """Every day of the span, oldest first, whether or not there was an answer."""
    totals: Totals
    waste: Mapping[str, tuple[int, int]]
    """By cause: how many turns, how many tokens."""
    ttft_ms: float | None
    """The median time to the first token; None where none was measured."""
    warmup: WarmupTotals = field(default_factory=WarmupTotals)


def span(now: float, days: int, zone: tzinfo | None = None) -> list[date]:
    """The last `days` days in a time zone (None: this machine's), oldest first; `now` (seconds since the epoch) lies in
    the last one."""
    today = datetime.fromtimestamp(now, zone).date()
    return [today - timedelta(back) for back in reversed(range(days))]


def begins(day: date, zone: tzinfo | None = None) -> float:
    """The first instant of a day, in seconds since the epoch."""
    return datetime.combine(day, time.min, zone).timestamp()


_ByServer = dict[tuple[str, str], list[TurnFigures]]


def stats(answers: Sequence[Answered], speeds: Mapping[tuple[str, str], SpeedFit | None], days: Sequence[date],
          zone: tzinfo | None = None, warmup: WarmupTotals | None = None) -> Stats:
    """The sums over the answers of these days. `speeds`: of each server and model; where there is none, the speed is
    that of its answers here. An answer from after the last day (the clock was set back) counts as of that."""
    today, cells = begins(days[-1], zone), {day: _ByServer() for day in days}
    of_server, counted = _ByServer(), []
    for answer in answers:
        day = days[-1] if answer.created >= today else datetime.fromtimestamp(answer.created, zone).date()
        if day in cells:
            key, figures = (answer.server, answer.model), answer.figures
            for group in (cells[day], of_server):
                group.setdefault(key, []).append(figures)
            counted.append(figures)
    told_by = {key: speeds.get(key) or measured_speed(turns) for key, turns in of_server.items()}
    found = tuple(Day(day, added(totals(turns, told_by[key]) for key, turns in cells[day].items())) for day in days)
    first = [figures.ttft_ms for figures in counted if figures.ttft_ms is not None]
    return Stats(found, added(day.totals for day in found), waste_by_cause(counted),
                 _median(first), warmup or WarmupTotals())


def added(parts: Iterable[Totals]) -> Totals:
    """The sum; the seconds saved are those of the parts that know them."""
    parts = list(parts)
    numbers = {name: sum(getattr(part, name) for part in parts) for name in _COUNTS}
    saved = [part.seconds_saved for part in parts if part.seconds_saved is not None]
    return Totals(**numbers, seconds_saved=sum(saved) if saved else None)


_COUNTS = tuple(found.name for found in fields(Totals) if found.name != "seconds_saved")


def _median(values: Iterable[float]) -> float | None:
    """As of the standard library, whose module takes longer to load than the rest of a command."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[~middle]) / 2 if ordered else None


def waste_by_cause(turns: Iterable[TurnFigures]) -> dict[str, tuple[int, int]]:
    """By cause: turns and wasted tokens. Waste that was never explained counts as unknown."""
    found: dict[str, tuple[int, int]] = {}
    for figures in turns:
        wasted = figures.avoidable_tokens or 0
        if wasted > NOISE and not figures.first_read:
            cause = figures.cause or Cause.UNKNOWN.value
            count, tokens = found.get(cause, (0, 0))
            found[cause] = count + 1, tokens + wasted
    return found
