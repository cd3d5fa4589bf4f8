"""What the cache did over some days, in words and as a picture to share."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from kvchat.cache.stats import Day, Stats
from kvchat.text.findings import cause_name
from kvchat.text.format import count, counted, duration, percent, short_count

NOTHING = "No answers in {days} yet. Ask something, then look again."
BAR = 16
"""Cells of a day's bar."""


def period(stats: Stats) -> str:
    """`the last 7 days`."""
    return "today" if len(stats.days) == 1 else f"the last {len(stats.days)} days"


def headline(stats: Stats) -> str:
    """`2 min 17 s of prefill saved in the last 7 days`."""
    saved = stats.totals.seconds_saved
    if saved is None:
        return f"{count(stats.totals.cached_tokens)} tokens cached in {period(stats)}"
    return f"{duration(saved)} of prefill saved in {period(stats)}"


def stats_lines(stats: Stats) -> Iterator[str]:
    """All of it, a line each."""
    if not stats.totals.turns:
        yield NOTHING.format(days=period(stats))
        return
    total = stats.totals
    yield headline(stats)
    yield (f"reuse {percent(total.reuse)} · {count(total.cached_tokens)} cached · {count(total.new_tokens)} new · "
           f"{count(total.wasted_tokens)} wasted · {counted(total.turns, 'answer')}")
    if stats.ttft_s is not None:
        yield f"TTFT {duration(stats.ttft_s)} (median)"
    yield ""
    for day in stats.days:
        yield day_line(day)
    yield ""
    found = sorted(stats.misses.items(), key=lambda item: -item[1][1])
    for cause, (turns, tokens) in found:
        yield f"wasted  {count(tokens):>9}  {cause_name(cause)}, {counted(turns, 'turn')}"
    if not found:
        yield "wasted  nothing worth a word"
    if stats.warmup.requests:
        yield (f"warm-up {count(stats.warmup.tokens):>9}  {counted(stats.warmup.requests, 'request')}, "
               f"{duration(stats.warmup.seconds)}")


def day_line(day: Day) -> str:
    """`Mon 16 Nov  █████████████▒▒░    98 %   12.2k cached    1.2k new       0 wasted`."""
    total, name = day.totals, f"{day.date:%a} {day.date.day:>2} {day.date:%b}"
    if not total.prompt_tokens:
        return f"{name}  {'·' * BAR}"
    wasted = max(round(total.wasted_tokens / total.prompt_tokens * BAR), total.wasted_tokens > 0)
    cached = min(round(total.cached_tokens / total.prompt_tokens * BAR), BAR - wasted - (total.new_tokens > 0))
    bar = "█" * cached + "▒" * (BAR - cached - wasted) + "░" * wasted
    return (f"{name}  {bar}  {percent(total.reuse):>6}  {short_count(total.cached_tokens):>6} cached  "
            f"{short_count(total.new_tokens):>6} new  {short_count(total.wasted_tokens):>6} wasted")


# -- the picture

WIDTH, HEIGHT = 800, 420
BACK, INK, QUIET = "#0f1117", "#e6e8ef", "#8b93a7"
CACHED, NEW, WASTED, ACCENT = "#4fb99f", "#7f8ff4", "#f0883e", "#ffcf8a"


def stats_svg(stats: Stats) -> str:
    """One picture that needs nothing else: the time saved, the bars of the days, the sums. No title of a conversation,
    no name of a server is in it."""
    total = stats.totals
    saved = f"{count(total.cached_tokens)} tokens" if total.seconds_saved is None else duration(total.seconds_saved)
    what = "came from the cache" if total.seconds_saved is None else "of prefill saved"
    sums = (f"reuse {percent(total.reuse)}   ·   {short_count(total.cached_tokens)} cached   ·   "
            f"{short_count(total.new_tokens)} new   ·   {short_count(total.wasted_tokens)} wasted")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="16" fill="{BACK}"/>',
        _text(48, 56, "kvchat", 20, ACCENT, bold=True), _text(WIDTH - 48, 56, period(stats), 16, QUIET, end=True),
        _text(48, 130, saved, 52, INK, bold=True),
        _text(48, 164, f"{what} · {counted(total.turns, 'answer')}", 18, QUIET),
        *_bars(stats), _text(48, HEIGHT - 32, sums, 16, QUIET), "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _text(x: float, y: float, words: str, size: int, colour: str, *, bold: bool = False, end: bool = False,
          middle: bool = False) -> str:
    anchor = ' text-anchor="end"' if end else ' text-anchor="middle"' if middle else ""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}"{weight}{anchor}>{escape(words)}</text>'


def _bars(stats: Stats) -> Iterator[str]:
    """A column for each day: cached below, then new, then wasted, as high as its prompts were long."""
    left, bottom, high = 48.0, HEIGHT - 92.0, 120.0
    step = (WIDTH - 2 * left) / len(stats.days)
    most = max((day.totals.prompt_tokens for day in stats.days), default=0) or 1
    for number, day in enumerate(stats.days):
        x, y, total = left + number * step, bottom, day.totals
        rest = total.prompt_tokens - total.cached_tokens - total.wasted_tokens
        for tokens, colour in ((total.cached_tokens, CACHED), (rest, NEW), (total.wasted_tokens, WASTED)):
            height = tokens / most * high
            if height > 0:
                y -= height
                yield (f'<rect x="{x + step * 0.15:.1f}" y="{y:.1f}" width="{step * 0.7:.1f}" height="{height:.1f}" '
                       f'fill="{colour}"/>')
        if len(stats.days) <= 14:
            yield _text(x + step / 2, bottom + 20, f"{day.date:%a}", 13, QUIET, middle=True)
            if total.prompt_tokens:
                yield _text(x + step / 2, y - 6, percent(total.reuse), 12, QUIET, middle=True)
