"""The text of the header: conversation, model and where it runs at the left, how full the window is at the right.

The place that the text is sent to is always in words; a cloud server is never quiet. Pure functions of (state, width).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from rich.cells import cell_len

from kvchat.sanitize import one_line
from kvchat.text.servers import model_name
from kvchat.ui.runs import Run, Runs, cut, fit, joined, width_of
from kvchat.ui.widgets.bars import bar

HOSTS = {"loopback": "this machine", "lan": "LAN", "tailnet": "tailnet", "cloud": "cloud"}
"""The classes of hosts in words."""
_PHASES = {
    "none": "no server",
    "connecting": "connecting…",
    "starting": "starting engine…",
    "lost": "connection lost",
    "failed": "no server",
}
_DOT = Run(" · ", "quiet")
NAME = 8
"""Cells that a model's name keeps."""
EARLY, NEARLY_FULL, FULL = 0.7, 0.85, 0.95
"""Shares of the window from which the meter warns, and warns louder."""


class HeaderState(Struct, frozen=True):
    """All the header shows."""

    model: str = ""
    """As the server names it; of a path the file's name is shown."""
    kind: str = ""
    """The kind of server: llama.cpp, openai."""
    host_class: str = "loopback"
    """loopback, lan, tailnet or cloud."""
    phase: str = "ready"
    """none, connecting, starting, ready, lost or failed."""
    sentence: str = ""
    """What the connection says about itself, when it is not ready."""
    embedded: bool = False
    """Whether the engine is kvchat's own."""
    context_used: int | None = None
    context_is_exact: bool = True
    """False: `context_used` is an estimate."""
    context_size: int | None = None
    incognito: bool = False
    title: str = ""
    """Of the conversation; empty: it has none yet."""


def left(state: HeaderState, width: int) -> list[Run]:
    """`TITLE   MODEL · llama.cpp · this machine` in at most `width` cells: the kind of server gives way first, then the
    ends of title and model. Without a title the program's name is there."""
    name, place = model_name(state.model), _place(state)
    title = fit(one_line(state.title), max(12, min(width // 2, width - width_of(place[-1:]) - NAME - 9)))
    mark = [Run(title, "bright") if title else Run("kvchat", "accent")]
    if state.incognito:
        mark += [Run(" ", "plain"), Run(" incognito ", "badge")]
    if state.phase in _PHASES:
        return cut([*mark, Run("   ", "plain"), *_connection(state)], width)
    room = width - width_of(mark) - 6
    if cell_len(name) > room - width_of(place):
        place = place[-1:]  # where it runs stays
    name = fit(name, max(NAME, room - width_of(place)))
    return cut(
        [
            *mark,
            Run("   ", "plain"),
            *joined([[Run(name, "plain" if title else "bright")] if name else [], place], _DOT),
        ],
        width,
    )


def _connection(state: HeaderState) -> Runs:
    tone = "alert" if state.phase in ("lost", "failed", "none") else "plain"
    if state.phase in ("connecting", "starting") and state.sentence:
        return [Run(one_line(state.sentence), tone)]  # it says so
    runs = [Run(_PHASES[state.phase], tone)]
    if state.sentence:
        runs.append(Run("  " + one_line(state.sentence), "quiet"))
    elif state.model:
        runs.append(Run("  " + model_name(state.model), "quiet"))
    return runs


def _place(state: HeaderState) -> list[Run]:
    kind = "built-in engine" if state.embedded else one_line(state.kind)
    host = HOSTS.get(state.host_class, one_line(state.host_class))
    where = Run(f" {host} ", "badge") if state.host_class == "cloud" else Run(host, "quiet")
    return joined([[Run(kind, "quiet")] if kind else [], [where]], _DOT)


def documents(words: Sequence[str], room: int) -> list[Run]:
    """The first of the ways to say what is searched that fits in `room` cells; nothing where none does."""
    fitting = (one_line(text) for text in words if cell_len(one_line(text)) + 2 <= room)
    return [Run(f"{text}  ", "accent")] if (text := next(fitting, "")) else []


def meter(state: HeaderState, width: int, *, bar_shown: bool = True) -> list[Run]:
    """`context ▕███▍   ▏ 3,812/8,192 tokens`, with a sign in front when the window fills up: fixed width for a given
    window; unknown parts are –."""
    used, size = state.context_used, state.context_size
    if used is None and size is None:
        return []
    total = "–" if size is None else f"{size:,}"
    said = "–" if used is None else f"{'' if state.context_is_exact else '~'}{used:,}"
    count = f"{said:>{max(len(total), 6)}}/{total}"
    tokens = Run(" tokens" if width >= 100 else "", "quiet")
    if not size:
        return [Run("context ", "quiet"), Run(count, "plain"), tokens]
    share = (used or 0) / size
    loud = "failure" if share >= FULL else "alert" if share >= EARLY else "quiet"
    sign = Run("▲ " if share >= NEARLY_FULL else "△ " if share >= EARLY else "  ", loud)
    filled = Run(bar(share, 16 if width >= 150 else 8), loud)
    tone = loud if share >= NEARLY_FULL else "plain"
    if not bar_shown:
        return [*([sign] if loud != "quiet" else []), Run(count.strip(), tone), Run(" tokens", "quiet")]
    return [sign, Run("context ▕", "quiet"), filled, Run("▏", "quiet"), Run(count, tone), tokens]
