"""The figures: what is new, what was reused, what was wasted, and that unknown stays unknown."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.cache.price import PrefillSpan, prefill_span, price
from kvchat.figures.accounting import PromptProgress, TurnFigures, measured_speed, new_tokens, reads_back, totals
from kvchat.figures.speed import SpeedFit


def turn(prompt, cached, new, predicted=10, ms=100.0):
    return TurnFigures(prompt, cached, predicted, new, ttft_ms=120.0, prompt_ms=ms, predicted_ms=200.0)


def test_a_perfect_turn_reuses_everything_there_was():
    figures = turn(prompt=150, cached=109, new=40)
    assert figures.evaluated_tokens == 41
    assert figures.reuse == 109 / 110
    assert figures.wasted_tokens == 1


def test_a_first_turn_is_a_first_read_and_no_miss():
    figures = turn(prompt=150, cached=0, new=new_tokens(150, 0))
    assert figures.first_read
    assert figures.wasted_tokens == 0
    assert figures.reuse is None


def test_what_this_turn_added_is_the_prompt_less_what_its_tree_had_before():
    assert new_tokens(150, 110) == 40
    assert new_tokens(100, 110) == 0, "a prompt that was cut"
    assert new_tokens(150, None) is new_tokens(None, 110) is None


@given(st.integers(0, 5000), st.integers(0, 500), st.booleans())
def test_a_reply_reads_back_only_in_as_many_tokens_as_it_was_sampled_in(settled, more, stopped):
    assert reads_back(settled + stopped, settled, stopped)
    assert reads_back(settled + more, settled, stopped) is (more == stopped)


def test_a_lost_cache_is_wasted_work():
    assert turn(prompt=1000, cached=0, new=50).wasted_tokens == 950


def test_what_is_not_reported_is_unknown_and_never_zero():
    figures = TurnFigures(prompt_tokens=100)
    assert figures.evaluated_tokens is figures.hit_ratio is figures.reuse is figures.wasted_tokens is None
    summed = totals([figures, turn(100, 60, 40)])
    assert (summed.turns, summed.unknown, summed.prompt_tokens) == (2, 1, 100)


@given(st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 1), st.floats(0, 1)), max_size=20))
def test_sums_are_sums_of_tokens(rows):
    turns = [turn(p, int(p * c), int(p * n)) for p, c, n in rows]
    summed = totals(turns)
    assert summed.evaluated_tokens == summed.prompt_tokens - summed.cached_tokens
    assert summed.wasted_tokens <= summed.evaluated_tokens


def test_speed_is_measured_on_turns_that_read_enough():
    assert measured_speed([turn(1000, 0, 1000, ms=2000.0), turn(1010, 1005, 5, ms=50.0)]) == 500
    assert measured_speed([turn(1010, 1005, 5)]) is None


def test_progress_counts_only_what_is_read_now():
    progress = PromptProgress(total=1000, cached=600, processed=800, elapsed_ms=400.0)
    assert progress.speed == 500
    assert progress.seconds_left() == 0.4
    assert PromptProgress(1000, 600, 600).seconds_left() is None


def test_a_price_is_a_range_until_the_speed_is_known_well():
    assert price(1000, 500, samples=1).seconds == (1.4, 3.0)
    assert price(1000, 500, samples=3).seconds == (2.0, 2.0)
    assert price(1000, None, samples=3).seconds is None
    assert not price(None, 500, samples=3).worth_asking


def test_prices_of_acts():
    turns = [turn(100, 0, 100), turn(150, 109, 40), turn(200, 159, 40)]
    told = [("delete", 0, 210 - 110), ("delete", 2, 0), ("system", 0, 210), ("edit", 1, 40), ("fork", 1, 0)]
    for act, at, tokens in told:
        assert (span := prefill_span(act, turns, at)) and span.tokens == tokens
    assert prefill_span("system", [], 0) == PrefillSpan(0, 0)
    assert prefill_span("system", [None], 0) is None


def test_nothing_reused_saved_nothing_and_what_is_not_measured_is_not_known():
    assert totals([turn(prompt=400, cached=0, new=400)]).seconds_saved == 0.0
    assert totals([turn(prompt=400, cached=300, new=40, ms=None)]).seconds_saved is None
    two = [turn(prompt=1_000, cached=0, new=1_000, ms=1_000.0), turn(prompt=1_400, cached=1_000, new=400, ms=400.0)]
    assert totals(two).seconds_saved == 1.0
    assert totals([two[0], replace(two[1], stopped=True)]).seconds_saved == 0.0
    assert totals(two, SpeedFit(1 / 500)).seconds_saved == 2.0, "the server's own speed goes first"
