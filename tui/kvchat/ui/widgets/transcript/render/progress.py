"""Draw the rows of a prompt that is being prefilled or waited for.

There are three tones with three glyphs, and what is not known is shown as unknown. Numbers keep their width while they
count.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from kvchat.text import messages
from kvchat.text.format import count, counted, duration
from kvchat.ui.runs import Run

CACHED, EVALUATED, WASTED = ("█", "cached"), ("▒", "evaluated"), ("░", "wasted")
"""The glyphs of tokens, and their styles."""
_LABEL = "prefill "
WATCHED = 3
"""Cells of the bar that what has to be prefilled has at least."""
_UNWATCHED = frozenset({"closing", "connecting", "lane", "cancelled", "gone", "tool", "consent"})
"""Phases in which kvchat does not check whether the server is alive."""
_ALIVE = {True: "alive", False: "no answer to the last check", None: "not checked yet"}


def bar(parts: Sequence[tuple[float, str, str]], width: int) -> list[Run]:
    """A bar of `width` cells between its edges: (share of the whole, glyph, style) from the left, the rest empty."""
    inside = cells(parts, max(1, width - 2))
    empty = max(1, width - 2) - sum(len(run.text) for run in inside)
    return [Run("▕", "border"), *inside, Run(" " * empty), Run("▏", "border")]


def cells(parts: Sequence[tuple[float, str, str]], room: int) -> list[Run]:
    """(share of the whole, glyph, style) as cells of a bar of `room`, as far as the shares go. One that is not 0 has at
    least one cell as long as there is room."""
    runs: list[Run] = []
    used, total = 0, 0.0
    later = sum(share > 0 for share, _, _ in parts)
    for share, glyph, style in parts:
        total += share
        later -= share > 0
        number = min(room - later, max(round(total * room), used + (share > 0))) - used
        if number > 0:
            runs.append(Run(glyph * number, style))
            used += number
    return runs


def _fitting(words: Sequence[tuple[str, str]], width: int) -> list[Run]:
    """As many of the (text, style) words, most important first, as fit, with dots between."""
    runs: list[Run] = []
    for text, style in words:
        separator = " · " if runs else " "
        width -= cell_len(separator) + cell_len(text)
        if width < 0:
            break
        runs += [Run(separator, "muted"), Run(text, style)]
    return runs


def reading_row(
    width: int,
    *,
    total: int,
    cached: int,
    processed: int,
    speed: float | None = None,
    seconds_left: float | None = None,
    wasted: int = 0,
    only_new: bool = False,
    cause: str = "",
    estimated: bool = False,
) -> list[Run]:
    """A prompt of `total` tokens of which `processed` are done, `cached` of them reused. `wasted`: those to
    evaluate that are not new; they come first, with their `cause`. `speed`: tokens per second. `estimated`:
    `processed` is."""
    total = max(1, total)
    cached = min(max(0, cached), total)
    processed = min(max(cached, processed), total)
    evaluate, done = total - cached, processed - cached
    again = min(done, wasted)
    whole = count(evaluate)
    words = [
        ("reuse unknown" if only_new else f"{count(cached)} cached", "muted"),
        (f"{'~' * estimated + count(done):>{len(whole)}}/{whole} {'prefilled' if wasted else 'new'}", "muted"),
    ]
    if wasted:
        words.insert(0, (f"{count(wasted)} wasted{cause and f': {cause}'}", "warning"))
    words += [(f"{speed:,.0f} tok/s", "muted")] if speed else [("speed unknown", "muted")]
    if seconds_left is not None:
        words.append((f"{duration(seconds_left)} left", "muted"))
    bar_width = max(10, min(52, width // 2 - cell_len(_LABEL)))
    # In proportion; but however little is new, a few cells of it can be watched.
    share = min(cached / total, 1 - min(WATCHED / bar_width, 1 / 3)) if evaluate else 1.0
    per_token = (1 - share) / max(1, evaluate)
    parts = (
        (share if cached else 0.0, *CACHED),
        (again * per_token, *WASTED),
        ((done - again) * per_token, *EVALUATED),
    )
    return [Run(_LABEL, "muted"), *bar(parts, bar_width), *_fitting(words, width - cell_len(_LABEL) - bar_width)]


def unknown_reading_row(width: int, seconds: float, *, prompt_tokens: int | None = None) -> list[Run]:
    """A prompt that is being read by a server that does not say how far it is."""
    size = counted(prompt_tokens, "token") if prompt_tokens is not None else "size unknown"
    words = [("progress unknown", "muted"), (duration(seconds), "muted"), (size, "muted")]
    bar_width = max(10, min(52, width // 2 - cell_len(_LABEL)))
    return [Run(_LABEL, "muted"), *bar((), bar_width), *_fitting(words, width - cell_len(_LABEL) - bar_width)]


def offline_row(way: str, key: str) -> list[Run]:
    """A question waits for a server that is off; `way`: what else can be done, `key`: what cancels it. It takes a
    second row where it is too long for one. The status line shows how long it has waited."""
    return [
        Run("◌ ", "accent"),
        Run(f"Server offline · sends when it returns · {key} cancels · {way}", "muted"),
    ]


def waiting_row(
    width: int, phase: str, seconds: float, server_alive: bool | None = None, progress: str = ""
) -> list[Run]:
    """Nothing has come for a while: what is waited for and how far that is, whether the server lives, and for how
    long."""
    words = [
        (messages.WAITING.get(phase, "waiting for the server"), "muted"),
        *([(progress, "muted")] if progress else []),
    ]
    if phase not in _UNWATCHED:
        words.append((_ALIVE[server_alive], "warning" if server_alive is False else "muted"))
    text = ", ".join(word for word, _ in words)
    style = words[-1][1]
    time = f" · {duration(seconds)}"
    for shorter in (progress or words[0][0], words[0][0], "waiting"):
        if cell_len(text) + cell_len(time) + 2 > width:
            text = shorter
    return [Run("◌ ", "accent"), Run(text, style), Run(time, "muted")]
