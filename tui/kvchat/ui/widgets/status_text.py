"""What the status line says about the cache: one sentence for each case a turn can end in, and one while it runs.

The rule: figures are the server's. What it did not report is said to be unknown, never shown as 0; avoidable tokens
are mentioned only above the noise. Pure functions of the figures and the width of the
screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvchat.cache.accounting import NOISE, PromptProgress, TurnFigures, measured_speed
from kvchat.display import one_line
from kvchat.prompt.message import State
from kvchat.ui.widgets.cells import fit, short_count, sparkline
from kvchat.ui.widgets.pieces import Piece, Pieces, joined, width_of

SHORT = 100
"""Columns below which the short form is used."""
PADDING = 2
"""Cells of the line that stay empty."""
SPARK = 10
"""Turns in the sparkline."""
NOT_REPORTED = "not reported by this server"
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


def seconds(value: float) -> str:
    """A duration: 0.14 s, 6.2 s, 35.0 s, 2 min 17 s."""
    if value < 0.995:
        return f"{value:.2f} s"
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60:02} s"


def reuse_percent(turn: TurnFigures) -> int | None:
    """The turn's reuse in percent; 100 when nothing worth a word was read again, and only then."""
    if turn.reuse is None:
        return None
    return min(round(turn.reuse * 100), 99) if _wasted(turn) else 100


def _wasted(turn: TurnFigures) -> int:
    """Avoidable tokens worth a word."""
    avoidable = turn.avoidable_tokens or 0
    return avoidable if avoidable > NOISE else 0


def spark_values(turns: Sequence[TurnFigures]) -> list[float | None]:
    """The turns' reuse for the sparkline: a first read had nothing to reuse and shows as 0, unknown as None."""
    return [0.0 if t.first_read and t.cached_tokens is not None else t.reuse for t in turns]


def settled(turns: Sequence[TurnFigures], width: int, *, state: State = State.DONE, cause: str = "",
            seen: bool = False) -> list[Piece]:
    """The line after the last of `turns` (oldest first, one branch). `state` is how that turn ended, `cause` the
    sentence that explains its avoidable tokens; once it was `seen` the figures come back."""
    if not turns:
        return [Piece("nothing read yet", "quiet")]
    turn = turns[-1]
    if turn.evaluated_tokens is None:
        return _unreported(turns, width, state)
    if turn.first_read:
        return _first_read(turn, width)
    if turn.reuse is None:
        return _without_history(turns, width)
    if _wasted(turn) and not seen:
        return _avoidable(turns, width, cause)
    return _reused(turns, width)


def _head(turns: Sequence[TurnFigures]) -> list[Piece]:
    """`reuse 100 %  ▁▇████`, always equally wide."""
    percent = reuse_percent(turns[-1])
    shown = "  –" if percent is None else f"{percent:>3}"
    tone: Piece = Piece(f"{shown} %", "warning" if _wasted(turns[-1]) else "strong")
    return [Piece("reuse ", "quiet"), tone, Piece("  " + sparkline(spark_values(turns), SPARK) + "  ", "spark")]


def _reused(turns: Sequence[TurnFigures], width: int) -> list[Piece]:
    turn = turns[-1]
    cached, new = turn.cached_tokens or 0, turn.new_tokens or 0
    if width < SHORT:
        return _short(turn, [Piece("reuse ", "quiet"), Piece(f"{reuse_percent(turn):>3} %", "strong")],
                      f"{cached:,}+{new:,}")
    speed = measured_speed(turns) or turn.prefill_speed
    wasted = _wasted(turn)
    groups: list[Pieces] = [
        [Piece(f"{cached:>6,}", "reused"), Piece(" reused", "quiet")],
        [Piece(f"{new:>5,}", "new"), Piece(" new", "quiet")],
        [Piece(f"{wasted:,} avoidable", "warning")] if wasted else [],
        _ttft(turn),
        [Piece("saved ", "quiet"), Piece(seconds(cached / speed))] if speed and cached else [],
    ]
    return _head(turns) + joined(groups, _DOT)


def _avoidable(turns: Sequence[TurnFigures], width: int, cause: str) -> list[Piece]:
    turn = turns[-1]
    wasted = _wasted(turn)
    speed = turn.prefill_speed or measured_speed(turns)
    cost = f" ({seconds(wasted / speed)})" if speed else ""
    why = one_line(cause).rstrip(".")
    sentence = f"{wasted:,} avoidable{cost}: {why}." if why else f"{wasted:,} tokens were read again{cost}."
    head = _head(turns) if width >= SHORT else [Piece(f"reuse {reuse_percent(turn):>3} % · ", "warning")]
    key = Piece("  F2 shows each turn", "quiet")
    room = width - PADDING - width_of([*head, key])
    return [*head, Piece(fit(sentence, room), "warning"), key]


def _first_read(turn: TurnFigures, width: int) -> list[Piece]:
    prompt, cached, evaluated = turn.prompt_tokens or 0, turn.cached_tokens or 0, turn.evaluated_tokens or 0
    ms = turn.prompt_ms or turn.ttft_ms
    took = f" in {seconds(ms / 1000)}" if ms else ""
    shared = cached > NOISE
    tokens = f"{evaluated:,} of {prompt:,} tokens" if shared else f"{prompt:,} tokens"
    pieces = [Piece("first read: ", "quiet"), Piece(tokens + took, "new")]
    if width >= SHORT:
        if shared:
            pieces.append(Piece(f" · {cached:,} were warm already", "reused"))
        return pieces + ([_DOT, *_ttft(turn)] if turn.ttft_ms is not None else [])
    return pieces + _context(turn)


def _unreported(turns: Sequence[TurnFigures], width: int, state: State) -> list[Piece]:
    turn = turns[-1]
    if state in (State.CANCELLED, State.INTERRUPTED, State.ERROR) and turn.prompt_tokens is None:
        what = {State.CANCELLED: "stopped", State.INTERRUPTED: "cut off"}.get(state, "ended")
        return [Piece(f"{what} before the server reported its figures", "quiet")]
    if width < SHORT:
        return _short(turn, [Piece(f"reuse {NOT_REPORTED}", "quiet")], "")
    prompt: Pieces = [] if turn.prompt_tokens is None else [Piece(f"{turn.prompt_tokens:,}"),
                                                            Piece(" prompt tokens", "quiet")]
    return joined([[Piece("reuse ", "quiet"), Piece(NOT_REPORTED)], prompt, _ttft(turn)], _DOT)


def _without_history(turns: Sequence[TurnFigures], width: int) -> list[Piece]:
    """The turn before is unknown (stopped early): how much was new cannot be told, how much came warm can."""
    turn = turns[-1]
    cached, evaluated = turn.cached_tokens or 0, turn.evaluated_tokens or 0
    if width < SHORT:
        return _short(turn, [Piece("reuse   – %", "quiet")], f"{cached:,}+{evaluated:,}")
    return _head(turns) + joined([
        [Piece(f"{cached:>6,}", "reused"), Piece(" reused", "quiet")],
        [Piece(f"{evaluated:>5,}", "new"), Piece(" read", "quiet")], _ttft(turn)], _DOT)


def _ttft(turn: TurnFigures) -> list[Piece]:
    return [] if turn.ttft_ms is None else [Piece("first token ", "quiet"), Piece(f"{seconds(turn.ttft_ms / 1000):>6}")]


def _context(turn: TurnFigures) -> list[Piece]:
    if not turn.context_size or turn.context_used is None:
        return []
    return [_DOT, Piece("ctx ", "quiet"), Piece(f"{min(999, round(turn.context_used * 100 / turn.context_size))} %")]


def _short(turn: TurnFigures, head: Pieces, tokens: str) -> list[Piece]:
    """`reuse 100 % · 3,764+48 · 0.14 s · ctx 47 %`"""
    middle: Pieces = [Piece(tokens)] if tokens else []
    ttft: Pieces = [] if turn.ttft_ms is None else [Piece(seconds(turn.ttft_ms / 1000))]
    return joined([head, middle, ttft], _DOT) + _context(turn)


def running(live: Live, width: int) -> list[Piece]:
    """The line while an answer runs: what it waits for, how far the prompt is read, or how fast the answer comes.
    Numbers keep their places."""
    short = width < SHORT
    clock = Piece(f"{seconds(live.elapsed):>7}", "quiet")
    if live.stopping:
        return [Piece("stopping… ", "quiet"), clock]
    if live.first_token is not None:
        return _answering(live, short, clock)
    if live.progress is not None and not live.waiting:
        return _reading(live.progress, short, clock)
    return [Piece(one_line(live.waiting) or "waiting for the server", "quiet"), Piece(" …", "quiet"), clock]


def _answering(live: Live, short: bool, clock: Piece) -> list[Piece]:
    groups: list[Pieces] = [[Piece("answering", "accent")]]
    if live.tokens is not None:
        about = "~" if live.estimated else ""
        spent = live.elapsed - (live.first_token or 0.0)
        speed = f"{live.tokens / spent:.1f}" if spent > 0.2 and live.tokens > 1 else "–"
        groups.append([Piece(f"{speed:>6}"), Piece(" tok/s", "quiet")])
        groups.append([Piece(f"{about + format(live.tokens, ','):>6}"), Piece(" tok" if short else " tokens", "quiet")])
    groups.append([clock])
    if live.first_token is not None and not short:
        groups.append([Piece("first token ", "quiet"), Piece(seconds(live.first_token))])
    return joined(groups, _DOT)


def _reading(progress: PromptProgress, short: bool, clock: Piece) -> list[Piece]:
    done, new = max(0, progress.processed - progress.cached), max(0, progress.total - progress.cached)
    if short:
        return joined([[Piece("reading", "accent")],
                       [Piece(f"{short_count(progress.cached)}+{done:>{len(str(new))}}/{new}")], [clock]], _DOT)
    total = f"{new:,}"
    groups: list[Pieces] = [
        [Piece("reading", "accent")],
        [Piece(f"{progress.cached:>6,}", "reused"), Piece(" reused", "quiet")],
        [Piece(f"{done:>{len(total)},}/{total}", "new"), Piece(" new", "quiet")],
        [clock],
    ]
    left = progress.seconds_left()
    if left is not None and left >= 1:
        groups.append([Piece(f"about {seconds(left)} left", "quiet")])
    return joined(groups, _DOT)
