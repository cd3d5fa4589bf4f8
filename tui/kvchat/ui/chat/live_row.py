"""The row under a running answer's question: how far the prompt is read, or what is waited for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kvchat.cache.accounting import TurnFigures, new_tokens
from kvchat.text.findings import cause_name
from kvchat.ui.render.progress import reading_row, unknown_reading_row, waiting_row
from kvchat.ui.render.rows import Span

if TYPE_CHECKING:
    from kvchat.chat.live import LiveAnswer

PATIENCE = 0.3
"""Seconds without news before the row says what is waited for: a warm answer starts without a flicker."""


def live_row(
    live: LiveAnswer, now: float, speed: float | None, previous: TurnFigures | None,
) -> Callable[[int], Sequence[Span]] | None:
    """What to draw below the conversation at `now` (monotonic seconds), or nothing once tokens come. `speed`: the
    measured prefill speed in tokens/s, for the time left before this prefill has a speed of its own."""
    seconds = now - live.sent_at
    waiting, progress = live.waiting, live.progress
    if live.first_token_at is not None:
        if waiting is None:
            return None
        return lambda width: waiting_row(width, waiting.phase, waiting.seconds, waiting.server_alive)
    if progress is not None:
        read_ms = progress.elapsed_ms or seconds * 1000
        current = replace(progress, elapsed_ms=read_ms)
        return lambda width: reading_row(
            width, total=current.total, cached=current.cached, processed=current.processed,
            speed=current.speed or speed, seconds_left=current.seconds_left(speed),
            new_tokens=None if current.only_new else new_tokens(current.total, previous, current.history),
            only_new=current.only_new, cause=cause_name(current.cause) if current.cause else "")
    if waiting is not None and waiting.phase not in ("prefill", "connecting"):
        return lambda width: waiting_row(width, waiting.phase, max(seconds, waiting.seconds), waiting.server_alive)
    if seconds < PATIENCE:
        return None
    if waiting is not None and waiting.phase == "connecting":
        return lambda width: waiting_row(width, "connecting", seconds, None)
    return lambda width: unknown_reading_row(width, seconds)
