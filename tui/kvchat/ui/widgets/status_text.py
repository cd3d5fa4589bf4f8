"""What the status line says about the cache: one sentence for each case a turn can end in, and one while it runs.

The rule: figures are the server's. What it did not report is said to be unknown, never shown as 0; wasted tokens
are mentioned only above the noise. Pure functions of the figures and the width of the
screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvchat.cache.accounting import NOISE, PromptProgress, TurnFigures, measured_speed, seconds_saved
from kvchat.cache.speed import SpeedFit
from kvchat.prompt.message import State
from kvchat.sanitize import one_line
from kvchat.text.cache import (
    UNREPORTED,
    notable_waste,
    reuse_percent,
    roughly,
    short_parts,
    spark_values,
    wasted_words,
)
from kvchat.text.findings import cause_name
from kvchat.text.format import duration, short_count
from kvchat.ui.widgets.pieces import Piece, Pieces, fit, joined, sparkline, width_of

SHORT = 100
"""Columns below which the short form is used."""
PADDING = 2
"""Cells of the line that stay empty."""
SPARK = 10
"""Turns in the sparkline."""
WARM_UP_CELLS = (3, 12)
"""The fewest and the most cells in the bar of a conversation that is prefilled ahead."""
_DOT = Piece(" · ", "quiet")


@dataclass(frozen=True, slots=True)
class Live:
    """A running answer, as the status line needs it."""

    elapsed: float
    """Seconds since the send."""
    progress: PromptProgress | None = None
    first_token: float | None = None
    """Seconds from the send to the first token; None before it."""
    tokens: int | None = None
    """Tokens of the answer so far."""
    estimated: bool = False
    """Whether `tokens` is counted from the text."""
    waiting: str = ""
    """What is waited for, in a few words, when nothing comes."""
    stopping: bool = False
    doing: str = "answering"
    """What the model does once tokens come."""


def settled(turns: Sequence[TurnFigures], width: int, *, state: State = State.DONE, seen: bool = False,
            key: str = "F2", brief: bool = False, server: SpeedFit | None = None) -> list[Piece]:
    """The line after the last of `turns` (oldest first, one branch). `state` is how that turn ended. Its wasted
    tokens are a sentence with their cause until it was `seen`; `key` leads to more. `brief`: without what was saved;
    `server`: the prefill speed of the one that answered."""
    if not turns:
        return [Piece("ready", "quiet")]
    turn = turns[-1]
    if turn.evaluated_tokens is None:
        return _unreported(turns, width, state)
    if turn.first_read:
        return _first_read(turn, width)
    if turn.reuse is None:
        return _without_history(turns, width)
    if notable_waste(turn) and not seen:
        return _wasted(turns, width, key)
    return _cached(turns, width, brief, server)


def _head(turns: Sequence[TurnFigures]) -> list[Piece]:
    """`reuse 100 %  ▁▇████`, always equally wide."""
    percent = reuse_percent(turns[-1])
    shown = "  –" if percent is None else f"{roughly(turns[-1]) + str(percent):>3}"
    tone: Piece = Piece(f"{shown} %", "warning" if notable_waste(turns[-1]) else "strong")
    return [Piece("reuse ", "quiet"), tone, Piece("  " + sparkline(spark_values(list(turns)), SPARK) + "  ", "spark")]


def _cached(
    turns: Sequence[TurnFigures], width: int, brief: bool, server: SpeedFit | None,
) -> list[Piece]:
    turn = turns[-1]
    cached, new = turn.cached_tokens or 0, turn.needed_tokens or 0
    if width < SHORT:
        return _short(turn, [Piece("reuse ", "quiet"), Piece(f"{roughly(turn)}{reuse_percent(turn):>3} %", "strong")],
                      short_parts(turn))
    saved = seconds_saved(turn, server or measured_speed(turns))
    again = notable_waste(turn)
    groups: list[Pieces] = [
        [Piece(f"{roughly(turn) + f'{cached:,}':>6}", "cached"), Piece(" cached", "quiet")],
        [Piece(f"{roughly(turn) + f'{new:,}':>5}", "new"), Piece(" new", "quiet")],
        [Piece(f"{again:,} wasted", "warning")] if again else [],
        _ttft(turn),
        [Piece("saved ", "quiet"), Piece(duration(saved))] if saved and cached and not brief else [],
    ]
    return _head(turns) + joined(groups, _DOT)


def _wasted(turns: Sequence[TurnFigures], width: int, key: str) -> list[Piece]:
    turn = turns[-1]
    head = _head(turns) if width >= SHORT else [Piece(f"reuse {reuse_percent(turn):>3} % · ", "warning")]
    more = [Piece(f"  {key}", "accent"), Piece(" why", "quiet")] if key else []
    room = width - PADDING - width_of([*head, *more])
    return [*head, Piece(fit(wasted_words(turn), room), "warning"), *more]


def _first_read(turn: TurnFigures, width: int) -> list[Piece]:
    prompt, cached, evaluated = turn.prompt_tokens or 0, turn.cached_tokens or 0, turn.evaluated_tokens or 0
    ms = turn.prompt_ms or turn.ttft_ms
    took = f" in {duration(ms / 1000)}" if ms else ""
    shared = cached > NOISE
    pieces = [Piece(f"{evaluated if shared else prompt:,} new tokens{took}", "new")]
    if shared:
        pieces += [_DOT, Piece(f"{cached:,} cached", "cached")]
    if width >= SHORT:
        return pieces + ([_DOT, *_ttft(turn)] if turn.ttft_ms is not None else [])
    return pieces + _context(turn)


def _unreported(turns: Sequence[TurnFigures], width: int, state: State) -> list[Piece]:
    turn = turns[-1]
    if state in (State.CANCELLED, State.INTERRUPTED, State.ERROR) and turn.prompt_tokens is None:
        what = {State.CANCELLED: "stopped", State.INTERRUPTED: "cut off"}.get(state, "ended")
        return [Piece(f"{what} before the server reported its figures", "quiet")]
    if width < SHORT:
        return _short(turn, [Piece(f"reuse {UNREPORTED}", "quiet")], "")
    prompt: Pieces = [] if turn.prompt_tokens is None else [Piece(f"{turn.prompt_tokens:,}"),
                                                            Piece(" prompt tokens", "quiet")]
    return joined([[Piece("reuse ", "quiet"), Piece(UNREPORTED)], prompt, _ttft(turn)], _DOT)


def _without_history(turns: Sequence[TurnFigures], width: int) -> list[Piece]:
    """The turn before is unknown (stopped early): how much was new cannot be told, how much came warm can."""
    turn = turns[-1]
    cached, evaluated = turn.cached_tokens or 0, turn.evaluated_tokens or 0
    if width < SHORT:
        return _short(turn, [Piece("reuse unknown", "quiet")], short_parts(turn))
    return _head(turns) + joined([
        [Piece(f"{cached:>6,}", "cached"), Piece(" cached", "quiet")],
        [Piece(f"{evaluated:>5,}", "new"), Piece(" prefilled", "quiet")], _ttft(turn)], _DOT)


def _ttft(turn: TurnFigures) -> list[Piece]:
    if turn.ttft_ms is None:
        return []
    return [Piece("TTFT ", "quiet"), Piece(f"{duration(turn.ttft_ms / 1000):>6}")]


def _context(turn: TurnFigures) -> list[Piece]:
    if not turn.context_size or turn.context_used is None:
        return []
    return [_DOT, Piece("ctx ", "quiet"), Piece(f"{min(999, round(turn.context_used * 100 / turn.context_size))} %")]


def _short(turn: TurnFigures, head: Pieces, tokens: str) -> list[Piece]:
    """`reuse 100 % · 3,764 cached · 48 new · 0.14 s · ctx 47 %`"""
    middle: Pieces = [Piece(tokens)] if tokens else []
    ttft: Pieces = [] if turn.ttft_ms is None else [Piece(duration(turn.ttft_ms / 1000))]
    return joined([head, middle, ttft], _DOT) + _context(turn)


def warm_up_pieces(progress: PromptProgress | None, room: int) -> list[Piece]:
    """`warm-up ▕██▒▒ ▏ 1,204/3,400`, quiet, while a conversation is read before the person sends; with the cause
    in front where it was warm and is not any more. The bar takes what is left of `room` cells, and is left out when
    that is little."""
    cause = f"{cause_name(progress.cause)}: " if progress is not None and progress.cause else ""
    words = [Piece(f"{cause}warm-up", "quiet")]
    if progress is None or progress.total <= progress.cached:
        return [*words, Piece(" …", "quiet")]
    done, whole = max(0, progress.processed - progress.cached), progress.total - progress.cached
    count = Piece(f" {done:>{len(f'{whole:,}')},}/{whole:,}", "quiet")
    size = min(WARM_UP_CELLS[1], room - width_of([*words, count]) - 3)
    if size >= WARM_UP_CELLS[0]:
        cells = [min(size, round(part / progress.total * size)) for part in (progress.cached, progress.processed)]
        words += [Piece(" ▕", "quiet"), Piece("█" * cells[0], "cached"), Piece("▒" * (cells[1] - cells[0]), "quiet"),
                  Piece(" " * (size - cells[1]) + "▏", "quiet")]
    return [*words, count]


def remembered(words: str, key: str, room: int) -> list[Piece]:
    """`memory: 2 noted (F5)`, quiet, in at most `room` cells; without its words where that is little."""
    if not words:
        return []
    whole = [Piece(f"memory: {one_line(words)}", "quiet"), *([Piece(f" ({key})", "quiet")] if key else [])]
    short = [Piece(f"memory {key}".rstrip(), "quiet")]
    return next((pieces for pieces in (whole, short) if width_of(pieces) <= room), [])


def together(room: int, *remarks: Pieces) -> list[Piece]:
    """The remarks at the right end, in at most `room` cells: the first ones give way."""
    for first in range(len(remarks)):
        kept = joined(remarks[first:], _DOT)
        if kept and width_of(kept) <= room:
            return kept
    return joined([one for one in remarks if one and width_of(one) <= room][:1], _DOT)


def running(live: Live, width: int) -> list[Piece]:
    """The line while an answer runs: what it waits for, how far the prompt is read, or how fast the answer comes.
    Numbers keep their places."""
    short = width < SHORT
    clock = Piece(f"{duration(live.elapsed):>7}", "quiet")
    if live.stopping:
        return [Piece("stopping… ", "quiet"), clock]
    if live.first_token is not None:
        return _answering(live, short, clock)
    if live.progress is not None and not live.waiting:
        return _reading(live.progress, short, clock)
    return [Piece(one_line(live.waiting) or "waiting for the server", "quiet"), Piece(" …", "quiet"), clock]


def _answering(live: Live, short: bool, clock: Piece) -> list[Piece]:
    groups: list[Pieces] = [[Piece(live.doing, "accent")]]
    if live.tokens is not None:
        about = "~" if live.estimated else ""
        spent = live.elapsed - (live.first_token or 0.0)
        speed = f"{live.tokens / spent:.1f}" if spent > 0.2 and live.tokens > 1 else "–"
        groups.append([Piece(f"{speed:>6}"), Piece(" tok/s", "quiet")])
        groups.append([Piece(f"{about + format(live.tokens, ','):>6}"), Piece(" tok" if short else " tokens", "quiet")])
    groups.append([clock])
    if live.first_token is not None and not short:
        groups.append([Piece("TTFT ", "quiet"), Piece(duration(live.first_token))])
    return joined(groups, _DOT)


def _reading(progress: PromptProgress, short: bool, clock: Piece) -> list[Piece]:
    done, new = max(0, progress.processed - progress.cached), max(0, progress.total - progress.cached)
    if short:
        cached = "" if progress.only_new else f" (+{short_count(progress.cached)} cached)"
        return joined([[Piece("prefill ", "accent"), Piece(f"{done:>{len(str(new))}}/{new}"), Piece(cached, "quiet")],
                       [clock]], _DOT)
    total = f"{new:,}"
    groups: list[Pieces] = [
        [Piece("prefill", "accent")],
        [Piece("–" if progress.only_new else f"{progress.cached:>6,}", "cached"), Piece(" cached", "quiet")],
        [Piece(f"{done:>{len(total)},}/{total}", "new"), Piece(" new", "quiet")],
        [clock],
    ]
    left = progress.seconds_left()
    if left is not None and left >= 1:
        groups.append([Piece(f"about {duration(left)} left", "quiet")])
    return joined(groups, _DOT)
