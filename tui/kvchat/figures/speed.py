"""The server's prefill speed, fitted from its own figures: reading slows down the more there is in the window.

Reading the tokens from position a to b takes alpha * (b - a) + beta * (b² - a²) / 2 seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

SPEED_SAMPLE = 32
"""Fewer evaluated tokens than this say more about overhead than about speed."""
_KEPT = 48
"""How many of the newest samples count."""
_HALF_LIFE = 8
"""A sample counts half as much when this many newer ones have come."""
_OVERHEAD = 128
"""A sample of this many tokens counts half: a short one says as much about overhead."""
_LONGER = 16
"""One shorter than that says nothing where another is this many times longer: the steps of a tool loop, many and short,
made a server seem six times slower than it is."""
_NOISE = 0.15
"""What the times of an idle machine scatter by, as a share."""
_OUTLIER = 4.685 * _NOISE
"""A time that is off by more than this (as a logarithm: twice as long) is left out (Tukey's biweight)."""
_GROWTH = 7e-5
"""The growth per position that is supposed until samples say otherwise: about 1 / (6 * width) of a transformer."""
_GROWTHS = (0.0, *(1e-6 * 10 ** (step / 4) for step in range(21)))
"""The growths that are tried, up to 0.1."""


class SpeedSample(Struct, frozen=True):
    """One prefill: from the position behind the cached tokens to that behind the prompt."""

    start: int
    end: int
    seconds: float
    """The server's time for it, of what was cut for as far as it was heard of; 0: not measured."""

    @property
    def usable(self) -> bool:
        """Whether it says more about speed than about overhead."""
        return (
            self.start >= 0
            and self.end - self.start >= SPEED_SAMPLE
            and math.isfinite(self.seconds)
            and self.seconds > 0
        )


class SpeedFit(Struct, frozen=True):
    """Seconds per token at position 0 (`alpha`) and how they grow per token of position (`beta`)."""

    alpha: float
    beta: float = 0.0
    samples: int = 0
    """How many samples agree with it."""
    reach: int = 0
    """The position up to which it was measured."""

    def seconds(self, start: int, end: int) -> float:
        """How long reading from `start` to `end` takes."""
        return self.alpha * (end - start) + self.beta * (end * end - start * start) / 2

    def speed(self, at: int) -> float:
        """Tokens per second at a position."""
        return 1 / (self.alpha + self.beta * at)

    def range(self, start: int, end: int) -> tuple[float, float]:
        """From, to: wide until three samples have been fitted, then one figure twice."""
        seconds = self.seconds(start, end)
        return (seconds, seconds) if self.samples >= 3 else (seconds * 0.7, seconds * 1.5)


def fit(samples: Iterable[SpeedSample]) -> SpeedFit | None:
    """The speed that explains the samples (oldest first) best; None without a usable one.

    Robust: a time that does not agree with the others is left out. Newer and larger samples count more. One or two
    samples give `alpha` alone."""
    usable = [sample for sample in samples if sample.usable]
    if not usable:
        return None
    longest = max(usable, key=_tokens)
    kept = [sample for sample in usable if not _is_overhead(sample, longest)][-_KEPT:]
    weights = [_weight(sample, age) for age, sample in zip(reversed(range(len(kept))), kept, strict=True)]
    growths = _GROWTHS if len(usable) >= 3 else (0.0,)
    _, growth, level = min(_misfit(growth, kept, weights) for growth in growths)
    if growth > 0:
        finer = [growth * 10 ** (step / 16) for step in range(-3, 4)]
        _, growth, level = min(_misfit(growth, kept, weights) for growth in finer)
    agreeing = sum(abs(each - level) < _OUTLIER for each in _levels(growth, usable[-_KEPT:]))
    alpha = math.exp(level)
    return SpeedFit(alpha, alpha * growth, agreeing, max(sample.end for sample in kept))


def _tokens(sample: SpeedSample) -> int:
    return sample.end - sample.start


def _is_overhead(sample: SpeedSample, longest: SpeedSample) -> bool:
    """Whether a sample is slow because it is short: it says nothing of speed next to the longest one."""
    tokens, most = _tokens(sample), _tokens(longest)
    is_slower = sample.seconds * most > longest.seconds * tokens
    return tokens < _OVERHEAD and tokens * _LONGER <= most and is_slower


def _weight(sample: SpeedSample, age: int) -> float:
    tokens = _tokens(sample)
    return float(tokens / (tokens + _OVERHEAD) * 0.5 ** (age / _HALF_LIFE))


def _levels(growth: float, samples: Iterable[SpeedSample]) -> list[float]:
    """The logarithm of alpha that each sample alone would give."""
    unit = SpeedFit(1.0, growth)
    return [math.log(sample.seconds / unit.seconds(sample.start, sample.end)) for sample in samples]


def _misfit(growth: float, samples: Sequence[SpeedSample], weights: Sequence[float]) -> tuple[float, float, float]:
    """How badly the samples fit with this growth (`beta / alpha`), the growth, and the logarithm of the best alpha."""
    levels = _levels(growth, samples)
    level = _centre(levels, weights)
    misfit = sum(weight * _loss(each - level) for each, weight in zip(levels, weights, strict=True))
    return misfit + math.log1p((growth / _GROWTH - 1) ** 2), growth, level


def _loss(error: float) -> float:
    """Twice Tukey's biweight loss in units of the noise: like the square for small errors, constant for outliers."""
    share = min(1.0, (error / _OUTLIER) ** 2)
    return (_OUTLIER / _NOISE) ** 2 / 3 * (1 - (1 - share) ** 3)


def _centre(values: Sequence[float], weights: Sequence[float]) -> float:
    """A robust mean: the weighted median, then a few steps that leave out what is far from it."""
    centre = _lower_median(values, weights)
    for _ in range(3):
        near = [
            (1 - min(1.0, ((value - centre) / _OUTLIER) ** 2)) ** 2 * weight
            for value, weight in zip(values, weights, strict=True)
        ]
        centre = sum(value * weight for value, weight in zip(values, near, strict=True)) / sum(near)
    return centre


def _lower_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted median, the lower one of two: a busy machine only ever makes a time longer."""
    half, passed = sum(weights) / 2, 0.0
    for value, weight in sorted(zip(values, weights, strict=True)):
        passed += weight
        if passed >= half - 1e-12:
            return value
    raise AssertionError("the weights have no half")
