"""Probes of a state: what is the same, and how far apart two of them are."""

from __future__ import annotations

import math

import pytest

from kvchat.cache.llamacpp.state_probe import StateProbe

ONE = StateProbe(((3, -0.5), (7, -1.25), (9, -4.0)), 99)


def test_a_probe_equals_itself_alone() -> None:
    assert ONE.difference(StateProbe(ONE.tops, 99)) == 0.0
    assert ONE.proves(StateProbe(ONE.tops, 99), 0.0)


@pytest.mark.parametrize(
    ("other", "apart"),
    [
        (StateProbe(((3, -0.5), (7, -1.5), (9, -4.0)), 99), 0.25),
        (StateProbe(((3, -0.5), (7, -1.25), (8, -4.5)), 99), 0.5),
        (StateProbe(((3, -0.5), (9, -1.25), (7, -4.0)), 99), 2.75),
        (StateProbe(((3, -0.5), (7, -1.25), (9, -4.0)), 98), math.inf),
        (StateProbe(((3, -0.5), (7, -1.25), (9, -4.0)), 99, extended=True), math.inf),
        (StateProbe(((3, -0.5), (7, math.nan), (9, -4.0)), 99), math.inf),
        (StateProbe((), 99), math.inf),
    ],
)
def test_another_one_is_so_far_apart(other: StateProbe, apart: float) -> None:
    assert ONE.difference(other) == other.difference(ONE) == pytest.approx(apart)
    assert not ONE.proves(other, 0.0)
    assert ONE.proves(other, 2.0) == (apart < 4)


def test_the_same_values_of_other_tokens_are_not_the_same() -> None:
    assert not ONE.proves(StateProbe(((3, -0.5), (7, -1.25), (8, -4.0)), 99), 0.0)


def test_the_spread_is_the_largest_difference() -> None:
    probes = [StateProbe(((3, value),), 9) for value in (-1.0, -1.5, -1.25)]
    assert StateProbe.spread(probes) == 0.5 and StateProbe.spread(probes[:1]) == 0.0
