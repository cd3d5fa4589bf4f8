"""The text of the status line about the cache: one sentence for each case a turn can end in, and one while it runs.

Figures are the server's. What it did not report is said to be unknown, never shown as 0; wasted tokens are mentioned
only above the noise. Pure functions of the figures and the width of the screen.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kvchat.figures.accounting import PromptProgress, TurnFigures
from kvchat.prompt.message import State
from kvchat.sanitize import one_line
from kvchat.text.cache import UNREPORTED, cause_is_unknown, roughly, token_parts, wasted_words
from kvchat.text.findings import cause_name
from kvchat.text.format import duration, short_count
from kvchat.ui.runs import Run, Runs, fit, joined, width_of

SHORT = 100
"""Columns below which the short form is used."""
PADDING = 2
"""Cells of the line that stay empty."""
WARM_UP_CELLS = (3, 12)
"""The fewest and the most cells in the bar of a conversation that is prefilled ahead."""
_DOT = Run(" · ", "quiet")


class Live(Struct, frozen=True):
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


def settled(
    turns: Sequence[TurnFigures],
    width: int,
    *,
    state: State = State.DONE,
    seen: bool = False,
    key: str = "F2",
    ready: bool = True,
) -> list[Run]:
    """The line after the last of `turns` (oldest first, one branch). `state` is how that turn ended. Its wasted
    tokens are a sentence with their cause until it was `seen`; `key` leads to more. `ready`: whether the server
    has answered, for a branch without turns."""
    if not turns:
        return [Run("ready", "quiet")] if ready else []
    turn = turns[-1]
    if turn.evaluated_tokens is None:
        return _unreported(turn, state)
    if turn.notable_waste and not seen:
        return _wasted(turn, width, key)
    return joined([*_tokens(turn), _ttft(turn)], _DOT)


def _tokens(turn: TurnFigures) -> Sequence[Runs]:
    """`662 tokens cached`, `21 new`, and what was wasted, if anything worth a word was."""
    (cached, label), (fresh, kind), *_ = token_parts(turn)
    lost, about = turn.notable_waste, roughly(turn)
    return [
        [Run(f"{about}{cached}", "cached"), Run(f" tokens {label}", "quiet")],
        [Run(f"{about}{fresh}", "new"), Run(f" {kind}", "quiet")],
        [Run(f"{about}{lost:,} wasted", "alert")] if lost else [],
    ]


def _wasted(turn: TurnFigures, width: int, key: str) -> list[Run]:
    more = [Run(f"  {key}", "accent"), Run(" details" if cause_is_unknown(turn) else " why", "quiet")] if key else []
    return [Run(fit(wasted_words(turn), width - PADDING - width_of(more)), "alert"), *more]


def _unreported(turn: TurnFigures, state: State) -> list[Run]:
    if state in (State.CANCELLED, State.INTERRUPTED, State.ERROR) and turn.prompt_tokens is None:
        what = {State.CANCELLED: "stopped", State.INTERRUPTED: "cut off"}.get(state, "ended")
        return [Run(f"{what} before the server reported its figures", "quiet")]
    prompt: Runs = (
        [] if turn.prompt_tokens is None else [Run(f"{turn.prompt_tokens:,}", "plain"), Run(" prompt tokens", "quiet")]
    )
    return joined([prompt, [Run(f"cached: {UNREPORTED}", "quiet")], _ttft(turn)], _DOT)


def _ttft(turn: TurnFigures) -> list[Run]:
    return [] if turn.ttft_ms is None else [Run("TTFT ", "quiet"), Run(duration(turn.ttft_ms / 1000), "plain")]


def warm_up_runs(progress: PromptProgress | None, room: int) -> list[Run]:
    """`warm-up ▕▒▒▒ ▏ 1,204/3,400`, quiet, while a conversation is prefilled before the user sends; with the cause in
    front where it was warm and is not any more. The bar takes what is left of `room` cells, and is left out when that
    is little."""
    cause = f"{cause_name(progress.cause)}: " if progress is not None and progress.cause else ""
    words = [Run(f"{cause}warm-up", "quiet")]
    if progress is None or progress.total <= progress.cached:
        return [*words, Run(" …", "quiet")]
    done, whole = max(0, progress.processed - progress.cached), progress.total - progress.cached
    count = Run(f" {done:>{len(f'{whole:,}')},}/{whole:,}", "quiet")
    size = min(WARM_UP_CELLS[1], room - width_of([*words, count]) - 3)
    if size >= WARM_UP_CELLS[0]:
        words.append(Run(f" ▕{'▒' * min(size, round(done / whole * size)):<{size}}▏", "quiet"))
    return [*words, count]


def remembered(words: str, key: str, room: int) -> list[Run]:
    """`memory: 2 noted (F5)`, quiet, in at most `room` cells; without its words where that is little."""
    if not words:
        return []
    whole = [Run(f"memory: {one_line(words)}", "quiet"), *([Run(f" ({key})", "quiet")] if key else [])]
    short = [Run(f"memory {key}".rstrip(), "quiet")]
    return next((runs for runs in (whole, short) if width_of(runs) <= room), [])


def together(room: int, *remarks: Runs) -> list[Run]:
    """The remarks at the right end, in at most `room` cells: the first ones give way."""
    for first in range(len(remarks)):
        kept = joined(remarks[first:], _DOT)
        if kept and width_of(kept) <= room:
            return kept
    return joined([one for one in remarks if one and width_of(one) <= room][:1], _DOT)


def running(live: Live, width: int) -> list[Run]:
    """The line while an answer runs: what it waits for, how far the prompt is read, or how fast the answer comes.
    Numbers keep their places."""
    short = width < SHORT
    clock = Run(f"{duration(live.elapsed):>7}", "quiet")
    if live.stopping:
        return [Run("stopping… ", "quiet"), clock]
    if live.first_token is not None:
        return _answering(live, short, clock)
    if live.progress is not None and not live.waiting:
        return _reading(live.progress, short, clock)
    return [Run(one_line(live.waiting) or "waiting for the server", "quiet"), Run(" …", "quiet"), clock]


def _answering(live: Live, short: bool, clock: Run) -> list[Run]:
    groups: list[Runs] = [[Run(live.doing, "accent")]]
    if live.tokens is not None:
        about = "~" if live.estimated else ""
        spent = live.elapsed - (live.first_token or 0.0)
        speed = f"{live.tokens / spent:.1f}" if spent > 0.2 and live.tokens > 1 else "–"
        groups.append([Run(f"{speed:>6}", "plain"), Run(" tok/s", "quiet")])
        groups.append(
            [Run(f"{about + format(live.tokens, ','):>6}", "plain"), Run(" tok" if short else " tokens", "quiet")]
        )
    groups.append([clock])
    if live.first_token is not None and not short:
        groups.append([Run("TTFT ", "quiet"), Run(duration(live.first_token), "plain")])
    return joined(groups, _DOT)


def _reading(progress: PromptProgress, short: bool, clock: Run) -> list[Run]:
    done, new = max(0, progress.processed - progress.cached), max(0, progress.total - progress.cached)
    count = f"{'~' * progress.estimated}{done:,}"
    if short:
        cached = "" if progress.only_new else f" (+{short_count(progress.cached)} cached)"
        return joined(
            [
                [
                    Run("prefill ", "accent"),
                    Run(f"{count.replace(',', ''):>{len(str(new))}}/{new}", "plain"),
                    Run(cached, "quiet"),
                ],
                [clock],
            ],
            _DOT,
        )
    total = f"{new:,}"
    groups: list[Runs] = [
        [Run("prefill", "accent")],
        [Run("–" if progress.only_new else f"{progress.cached:>6,}", "cached"), Run(" cached", "quiet")],
        [
            Run(f"{count:>{len(total)}}/{total}", "new"),
            Run(" prefilled" if progress.wasted else " new", "quiet"),
        ],
        [clock],
    ]
    left = progress.seconds_left()
    if left is not None and left >= 1:
        groups.append([Run(f"about {duration(left)} left", "quiet")])
    return joined(groups, _DOT)
