"""The figures of a span of days from the store: those of `kvchat stats`, and of the last days in F2."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from typing import TYPE_CHECKING

from kvchat.figures.accounting import SideTotals
from kvchat.figures.speed import SpeedFit
from kvchat.figures.stats import WEEK, Stats, begins, span, stats

if TYPE_CHECKING:
    from kvchat.store.store import Store


def cache_stats(
    store: Store,
    now: float,
    days: int = WEEK,
    *,
    zone: tzinfo | None = None,
    speed: Callable[[str, str], SpeedFit | None] | None = None,
) -> Stats:
    """The sums over the last `days` days of a time zone (None: this machine's) up to `now`, in seconds since the epoch.
    `speed`: the prefill speed of a server and model (the store's, where it is not given). No conversation is loaded.
    Raises StoreError."""
    dates = span(now, days, zone)
    since = begins(dates[0], zone)
    answers = store.answers(since)
    speeds = {key: (speed or store.speed_fit)(*key) for key in {answer.by for answer in answers} if key[0]}
    return stats(answers, speeds, dates, zone, store.warmups(since), store.side_requests.totals(since))


def side_work(store: Store, now: float) -> SideTotals:
    """What side work cost in the last WEEK days up to `now`, in seconds since the epoch. Raises StoreError."""
    return store.side_requests.totals(begins(span(now, WEEK)[0]))
