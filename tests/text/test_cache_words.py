"""What is said of the cache holds together: predictions, speeds."""

from __future__ import annotations

import pytest

from cache_samples import a_report
from kvchat.cache.accounting import TurnFigures
from kvchat.cache.report import TurnReport
from kvchat.cache.speed import SpeedFit, SpeedSample, fit
from kvchat.text.cache import accuracy, speed_words


def turns(*told: tuple[int | None, int | None]) -> tuple[TurnReport, ...]:
    """One turn of each prediction and what the server said."""
    return tuple(
        TurnReport("How many?", TurnFigures(500, cached, predicted_cached=predicted)) for predicted, cached in told
    )


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([(496, 496)], "exact in 1 of 1 request"),
        ([(None, 0), (470, 470), (490, 496)], "exact in 1 of 2 requests"),
        ([(0, 0), (400, None), (470, 470)], "exact in 2 of 2 requests"),
        ([(None, 0), (None, 470)], "nothing predicted yet"),
        ([], "nothing predicted yet"),
    ],
)
def test_a_prediction_of_an_earlier_run_is_not_told_beside_none(
    told: list[tuple[int | None, int | None]], words: str
) -> None:
    """`kvchat cache` said "predicted 496 cached tokens, server says 496 · nothing predicted yet" in one line."""
    assert accuracy(a_report(1.0, turns=turns(*told), predictions=0, exact_predictions=0)) == words


@pytest.mark.parametrize(("length", "is_told"), [(500, False), (4000, False), (4096, True), (9000, True)])
def test_a_speed_is_told_only_where_a_prompt_came_so_far(length: int, is_told: bool) -> None:
    """Of prompts of 500 tokens "109 tok/s after 4k tokens" was told."""
    words = speed_words(fit([SpeedSample(0, length, length / 100)]))
    assert words.startswith("100 tok/s at the start") and ("after 4k tokens" in words) is is_told


def test_no_speed_is_no_figure() -> None:
    assert speed_words(None) == speed_words(SpeedFit(0.0)) == "not measured yet"
