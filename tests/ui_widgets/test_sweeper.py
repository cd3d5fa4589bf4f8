"""Garbage is collected while nobody types and no answer runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from kvchat.ui import sweeper as module
from kvchat.ui.sweeper import MUCH, WORTH, Sweeper


class Collector(SimpleNamespace):
    """What a sweeper does to Python's collector."""

    def __init__(self) -> None:
        super().__init__(swept=0, young=WORTH, thresholds=(700, 10, 10), on=True, freeze=lambda: None)

    def collect(self) -> None:
        self.swept += 1

    def get_count(self) -> tuple[int, int, int]:
        return 0, 0, self.young

    def get_threshold(self) -> tuple[int, int, int]:
        return self.thresholds

    def set_threshold(self, *thresholds: int) -> None:
        self.thresholds = thresholds  # type: ignore[assignment]

    def enable(self) -> None:
        self.on = True

    def disable(self) -> None:
        self.on = False


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    collector = Collector()
    monkeypatch.setattr(module, "gc", collector)
    assert gc.isenabled()
    yield collector


def test_it_sweeps_in_a_quiet_moment_when_that_is_worth_it(collector: Collector) -> None:
    busy = False
    sweeper = Sweeper(lambda: busy)
    assert not collector.on, "nothing is collected before the first paint"
    sweeper.begin()
    assert collector.on and collector.swept == 0 and collector.thresholds == (700, 10, MUCH)
    sweeper.typed()
    sweeper.look()
    assert collector.swept == 0, "a key has just come"
    busy = True
    sweeper.look()
    assert collector.swept == 0, "an answer runs"
    busy, collector.young = False, WORTH - 1
    sweeper.look()
    assert collector.swept == 0, "there is little to find"
    collector.young = WORTH
    sweeper.look()
    assert collector.swept == 1
    sweeper.end()
    assert collector.thresholds == (700, 10, 10)
