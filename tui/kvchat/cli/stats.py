"""`kvchat stats`: what the cache saved in the last days, in words, as JSON or as a picture to share."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.cache.stats import Stats, first_midnight, stats
from kvchat.cli.session import CommandError, Session, UsageError
from kvchat.paths import reason
from kvchat.text.stats import stats_lines, stats_svg

if TYPE_CHECKING:
    from kvchat.store import Store

MOST_DAYS = 366


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example: kvchat stats --days 30 --svg cache.svg"
    parser.add_argument("--days", metavar="N", type=int, default=7, help="so many days, today included (7)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--json", action="store_true", help="print JSON")
    which.add_argument("--svg", metavar="FILE", help="write a picture to FILE; - prints it")
    parser.add_argument("--force", action="store_true", help="replace FILE where it exists")


def run(session: Session) -> int:
    """Print the sums. Raises CommandError."""
    args = session.args
    if not 1 <= args.days <= MOST_DAYS:
        raise UsageError(f"--days {args.days} is out of range: 1 to {MOST_DAYS}.")
    now = time.time()
    found = session.look(lambda store: _stats(store, now, args.days))
    if args.svg:
        _write(stats_svg(found), args.svg, replace=args.force)
        return 0
    session.tell(asdict(found), lambda: print(*stats_lines(found), sep="\n"), str)
    return 0


def _stats(store: Store, now: float, days: int) -> Stats:
    since = first_midnight(now, days)
    answers = store.answers(since)
    speeds = {by: store.speed_fit(*by) for by in {answer.by for answer in answers}}
    return stats(answers, speeds, now, days, store.warmups(since), store.side_requests.totals(since))


def _write(picture: str, file: str, *, replace: bool) -> None:
    if file == "-":
        sys.stdout.write(picture)
        return
    try:
        with Path(file).expanduser().open("w" if replace else "x", encoding="utf-8") as out:
            out.write(picture)
    except FileExistsError:
        raise CommandError(f"{file} exists. --force replaces it.") from None
    except OSError as error:
        raise CommandError(f"{file} cannot be written ({reason(error)}).") from None
    print(f"Wrote {file}.")
