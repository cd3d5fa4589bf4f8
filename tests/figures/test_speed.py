"""The fitted prefill speed: right after three samples, calm when the machine is busy, quick to follow a change."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvchat.figures.accounting import TurnFigures, measured_speed, samples_of
from kvchat.figures.speed import SpeedFit, SpeedSample, fit

ALPHA, BETA = 3e-3, 3e-7
TRUE = SpeedFit(ALPHA, BETA)
NOISE = st.floats(0.8, 1.2)


def sample(start, end, factor=1.0, truth=TRUE):
    return SpeedSample(start, end, truth.seconds(start, end) * factor)


@st.composite
def conversations(draw, turns=3):
    """The prefills of a conversation's first turns on a machine that scatters by a fifth, and where it ends."""
    samples, end = [], 0
    for turn in range(turns):
        new = draw(st.integers(200, 4000) if turn == 0 else st.integers(40, 900))
        samples.append(sample(end, end + new, draw(NOISE)))
        end += new + draw(st.integers(20, 400))
    return samples, end


def off(fitted, start, end, truth=TRUE):
    """By what factor a prediction is wrong."""
    predicted, real = fitted.seconds(start, end), truth.seconds(start, end)
    return max(predicted / real, real / predicted)


@settings(deadline=None)
@given(conversations(), st.integers(40, 2000))
def test_after_three_samples_the_next_turn_and_a_whole_read_are_within_a_factor_of_one_and_a_half(conversation, new):
    samples, end = conversation
    fitted = fit(samples)
    assert fitted.samples == 3
    assert off(fitted, end, end + new) < 1.5
    assert off(fitted, 0, end) < 1.5


@pytest.mark.parametrize("seed", range(4))
def test_held_out_prefills_of_any_place_are_within_a_factor_of_one_and_a_half(seed):
    """1,000 conversations of three turns; the predicted read is noisy itself, and up to 12,000 tokens long."""
    chance = random.Random(seed)
    good = total = 0
    for _ in range(250):
        samples, end = [], 0
        for turn in range(3):
            new = chance.randrange(40, 900) if turn else chance.choice([200, 800, 2000, 4000])
            samples.append(sample(end, end + new, chance.uniform(0.8, 1.2)))
            end += new + chance.randrange(20, 400)
        fitted = fit(samples)
        for start, stop in ((end, end + chance.randrange(40, 4000)), (0, 12_000), (end + 4000, end + 5000)):
            real = TRUE.seconds(start, stop) * chance.uniform(0.8, 1.2)
            good += 1 / 1.5 < fitted.seconds(start, stop) / real < 1.5
            total += 1
    assert good / total >= 0.99


@settings(deadline=None)
@given(conversations(turns=6), st.integers(0, 5), st.floats(5, 20))
def test_one_read_on_a_busy_machine_does_not_matter(conversation, index, slower):
    samples, end = conversation
    calm = fit([s for i, s in enumerate(samples) if i != index])
    samples[index] = SpeedSample(samples[index].start, samples[index].end, samples[index].seconds * slower)
    fitted = fit(samples)
    assert off(fitted, 0, end) < 1.5
    assert fitted.samples == 5
    assert abs(fitted.seconds(0, end) / calm.seconds(0, end) - 1) < 0.25


@pytest.mark.parametrize("index", range(3))
def test_one_of_three_samples_may_be_five_times_slower(index):
    samples = [sample(0, 2000), sample(2100, 2400), sample(2500, 3300)]
    samples[index] = sample(samples[index].start, samples[index].end, 5)
    fitted = fit(samples)
    assert off(fitted, 0, 4000) < 1.3
    assert fitted.samples == 2
    assert fitted.range(0, 4000)[0] < fitted.range(0, 4000)[1]


def test_growth_is_found_where_the_samples_show_it():
    fitted = fit([sample(start, start + 500) for start in range(0, 30_000, 2000)])
    assert fitted.alpha == pytest.approx(ALPHA, rel=0.1)
    assert fitted.beta == pytest.approx(BETA, rel=0.1)
    assert fitted.speed(0) > 2 * fitted.speed(20_000)


def test_a_server_that_does_not_slow_down_is_not_said_to():
    flat = SpeedFit(1e-3)
    fitted = fit([sample(start, start + 500, truth=flat) for start in range(0, 60_000, 4000)])
    assert off(fitted, 55_000, 56_000, flat) < 1.1


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_samples_give_a_flat_speed_and_a_range(count):
    fitted = fit([SpeedSample(0, 1000, 2.0), SpeedSample(1100, 2100, 2.0)][:count])
    assert (fitted.alpha, fitted.beta, fitted.samples) == (pytest.approx(0.002), 0, count)
    assert fitted.range(0, 1000) == pytest.approx((1.4, 3.0))


def test_of_two_that_disagree_the_faster_is_believed():
    assert fit([SpeedSample(0, 1000, 10.0), SpeedSample(1000, 2000, 2.0)]).alpha == pytest.approx(0.002, rel=0.05)
    assert fit([SpeedSample(0, 1000, 2.0), SpeedSample(1000, 3000, 20.0)]).samples == 1


def test_new_samples_outweigh_many_old_ones():
    """A laptop went on battery, and is three times slower now."""
    old = [sample(0, 1000) for _ in range(40)]
    slower = SpeedFit(3 * ALPHA, 3 * BETA)
    fitted = fit(old + [sample(0, 1000, truth=slower) for _ in range(12)])
    assert off(fitted, 0, 1000, slower) < 1.2


@pytest.mark.parametrize(
    "useless",
    [
        SpeedSample(0, 31, 1.0),
        SpeedSample(500, 500, 1.0),
        SpeedSample(500, 100, 1.0),
        SpeedSample(-5, 100, 1.0),
        SpeedSample(0, 100, 0.0),
        SpeedSample(0, 100, -1.0),
        SpeedSample(0, 100, float("nan")),
        SpeedSample(0, 100, float("inf")),
    ],
)
def test_what_says_nothing_about_speed_is_left_out(useless):
    assert fit([useless]) is None
    assert fit([useless, SpeedSample(0, 1000, 2.0)]).alpha == pytest.approx(0.002)


@pytest.mark.parametrize("steps", [1, 3, 20, 60])
@pytest.mark.parametrize("tokens", [32, 60, 120])
def test_the_short_steps_of_a_tool_loop_do_not_make_a_server_slow(steps, tokens):
    """Each costs 0.3 s whatever its length: 6.3 times too much was told saved."""
    long = sample(0, 5000)
    short = [SpeedSample(end, end + tokens, 0.3 + TRUE.seconds(end, end + tokens)) for end in range(5100, 5100 + steps)]
    assert off(fit([long, *short]), 0, 5000) < 1.25
    assert off(fit([*short, long]), 0, 5000) < 1.25


def test_short_reads_that_were_faster_than_a_long_one_speak_against_it():
    slow, quick = sample(0, 5000, 8), [sample(end, end + 100) for end in range(5100, 5600, 100)]
    assert off(fit([slow, *quick]), 0, 5000) < 1.25


def test_it_tells_how_far_was_measured():
    assert fit([sample(0, 400), sample(450, 520)]).reach == 520
    assert fit([sample(0, 6000)]).reach == 6000


def test_no_samples_no_speed():
    assert fit([]) is None


SAMPLES = st.builds(
    SpeedSample, st.integers(0, 200_000), st.integers(0, 200_000), st.floats(0, 1e6, allow_subnormal=False)
)


@settings(deadline=None)
@given(st.lists(SAMPLES, max_size=70))
def test_whatever_was_measured_the_speed_is_positive_and_never_grows_with_the_position(samples):
    fitted = fit(samples)
    if fitted is not None:
        assert fitted.alpha > 0
        assert fitted.beta >= 0
        assert 0 < fitted.samples <= len(samples)
        assert fitted.speed(1000) <= fitted.speed(0)
        assert fitted.seconds(0, 1000) < fitted.seconds(0, 2000)


def test_turns_are_samples_where_the_server_reported_tokens_and_times():
    turns = [
        TurnFigures(1000, 200, prompt_ms=1600.0),
        TurnFigures(1000, None, prompt_ms=1600.0),
        TurnFigures(None, 0, prompt_ms=1600.0),
        TurnFigures(1000, 200),
        TurnFigures(1000, 1000, prompt_ms=5.0),
        TurnFigures(1100, 1000, prompt_ms=200.0),
        TurnFigures(1100, 400, prompt_ms=200.0, estimated=True),
        TurnFigures(1100, 400, stopped=True),
        TurnFigures(1100, 400, prompt_ms=200.0, alternative=1),
    ]
    assert samples_of(turns) == [SpeedSample(200, 1000, 1.6), SpeedSample(1000, 1100, 0.2)]
    assert measured_speed(turns) == pytest.approx(900 / 1.8)
