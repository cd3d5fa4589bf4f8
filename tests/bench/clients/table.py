"""Rows of runs as tables."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

NUMBERS = (
    "turns",
    "first_prompt",
    "new",
    "evaluated",
    "side_requests",
    "side_evaluated",
    "amplification",
    "later",
    "excess",
)
PAIRS = ("other", "back", "restart")
HEADS = (
    "client",
    "runs",
    "first prompt",
    "new",
    "prefilled while you wait",
    "in side requests",
    "**amplification**",
    "without the first prompt",
    "excess",
    "new conversation",
    "back",
    "restarted",
    "texts changed",
)

Row = dict[str, Any]


def rows_in(folder: Path) -> list[Row]:
    """The rows of all runs of `folder`."""
    return [json.loads(file.read_text()) for file in sorted((folder / "runs").glob("*/row.json"))]


def summed_up(rows: Iterable[Row]) -> list[Row]:
    """A row for each client and case: the median of its runs, and the least and the most evaluated in all."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["case"], row["client"]].append(row)
    found = []
    for (case, client), runs in sorted(groups.items()):
        latest = max(runs, key=lambda row: row["date"])
        in_all = sorted(row["evaluated"] + row["side_evaluated"] for row in runs)
        pairs = {name: [_median(row[name][part] for row in runs) for part in (0, 1)] for name in PAIRS}
        found.append(
            {"client": client, "version": latest["version"], "case": case, "date": latest["date"], "runs": len(runs)}
            | {name: _median(row[name] for row in runs) for name in NUMBERS}
            | pairs
            | {"least": in_all[0], "most": in_all[-1], "changes": latest["changes"], "missing": latest["missing"]}
        )
    return found


def _median(values: Iterable[float]) -> float:
    middle = median(values)
    return int(middle) if middle == int(middle) else round(middle, 2)


def table(rows: Iterable[Row], case: str, notes: dict[str, str]) -> str:
    """The Markdown table of one case, the least amplification first."""
    chosen = sorted((row for row in rows if row["case"] == case), key=lambda row: row["amplification"])
    lines = [f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS)]
    for row in chosen:
        spread = "" if row["least"] == row["most"] else f": {row['least']:,} to {row['most']:,} in all"
        note = f", {notes[row['client']]}" if notes.get(row["client"]) else ""
        side = f" ({row['side_requests']:,})" if row["side_requests"] else ""
        cells = (
            f"{row['client']} {row['version']}".strip() + note,
            f"{row['runs']}{spread}",
            *(f"{row[name]:,}" for name in ("first_prompt", "new", "evaluated")),
            f"{row['side_evaluated']:,}{side}",
            f"**{row['amplification']:.2f}**",
            f"{row['later']:.1f}",
            f"{row['excess']:,}",
            *(f"{row[name][0]:,} / {row[name][1]:,}" for name in PAIRS),
            f"{len(row['changes'])}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def differences(rows: Iterable[Row], others: Iterable[Row], share: float = 0.03) -> list[str]:
    """Figures of `rows` that differ by more than `share` from those of the same client and case in `others`."""
    known = {(row["case"], row["client"]): row for row in others}
    found = []
    for row in rows:
        if not (other := known.get((row["case"], row["client"]))):
            continue
        for name in NUMBERS:
            one, two = row[name], other[name]
            if abs(one - two) > share * max(one, two):
                found.append(f"{row['client']}, {row['case']}: {name} {one:,}, was {two:,}")
    return found


def written(page: str, rows: Iterable[Row], notes: dict[str, str]) -> str:
    """The text of a page with the tables of `rows` between its marks, `<!-- clients CASE -->` and `<!-- /clients -->`."""
    found = list(rows)
    return re.sub(
        r"(<!-- clients (\w+) -->\n).*?(<!-- /clients -->)",
        lambda mark: f"{mark[1]}{table(found, mark[2], notes)}\n{mark[3]}",
        page,
        flags=re.DOTALL,
    )
