"""The text of the panel next to the conversation: what the server's cache holds now, how the last turns went, how fast
it is.

Pure functions of the figures and the width; what is not known is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from kvchat.figures.accounting import PromptProgress, TurnFigures
from kvchat.reports.cache_report import HeldState, Holdings, TurnReport
from kvchat.sanitize import one_line
from kvchat.text.cache import average_speed, turn_of
from kvchat.text.findings import cause_name
from kvchat.text.format import UNKNOWN, age, count, counted, duration, short_count, speed
from kvchat.ui.runs import Run, fit, width_of
from kvchat.ui.widgets.bars import bar, sparkline, split_cells
from kvchat.ui.widgets.status_text import Live

Line = Sequence[Run]

LABEL = 9
"""Cells of a name in front of a figure."""
NUMBER = 8
"""Cells of a number behind a bar."""
TURNS = 8
"""Turns that are shown at most."""
PARKED = 5
"""Conversations in the host cache that are named at most."""
SPARK = 12


def panel_lines(held: Holdings, open_id: str, live: Live | None, width: int, now: float) -> list[Line]:
    """All of the panel in lines of `width` cells. `open_id`: the conversation on the screen; `live`: its running
    answer; `now`: seconds since the epoch."""
    lines: list[Line] = [_head("Server's cache", "tokens", width)]
    lines += _slots(held, open_id, live, width, now)
    lines += _host_cache(held, open_id, width, now)
    lines += [[], _head("Last turns", f"cached{'TTFT':>9}", width), *_turns(held.turns, width)]
    lines += [[], [Run("Speed", "bright")], *_speeds(held, live, width)]
    return lines


def _head(name: str, columns: str, width: int) -> Line:
    """A name with the heads of the columns below it."""
    return [Run(name, "bright"), Run(columns.rjust(width - len(name)), "quiet")]


def _slots(held: Holdings, open_id: str, live: Live | None, width: int, now: float) -> Iterable[Line]:
    if held.slots is None:
        yield [Run(fit("unknown: this server does not tell", width), "quiet")]
        return
    states = {state.where: state for state in held.states}
    most = held.window or max((state.tokens for state in held.states), default=1)
    for number in range(held.slots):
        state = states.get(f"slot {number}")
        if state is not None and live is not None and live.progress is not None and state.conversation == open_id:
            state = replace(state, tokens=live.progress.processed + (live.tokens or 0))
        filled = bar(state.tokens / most if state else 0.0, width - LABEL - NUMBER - 2)
        tone = _tone(state, open_id) if state else "quiet"
        tokens = _number(state.tokens) if state else "empty"
        yield [
            Run(f"slot {number}".ljust(LABEL), "quiet"),
            Run("▕", "quiet"),
            Run(filled, tone),
            Run("▏", "quiet"),
            Run(f"{tokens:>{NUMBER}}", "plain" if state else "quiet"),
        ]
        if state is not None:
            yield _owner(state, open_id, width, now)


def _host_cache(held: Holdings, open_id: str, width: int, now: float) -> Iterable[Line]:
    """One bar for all of it, a part for each conversation; then their names."""
    parked = [state for state in held.states if "slot" not in state.where]
    if not parked:
        return
    whole = sum(state.tokens for state in parked)
    yield [
        Run("host cache".ljust(LABEL + 2), "quiet"),
        Run(f"{counted(len(parked), 'prompt')} · {short_count(whole)} tokens", "plain"),
    ]
    cells = split_cells([state.tokens for state in parked[:width]], whole, width)
    yield [
        Run("█▓"[at % 2] * wide, _tone(state, open_id))
        for at, (state, wide) in enumerate(zip(parked, cells, strict=False))
    ]
    for state in parked[:PARKED]:
        yield _owner(state, open_id, width, now, _number(state.tokens))
    if len(parked) > PARKED:
        yield [Run(f"  and {len(parked) - PARKED} more", "quiet")]


def _number(tokens: int) -> str:
    words = count(tokens)
    return words if len(words) <= NUMBER else short_count(tokens)


def _tone(state: HeldState, open_id: str) -> str:
    return "cached" if state.conversation and state.conversation == open_id else "other" if state.owner else "quiet"


def _owner(state: HeldState, open_id: str, width: int, now: float, tokens: str = "") -> Line:
    """Whose it is, how long it was not used, and how much of it there is."""
    here = bool(state.conversation) and state.conversation == open_id
    idle = f" · {age(now - state.since)}" if state.since is not None and now - state.since >= 60 else ""
    right = Run(f"{idle}{tokens and f'{tokens:>{NUMBER}}'}", "quiet")
    name = "this conversation" if here else one_line(state.owner) or "another client"
    left = [Run("  ", "plain"), Run(fit(name, width - 2 - width_of([right])), "plain" if here else "quiet")]
    return [*left, Run(" " * (width - width_of(left) - width_of([right])) if tokens else "", "plain"), right]


def _turns(turns: Sequence[TurnReport], width: int) -> Iterable[Line]:
    """The newest first: its number, where it is no further step of a turn, cached and prefilled tokens as a bar, the
    share cached, the time to the first token; below it why tokens were wasted."""
    if not turns:
        yield [Run("none yet", "quiet")]
    digits = len(str(len(turns)))
    for at in reversed(range(max(0, len(turns) - TURNS), len(turns))):
        turn, (of, requests) = turns[at].figures or TurnFigures(), turn_of(turns, at)
        number = of if at == requests.start else ""
        share = turn.hit_ratio
        ttft = UNKNOWN if turn.ttft_ms is None else duration(turn.ttft_ms / 1000)
        right = f"{UNKNOWN if share is None else round(share * 100):>4} %{ttft:>9}"
        room = width - digits - 1 - len(right)
        yield [Run(f"{number:>{digits}} ", "quiet"), *_turn_bar(turn, room), Run(right, "plain")]
        if turn.notable_waste and not turn.first_read:
            words = f"{count(turn.notable_waste)} wasted: {cause_name(turn.cause)}"
            yield [Run(" " * (digits + 1), "plain"), Run(fit(words, width - digits - 1), "wasted")]


def _turn_bar(turn: TurnFigures, room: int) -> Line:
    if turn.evaluated_tokens is None:
        return [Run(fit("not reported", room).ljust(room), "quiet")]
    wasted = 0 if turn.first_read else turn.notable_waste
    cached, again, new = split_cells(
        (turn.cached_tokens or 0, wasted, turn.evaluated_tokens - wasted), turn.prompt_tokens or 0, room
    )
    return [
        Run("█" * cached, "cached"),
        Run("░" * again, "wasted"),
        Run(("▒" * new).ljust(room - cached - again), "evaluated"),
    ]


def _speeds(held: Holdings, live: Live | None, width: int) -> Iterable[Line]:
    progress = live.progress if live is not None and live.first_token is None else None
    yield [
        Run("prefill".ljust(LABEL), "quiet"),
        *(
            _prefill(progress, width - LABEL)
            if progress is not None
            else [Run(fit(average_speed(held.speed), width - LABEL), "plain")]
        ),
    ]
    speeds = [turn.figures.decode_speed for turn in held.turns if turn.figures is not None][-SPARK:]
    if live is not None and live.first_token is not None and live.tokens and live.elapsed - live.first_token > 0.2:
        speeds = [*speeds, live.tokens / (live.elapsed - live.first_token)][-SPARK:]
    last = next((value for value in reversed(speeds) if value is not None), None)
    most = max((value for value in speeds if value is not None), default=1.0)
    shape = sparkline([None if value is None else value / most for value in speeds], len(speeds))
    words = "not measured yet" if last is None else speed(last)
    yield [Run("decode".ljust(LABEL), "quiet"), Run(words, "plain"), Run(f"  {shape}" if last else "", "evaluated")]


def _prefill(progress: PromptProgress, width: int) -> Line:
    done, new = max(0, progress.processed - progress.cached), max(0, progress.total - progress.cached)
    words = f"{done:,}/{new:,}" + (f" {progress.speed:,.0f}/s" if progress.speed else "")
    cells = max(0, width - len(words) - 3)
    return [
        Run("▕", "quiet"),
        Run(bar(done / new if new else 1.0, cells), "evaluated"),
        Run("▏ ", "quiet"),
        Run(words, "plain"),
    ]
