"""`kvchat cache`: what is known of the cache, seen from one conversation, as text or as JSON.

What is stored is shown without a server; what the server holds is added where one is configured and answers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from kvchat.backends.dialect import BackendError
from kvchat.chat.server.link import is_file
from kvchat.chat.service import ChatService
from kvchat.cli.session import Session
from kvchat.commands.command import CommandResult, TableColumn, TextTable
from kvchat.config import Settings
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.conversation import Conversation
from kvchat.reports.cache_report import CacheReport, TurnReport
from kvchat.sanitize import one_line
from kvchat.text.cache import (
    accuracy,
    again,
    count_of,
    held_words,
    misses,
    plan_words,
    prediction,
    shown_tokens,
    side_request_words,
    speed_words,
    totals_words,
    turn_name,
    turn_of,
    turn_sum,
    warm_up_words,
    warmth_words,
    why,
)
from kvchat.text.format import duration, speed
from kvchat.text.options import beginning_words, warning_sentence
from kvchat.text.snapshots import kept_words, room_words
from kvchat.text.stats import REUSE
from kvchat.values import as_fields

LABEL = 14
COLUMNS = (
    TableColumn("turn", right=True),
    *(TableColumn(name, right=True) for name in ("cached", "new", "wasted", "TTFT", "prefill", "decode")),
    TableColumn("question", shrinks=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", help="the conversation; without it the newest one")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(session: Session) -> int:
    """Print the report of a conversation, by default the newest. Raises CommandError."""
    session.print_problems()

    async def cache(service: ChatService) -> int:
        conversations, id = service.conversations, session.args.id
        found = conversations.find(id) if id else conversations.latest()
        if found is None:
            return session.give(CommandResult(None, ["There are no conversations yet."]))
        if _has_server(service.settings, found):
            await _look(service, found.id)
        report = await service.cache_reports.report(found.id)
        return session.give(CommandResult(_known(as_fields(report)), _words(report, service.clock().timestamp())))

    return session.with_service(cache)


async def _look(service: ChatService, id: str) -> None:
    """Meet the server of a conversation and look what it holds, as the app does when it is opened. Nothing is said of
    one that does not answer: what is stored is shown all the same."""
    await service.servers.meet(id)
    link = service.servers.link(id)
    if link.info is not None:
        with suppress(BackendError):
            await service.tracker.cache_of(await link.connector.ready(), service.servers.asked_model(id))


def _has_server(settings: Settings, conversation: Conversation) -> bool:
    """Whether there is a server to ask of this conversation. A model file is not started for a look."""
    named = conversation.server
    return not is_file(named) and bool(named or settings.server.base_url)


def _known(found: Any) -> Any:
    """What `--json` prints; the sums of a `Totals` of which the servers reported nothing are null."""
    if isinstance(found, list):
        return [_known(value) for value in found]
    if not isinstance(found, dict):
        return found
    known = ("turns", "unknown")
    found = {name: _known(value) for name, value in found.items()}
    unknown = found.keys() >= {*known} and found["turns"] == found["unknown"] != 0
    return {name: value if name in known else None for name, value in found.items()} if unknown else found


def _words(report: CacheReport, now: float) -> Iterator[str | TextTable]:
    yield f"{one_line(report.title)}  {report.conversation[:8]}"
    last = report.turns[-1].figures if report.turns else None
    about = "" if report.exact else "~"
    yield " · ".join(filter(None, (warmth_words(report.warmth, now), prediction(last, about), accuracy(report))))
    yield ""
    if report.turns:
        yield TextTable([_row(report.turns, at) for at in range(len(report.turns))], COLUMNS)
        for at in range(len(report.turns)):
            yield from _reasons(report.turns, at)
        yield ""
    for name, words in _facts(report, now):
        yield f"{name:<{LABEL}}{one_line(words)}".rstrip()


def _row(turns: Sequence[TurnReport], at: int) -> tuple[str, ...]:
    turn, (number, requests) = turns[at], turn_of(turns, at)
    figures = turn.figures or TurnFigures()
    first = duration(None if figures.ttft_ms is None else figures.ttft_ms / 1000)
    return (
        str(number) if at == requests.start else "",
        *(count_of(figures, value) for value in shown_tokens(figures)),
        first,
        speed(figures.prefill_speed),
        speed(figures.decode_speed),
        one_line(turn.question),
    )


def _reasons(turns: Sequence[TurnReport], at: int) -> Iterable[str]:
    """The cause of a request's wasted tokens, and what helps; behind the last request of a turn, its sum."""
    turn = turns[at]
    if turn.figures is not None and turn.figures.notable_waste:
        yield f"{turn_name(turns, at)}: {again(turn)}"
        if remedy := why(turn)[1]:
            yield f"  → {one_line(remedy)}"
    if at == turn_of(turns, at)[1][-1] and (whole := turn_sum(turns, at)):
        yield whole


def _facts(report: CacheReport, now: float) -> Iterable[tuple[str, str]]:
    for warning in report.warnings:
        yield "! prompt", warning_sentence(warning)
    if report.beginning is not None:
        yield "begins with", beginning_words(report.beginning)
    for name, ledger in (("conversation", report.here), ("last 7 days", report.week)):
        yield name, totals_words(ledger)
        yield "  misses", misses(ledger)
        yield "  warm-up", warm_up_words(ledger.warmup)
        if ledger.memory.count:
            yield "  side work", side_request_words(ledger.memory)
    if report.week.totals.reuse is not None:
        yield "  reuse", REUSE
    yield "planner", "unknown" if report.states is None else plan_words(report.plan)
    yield "speed", speed_words(report.speed)
    for state in report.states or ():
        yield one_line(state.where, LABEL - 2), held_words(state, now, one_line(state.owner, 40))
    if not report.states:
        yield "slots", "contents unknown" if report.states is None else "empty"
    if report.kept.states:
        yield "kept", room_words(report.kept)
    for kept in report.kept.states:
        yield f"  {kept.kept.id[:8]}", f"{one_line(kept.title, 40)} {kept_words(kept)}"
    yield "rules", report.rules or "unknown for this server"
