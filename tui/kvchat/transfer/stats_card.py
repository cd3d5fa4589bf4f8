"""The figures of some days as one picture to share, in SVG.

It fetches nothing, runs nothing, and names no conversation, server or model: figures and days alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from kvchat.text.format import count, day_range, duration, percent, short_day
from kvchat.text.stats import LEGEND, answers_words, days_words, headline, reuse_words, unknown_words

if TYPE_CHECKING:
    from kvchat.figures.accounting import Totals
    from kvchat.figures.stats import Day, Stats

WIDTH, HEIGHT = 800, 420
LEFT, RIGHT = 44, 756
TOP, BASE = 214, 332
"""Where the highest bar ends and where all begin."""
WIDEST = 72
"""A bar."""
LABELLED = 10
"""So many days have their percent and weekday each; of more, a few have their date."""

BACKGROUND, RULE, TEXT, MUTED, BRAND = "#12141c", "#333a4f", "#dfe4f0", "#929cb6", "#cdb1fa"
CACHED, NEW, WASTED = "#73d5b5", "#7c98fb", "#cd7cb2"
"""The colours of the theme kvchat-night."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', 'DejaVu Sans', Arial, sans-serif"


def card(stats: Stats) -> str:
    """The picture of a span of days in which some cached tokens were reported."""
    figure, what = headline(stats)
    span = f"{days_words(len(stats.days))} · {day_range(stats.days[0].date, stats.days[-1].date)}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" font-family="{escape(FONT)}">',
        f"<title>{escape(f'kvchat: {figure} {what}, {span}')}</title>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="18" fill="{BACKGROUND}" '
        f'stroke="{RULE}"/>',
        _text(LEFT, 54, "kvchat", 22, BRAND, weight=700),
        _text(RIGHT, 54, span, 16, MUTED, anchor="end"),
        f'<text x="{LEFT}" y="126" font-size="54" font-weight="700" fill="{CACHED}">{escape(figure)} '
        f'<tspan font-size="28" font-weight="400" fill="{TEXT}">{escape(what)}</tspan></text>',
        _text(LEFT, 162, _facts(stats), 18, MUTED),
        *_bars(stats.days),
        *_legend(stats.totals),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _facts(stats: Stats) -> str:
    words = [f"reuse {percent(stats.totals.reuse)}"] if stats.totals.reuse is not None else []
    words.append(answers_words(stats.totals))
    if stats.ttft_ms is not None:
        words.append(f"TTFT {duration(stats.ttft_ms / 1000)} (median)")
    if unknown := unknown_words(stats.totals):
        words.append(f"{unknown} unknown")
    return " · ".join(words)


def _bars(days: tuple[Day, ...]) -> Iterator[str]:
    """A bar for each day, as high as its prompts were long: cached, new and wasted tokens."""
    step = (RIGHT - LEFT) / len(days)
    wide = min(WIDEST, step * 0.72)
    most = max(day.totals.prompt_tokens for day in days) or 1
    every = 1 if len(days) <= LABELLED else -(-len(days) // 7)
    yield f'<path d="M{LEFT} {BASE + 0.5}H{RIGHT}" stroke="{RULE}"/>'
    for index, day in enumerate(days):
        middle = LEFT + step * (index + 0.5)
        y = float(BASE)
        for tokens, tone in _stack(day.totals):
            high = max(2.0, tokens / most * (BASE - TOP)) if tokens else 0.0
            y -= high
            if tokens:
                yield (
                    f'<rect x="{middle - wide / 2:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" '
                    f'fill="{tone}"/>'
                )
        if len(days) <= LABELLED and day.totals.turns:
            yield _text(middle, y - 8, reuse_words(day.totals), 14, TEXT, anchor="middle")
        if (len(days) - 1 - index) % every == 0:
            name = short_day(day.date)
            label = name.split()[0] if len(days) <= LABELLED else name.partition(" ")[2]
            yield _text(middle, BASE + 22, label, 14, MUTED, anchor="middle")


def _stack(totals: Totals) -> tuple[tuple[int, str], ...]:
    """Tokens with their tones."""
    wasted = totals.wasted_tokens
    return (totals.cached_tokens, CACHED), (totals.evaluated_tokens - wasted, NEW), (wasted, WASTED)


def _legend(totals: Totals) -> Iterator[str]:
    for at, name, (tokens, tone) in zip((0, 290, 490), LEGEND, _stack(totals), strict=True):
        yield f'<rect x="{LEFT + at}" y="379" width="13" height="13" rx="3" fill="{tone}"/>'
        yield _text(LEFT + at + 22, 391, f"{count(tokens)} {name}", 16, TEXT)


def _text(x: float, y: float, words: str, size: int, tone: str, *, anchor: str = "start", weight: int = 400) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" fill="{tone}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )
