"""What the cache inspector tells beside the turns: what the server holds, the plan, the speed, the sums, the server.

The rule: figures are the server's or measured by kvchat; what neither knows is shown as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from textual.content import Content

from kvchat.cache.accounting import NOISE, Totals
from kvchat.cache.report import CacheReport, HeldState, Ledger
from kvchat.sanitize import one_line
from kvchat.text.cache import UNREPORTED, ahead, beside, held_words, misses, speed_words
from kvchat.text.format import count, counted, duration, percent
from kvchat.ui.render.wrap import breaks
from kvchat.ui.screens.tones import AVOIDABLE, MUTED, REUSED, STRONG, content, shown
from kvchat.ui.widgets.header_text import HOSTS, model_name

LABEL = 13
TOTAL_HEADS = ("reuse", "hit ratio", "reused", "avoidable", "saved")
TOTAL_CELLS = (8, 11, 11, 11, 13)
TITLE = 28
"""Cells for the title of a conversation that a slot holds."""


class ServerFacts(Protocol):
    """What the inspector shows of a server: `ChatService.server`."""

    @property
    def kind(self) -> str: ...
    @property
    def base_url(self) -> str: ...
    @property
    def host_class(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def context_size(self) -> int | None: ...
    @property
    def slots(self) -> int | None: ...
    @property
    def build(self) -> str: ...
    @property
    def embedded(self) -> bool: ...


def totals_line(totals: Totals, width: int) -> Content:
    """The sums over some turns, under `TOTAL_HEADS`, in `width` cells."""
    if not totals.turns:
        return content(("  no turns yet", MUTED))
    if totals.turns == totals.unknown:
        return content((f"  {counted(totals.turns, 'turn')}, {UNREPORTED}", MUTED))
    much = totals.avoidable_tokens > NOISE * totals.turns
    values = (percent(totals.reuse), percent(totals.hit_ratio), count(totals.cached_tokens),
              count(totals.avoidable_tokens), duration(totals.seconds_saved))
    tones = (STRONG, "", REUSED, AVOIDABLE if much else "", "")
    line = content(*((value.rjust(cells), tone) for value, cells, tone in zip(values, TOTAL_CELLS, tones, strict=True)))
    unknown = content((f"   {totals.unknown} of {counted(totals.turns, 'turn')} unknown", MUTED))
    return line + unknown if totals.unknown and line.cell_length + unknown.cell_length <= width else line


def facts(report: CacheReport, server: ServerFacts | None, digest: str, width: int, now: float) -> list[Content]:
    """All of it in lines of `width` cells, the most important first. `digest` names the system prompt."""
    lines: list[Content] = []
    for warning in report.warnings:
        lines += _told("! prompt", warning, width, AVOIDABLE)
    lines += _sums(report, width)
    lines += _told("planner", report.plan.sentence if report.plan else "no request yet", width)
    lines += _told("speed", speed_words(report.speed), width)
    lines += _states(report.states, width, now)
    lines += _told("rules", report.rules or "what this server does with its cache is not known", width)
    for name, words in _about(server):
        lines += _told(name, words, width)
    lines += _told("session", report.conversation, width)
    return [*lines, *_told("prefix", f"{digest} · equal digest, equal system prompt", width)]


def _told(name: str, words: str, width: int, tone: str = MUTED) -> list[Content]:
    """A name and what there is to say, on as many lines as it takes."""
    words = one_line(words)
    parts = [words[start:stop] for start, stop in breaks(words, max(20, width - LABEL))]
    return [content((f"{name if not at else '':<{LABEL}}", tone), part) for at, part in enumerate(parts)]


def _sums(report: CacheReport, width: int) -> Iterable[Content]:
    heads = "".join(head.rjust(cells) for head, cells in zip(TOTAL_HEADS, TOTAL_CELLS, strict=True))
    yield content((" " * LABEL + heads, MUTED))
    ledgers: list[tuple[str, Ledger]] = [("conversation", report.here), ("last 7 days", report.week)]
    for name, ledger in ledgers:
        yield content((f"{name:<{LABEL}}", MUTED)) + totals_line(ledger.totals, width - LABEL)
    for name, ledger in (("misses", report.here), ("  7 days", report.week)):
        told = misses(ledger)
        yield from _told(name, "; ".join(told) if told else "none", width)
    yield from _told("read ahead", f"{ahead(report.here.warmup)} · 7 days: {ahead(report.week.warmup)}", width)
    if report.week.memory.count:
        yield from _told("memory", f"{beside(report.here.memory)} · 7 days: {beside(report.week.memory)}", width)


def _states(states: Iterable[HeldState], width: int, now: float) -> Iterable[Content]:
    """A line for each slot, and one for each state in the server's memory."""
    found = [*states]
    if not found:
        yield from _told("slots", "what they hold is not known", width)
    for state in found:
        parked = "slot" not in state.where
        glyph = content(("◐ ", AVOIDABLE) if parked else ("● ", REUSED))
        words = held_words(state, now, shown(state.owner, TITLE))
        yield content((f"{one_line(state.where, LABEL - 2):<{LABEL}}", MUTED)) + glyph + content(words)


def _about(server: ServerFacts | None) -> list[tuple[str, str]]:
    if server is None:
        return [("server", "not connected")]
    kind = "built-in engine" if server.embedded else one_line(server.kind, 40)
    where = HOSTS.get(server.host_class, one_line(server.host_class, 20))
    build = f" · build {one_line(server.build, 40)}" if server.build else ""
    return [
        ("server", f"{kind} · {where} · {one_line(server.base_url, 80)}"),
        ("model", (model_name(server.model) or "unknown") + build),
        ("window", f"{_number(server.context_size, 'token')} a conversation · {_number(server.slots, 'slot')}"),
    ]


def _number(number: int | None, noun: str) -> str:
    return counted(number, noun) if number is not None else f"unknown {noun}s"
