"""`kvchat stats`: what the cache saved over the last days, over all conversations; as text, as JSON, or as a picture.

It looks into the store alone, at the figures of answers; no conversation is loaded and no server asked.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.cli.session import CommandError, Session, number
from kvchat.commands.command import CommandResult, TableColumn, TextTable
from kvchat.figures.stats import WEEK
from kvchat.store.stats import cache_stats
from kvchat.text.format import UNKNOWN, count, counted, duration, short_day
from kvchat.text.stats import (
    REUSE,
    answers_words,
    days_words,
    headline,
    nothing,
    reuse_cells,
    reuse_words,
    unknown_words,
    unreported,
    waste_rows,
)

if TYPE_CHECKING:
    from kvchat.figures.accounting import Totals, WarmupTotals
    from kvchat.figures.stats import Stats

MOST = 366
"""Days."""
ALL_DAYS = 14
"""Up to this many days each have a line; of more, only those with an answer."""
BAR = 20
"""Cells."""
LABEL = 12
COLUMNS = (
    TableColumn("day"),
    TableColumn("reuse"),
    TableColumn("", right=True),
    *(TableColumn(name, right=True) for name in ("cached", "new", "wasted", "saved")),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days",
        metavar="N",
        type=_days,
        default=WEEK,
        help=f"how many days, today included (default: {WEEK}; at most {MOST})",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--svg", metavar="FILE", help="write a picture to share; -: to standard output")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def run(session: Session) -> int:
    """Print the sums, or draw them. Raises CommandError."""
    session.print_problems()
    args = session.args
    stats = session.look(lambda store: cache_stats(store, time.time(), args.days))
    if args.svg:
        _draw(stats, args.svg, args.force)
        return 0
    return session.give(CommandResult(as_json(stats), _words(stats)))


def _days(text: str) -> int:
    if (found := number(text)) > MOST:
        raise argparse.ArgumentTypeError(f"{text} is too many; give 1 to {MOST}")
    return found


def as_json(stats: Stats) -> dict[str, object]:
    """The sums as numbers; what is not known is None."""
    days = [{"day": day.date.isoformat(), **_numbers(day.totals)} for day in stats.days]
    waste = [{"cause": cause, "turns": turns, "tokens": tokens} for cause, (turns, tokens) in stats.misses.items()]
    return {
        "first_day": days[0]["day"],
        "last_day": days[-1]["day"],
        **_numbers(stats.totals),
        "ttft_ms": stats.ttft_ms,
        "warm_up": _spent(stats.warmup),
        "waste": waste,
        "days": days,
    }


def _numbers(totals: Totals) -> dict[str, object]:
    known = not totals.are_unknown
    return {
        "turns": totals.answers,
        "requests": totals.turns,
        "unknown_turns": totals.unknown,
        "seconds_saved": totals.seconds_saved,
        "cached_tokens": totals.cached_tokens if known else None,
        "new_tokens": totals.evaluated_tokens - totals.wasted_tokens if known else None,
        "wasted_tokens": totals.wasted_tokens if known else None,
        "reuse": totals.reuse,
    }


def _spent(warmup: WarmupTotals) -> dict[str, object]:
    return {"requests": warmup.requests, "tokens": warmup.tokens, "seconds": warmup.seconds}


def _draw(stats: Stats, place: str, overwrite: bool) -> None:
    from kvchat.transfer.formats import TransferError
    from kvchat.transfer.stats_card import card
    from kvchat.transfer.write import write_text

    if not stats.totals.turns:
        raise CommandError(nothing(len(stats.days)))
    if stats.totals.are_unknown:
        raise CommandError(unreported(len(stats.days)))
    if place == "-":
        sys.stdout.write(card(stats))
        return
    try:
        print(write_text(Path(place), card(stats), overwrite=overwrite))
    except TransferError as error:
        raise CommandError(str(error)) from None


def _words(stats: Stats) -> Iterator[str | TextTable]:
    if not stats.totals.turns:
        yield nothing(len(stats.days))
        return
    figure, what = headline(stats)
    yield " · ".join((f"{figure} {what}", days_words(len(stats.days)), answers_words(stats.totals)))
    yield ""
    few = len(stats.days) <= ALL_DAYS
    rows = [_row(short_day(day.date), day.totals) for day in stats.days if few or day.totals.turns]
    yield TextTable([*rows, _row("total", stats.totals)] if len(rows) > 1 else rows, COLUMNS)
    yield ""
    yield from (f"{name:<{LABEL}}{words}" for name, words in _facts(stats))


def _row(name: str, totals: Totals) -> tuple[str, ...]:
    filled = reuse_cells(totals, BAR)
    if filled is None:
        bar, share = reuse_words(totals), ""
    else:
        bar, share = "█" * filled + "░" * (BAR - filled), reuse_words(totals)
    if totals.turns == totals.unknown:
        return name, bar, share, *[UNKNOWN] * 4
    return (
        name,
        bar,
        share,
        count(totals.cached_tokens),
        count(totals.evaluated_tokens - totals.wasted_tokens),
        count(totals.wasted_tokens),
        duration(totals.seconds_saved),
    )


def _facts(stats: Stats) -> Iterable[tuple[str, str]]:
    causes = waste_rows(stats) or [("unknown" if stats.totals.are_unknown else "none", "", "")]
    widths = [max(map(len, column)) for column in zip(*causes, strict=True)]
    for index, (cause, turns, tokens) in enumerate(causes):
        words = f"{cause:<{widths[0]}}  {turns:>{widths[1]}}  {tokens:>{widths[2]}}"
        yield "" if index else "waste", words.rstrip()
    if stats.totals.reuse is not None:
        yield "reuse", REUSE
    if stats.totals.seconds_saved:
        yield "saved", "compared with prefilling each prompt from its start"
    yield "TTFT", "not measured" if stats.ttft_ms is None else f"{duration(stats.ttft_ms / 1000)} (median)"
    spent = stats.warmup
    yield (
        "warm-up",
        (
            f"{counted(spent.tokens, 'token')} in {counted(spent.requests, 'request')}, {duration(spent.seconds)}"
            if spent.requests
            else "nothing spent"
        ),
    )
    if unknown := unknown_words(stats.totals):
        yield "unknown", f"{unknown}: too little reported"
