"""The figures that come with an answer. One that was not reported is None, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from kvchat.backends.dialect import MOST_TOKENS, Reported
from kvchat.backends.http.payload import count_at, figure_at, figures_at
from kvchat.backends.kinds import Timings
from kvchat.figures.accounting import PromptProgress

_T = TypeVar("_T", int, float)


class AnswerFigures:
    """What a server has reported of one answer."""

    def __init__(self, timings: Timings | None) -> None:
        """`timings`: what the usage has of them."""
        self._timings = timings
        self.reported = Reported()
        self._total: int | None = None
        self.has_usage = False
        """Whether the figures at the end have come."""

    def take(self, chunk: Mapping[str, object]) -> bool:
        """Take the figures of a part; whether something new is reported by them."""
        before = self.reported
        timings, usage = figures_at(chunk, "timings"), figures_at(chunk, "usage")
        if usage:
            self.has_usage = True
            self.reported = _with_usage(self.reported, usage)
            self._total = count_at(usage, "total_tokens") or self._total
            timings = timings or (timings_of(usage, self._timings) if self._timings else {})
        if timings:
            self.reported = _with_timings(self.reported, timings)
        return self.reported != before

    def fills(self, window: int | None) -> bool:
        """Whether they leave no room for another token in a window (the last one sampled is not always counted)."""
        total = self._total
        if total is None and self.reported.prompt_tokens is not None:
            total = self.reported.prompt_tokens + (self.reported.predicted_tokens or 0)
        return total is not None and window is not None and total >= window - 1


def progress_of(found: Mapping[str, object]) -> PromptProgress | None:
    total, cached, processed = (count_at(found, key) for key in ("total", "cache", "processed"))
    if total is None or cached is None or processed is None or cached > total or total > MOST_TOKENS:
        return None
    return PromptProgress(total, cached, processed, figure_at(found, "time_ms") or 0.0)


def _with_usage(known: Reported, usage: Mapping[str, object]) -> Reported:
    """`known` with what `usage` reports in addition."""
    cached = count_at(figures_at(usage, "prompt_tokens_details"), "cached_tokens")
    return replace(
        known,
        prompt_tokens=_first(count_at(usage, "prompt_tokens"), known.prompt_tokens),
        cached_tokens=_first(cached, known.cached_tokens),
        predicted_tokens=_first(count_at(usage, "completion_tokens"), known.predicted_tokens),
    )


def timings_of(usage: Mapping[str, object], names: Timings) -> dict[str, object]:
    """The timings that follow from a usage, in llama.cpp's names; those that do not are left out."""
    spans = {"prompt_ms": figure_at(usage, names.prompt), "predicted_ms": figure_at(usage, names.predicted)}
    found: dict[str, object] = {name: span * names.ms for name, span in spans.items() if span}
    prompt, rate = count_at(usage, "prompt_tokens"), figure_at(usage, names.rate)
    if prompt and rate is not None and (span := spans["prompt_ms"]):
        evaluated = round(rate * span / (1000 / names.ms))
        if evaluated <= prompt:
            found |= {"prompt_n": evaluated, "cache_n": prompt - evaluated}
    return found


def _with_timings(known: Reported, timings: Mapping[str, object]) -> Reported:
    """`known` with llama.cpp's timings: `prompt_n` counts the evaluated tokens only, without `cache_n`."""
    cached, evaluated = count_at(timings, "cache_n"), count_at(timings, "prompt_n")
    prompt = None if cached is None or evaluated is None else cached + evaluated
    return Reported(
        prompt_tokens=_first(prompt, known.prompt_tokens),
        cached_tokens=_first(cached, known.cached_tokens),
        predicted_tokens=_first(count_at(timings, "predicted_n"), known.predicted_tokens),
        prompt_ms=_first(figure_at(timings, "prompt_ms"), known.prompt_ms),
        predicted_ms=_first(figure_at(timings, "predicted_ms"), known.predicted_ms),
    )


def _first(value: _T | None, other: _T | None) -> _T | None:
    return other if value is None else value
