"""What is said of the cache holds together: predictions, speeds."""

from __future__ import annotations

import pytest

from cache_samples import a_report
from kvchat.figures.accounting import TurnFigures
from kvchat.figures.speed import SpeedFit, SpeedSample, fit
from kvchat.reports.cache_report import TurnReport
from kvchat.text.cache import accuracy, prediction, speed_words, turn_name, turn_sum


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


CALL, RESULT, ANSWER = TurnFigures(800, 0, 30, 800), TurnFigures(900, 801, 30, 70), TurnFigures(990, 931, 9, 59)


def loop(*figures: TurnFigures | None) -> list[TurnReport]:
    """A plain turn, one of these requests, and a plain one."""
    steps = [TurnReport("And?", one, goes_on=at > 0) for at, one in enumerate(figures)]
    return [TurnReport("Hello?", ANSWER), *steps, TurnReport("Sure?", ANSWER)]


@pytest.mark.parametrize(
    ("turns", "names"),
    [
        (loop(ANSWER), ["turn 1", "turn 2", "turn 3"]),
        (loop(CALL, ANSWER), ["turn 1", "turn 2, request 1 of 2", "turn 2, request 2 of 2", "turn 3"]),
        (loop(CALL, RESULT, ANSWER)[1:], [*(f"turn 1, request {at} of 3" for at in (1, 2, 3)), "turn 2"]),
        ([TurnReport("", CALL, goes_on=True)], ["turn 1"]),
    ],
)
def test_the_requests_of_a_turn_have_its_number(turns: list[TurnReport], names: list[str]) -> None:
    assert [turn_name(turns, at) for at in range(len(turns))] == names


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ([CALL, RESULT, ANSWER], "turn 2 in 3 requests: 1,732 cached · 929 new · 29 wasted"),
        ([CALL, ANSWER], "turn 2 in 2 requests: 931 cached · 859 new · 0 wasted"),
        (
            [CALL, TurnFigures(900, 801, 30, 70, estimated=True)],
            "turn 2 in 2 requests: ~801 cached · 899 new · 0 wasted",
        ),
        ([CALL, None, ANSWER], "turn 2 in 3 requests: reuse unknown"),
        ([CALL, TurnFigures(900)], "turn 2 in 2 requests: reuse unknown"),
        ([ANSWER], ""),
    ],
)
def test_a_turn_is_summed_beside_its_requests(figures: list[TurnFigures | None], words: str) -> None:
    turns = loop(*figures)
    assert {turn_sum(turns, at) for at in range(1, len(turns) - 1)} == {words}
    assert not turn_sum(turns, 0) and not turn_sum(turns, len(turns) - 1)


def test_a_prediction_that_goes_on_from_a_call_in_other_tokens_wears_a_tilde() -> None:
    told = TurnFigures(900, 801, predicted_cached=803, predicted_roughly=True)
    assert prediction(told) == "predicted ~803 cached tokens, server says 801"
    report = a_report(1.0, turns=(*turns((470, 470)), TurnReport("And?", told)), predictions=0, exact_predictions=0)
    assert accuracy(report) == "exact in 1 of 1 request", "an estimate is neither exact nor wrong"
