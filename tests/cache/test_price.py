"""The price of an act: where it reads, how long that takes, and what would be cheaper."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corpus import corpus
from kvchat.cache.price import (
    CORRECTION,
    CheaperWay,
    HeldOfBranch,
    PrefillSpan,
    Price,
    alternatives,
    prefill_span,
    price,
    price_of_act,
)
from kvchat.figures.accounting import TurnFigures
from kvchat.figures.speed import SpeedFit

SPEED = SpeedFit(3e-3, 3e-7, samples=3)
ACTS = ["edit", "regenerate", "delete", "fork", "system", "template"]


def turn(prompt, new, predicted=100):
    return TurnFigures(prompt, prompt - new, predicted, new)


def price_of(act, turns, at, speed=None, *, spare=False):
    """The price of an act, with the cheapest alternative."""
    span = prefill_span(act, turns, at)
    if span is None:
        return Price(None)
    cheaper = alternatives(act, turns, at, speed, spare=spare)
    return replace(price(span.tokens, speed, start=span.start), alternative=cheaper[0] if cheaper else None)


# Three turns: questions of 1000 (with the system prompt), 400 and 50 tokens, answers of 100.
TURNS = [turn(1000, 1000), turn(1500, 400), turn(1650, 50)]


@corpus(
    ("act", "at", "span"),
    [
        ("edit", 0, PrefillSpan(0, 1000)),
        ("edit", 1, PrefillSpan(1100, 1500)),
        ("edit", 2, PrefillSpan(1600, 1650)),
        ("regenerate", 1, PrefillSpan(1499, 1500)),
        ("fork", 1, PrefillSpan(1750, 1750)),
        ("delete", 0, PrefillSpan(0, 650)),
        ("delete", 1, PrefillSpan(1100, 1250)),
        ("delete", 2, PrefillSpan(1600, 1600)),
        ("system", 0, PrefillSpan(0, 1750)),
        ("template", 2, PrefillSpan(0, 1750)),
    ],
)
def test_what_an_act_reads_again_stands_behind_the_first_changed_token(act, at, span):
    assert prefill_span(act, TURNS, at) == span


@pytest.mark.parametrize("act", ["edit", "delete", "system", "template"])
def test_what_the_server_did_not_report_has_no_price(act):
    unknown = [None, None]
    assert prefill_span(act, unknown, 0) is None
    assert price_of(act, unknown, 0, SPEED) == Price(None)
    assert alternatives(act, unknown, 0, SPEED) == ()


def test_a_conversation_without_turns_costs_nothing():
    assert price_of("system", [], 0, SPEED).tokens == 0
    assert price_of("delete", [], 0).tokens == 0
    assert price_of("edit", [], 0).tokens is None


def test_the_same_tokens_take_longer_further_on():
    early, late = price(1000, SPEED), price(1000, SPEED, start=10_000)
    assert early.seconds == (SPEED.seconds(0, 1000),) * 2
    assert late.seconds[0] > 1.9 * early.seconds[0]
    assert price_of("edit", TURNS, 1, SPEED).seconds == (SPEED.seconds(1100, 1500),) * 2


def test_few_samples_make_a_range_and_none_no_time_at_all():
    assert price(1000, SpeedFit(0.002, samples=2)).seconds == (1.4, 3.0)
    assert price(1000, 500.0, 1) == price(1000, SpeedFit(0.002, samples=1))
    assert price(1000, None).seconds is None
    assert price_of("system", TURNS, 0).seconds is None


def test_a_large_price_is_asked_about():
    assert price_of("system", TURNS, 0).worth_asking
    assert price_of("edit", TURNS, 1, SPEED).worth_asking
    assert not price_of("edit", TURNS, 2, SPEED).worth_asking
    assert not price_of("regenerate", TURNS, 2, SPEED).worth_asking


def test_a_correction_is_offered_for_a_long_edit():
    cheaper = price_of("edit", TURNS, 1, SPEED).alternative
    assert cheaper.way is CheaperWay.CORRECTION
    assert cheaper.tokens == CORRECTION
    assert cheaper.seconds == (SPEED.seconds(1750, 1750 + CORRECTION),) * 2


def test_a_fork_is_offered_where_the_branch_that_is_left_stays_warm():
    long = [turn(1000, 1000), turn(1130, 30), turn(4000, 2770)]
    offered = alternatives("edit", long, 1, SPEED, spare=True)
    assert [one.way for one in offered] == [CheaperWay.FORK]
    assert offered[0].tokens == 30
    assert alternatives("edit", long, 1, SPEED) == ()
    assert alternatives("edit", long, 2, SPEED, spare=True)[0].tokens == CORRECTION


@pytest.mark.parametrize(
    ("act", "tokens", "way"),
    [
        ("delete", CORRECTION, CheaperWay.DISREGARD),
        ("system", CORRECTION, CheaperWay.NEXT_MESSAGE),
        ("template", 0, CheaperWay.NEW_CONVERSATIONS),
    ],
)
def test_each_costly_act_has_a_cheaper_way(act, tokens, way):
    cheaper = price_of(act, TURNS, 0, SPEED).alternative
    assert (cheaper.tokens, cheaper.way) == (tokens, way)


@pytest.mark.parametrize("act", ["regenerate", "fork"])
def test_what_is_free_has_no_alternative(act):
    assert price_of(act, TURNS, 1, SPEED, spare=True).alternative is None


FIGURES = st.one_of(
    st.none(),
    st.builds(
        lambda prompt, new, predicted: TurnFigures(prompt, 0, predicted, new if new is None else min(new, prompt)),
        st.integers(1, 9000),
        st.one_of(st.none(), st.integers(0, 9000)),
        st.one_of(st.none(), st.integers(0, 900)),
    ),
)


@settings(deadline=None)
@given(st.sampled_from(ACTS), st.lists(FIGURES, max_size=6), st.integers(0, 7), st.booleans())
def test_an_alternative_never_reads_more_than_the_act(act, turns, at, spare):
    found = price_of(act, turns, at, SPEED, spare=spare)
    if found.tokens is not None:
        assert found.tokens >= 0
        assert found.seconds[0] >= 0
    if found.alternative:
        assert found.alternative.tokens <= found.tokens


def test_a_continued_turn_has_its_question_where_it_was_and_goes_on_for_a_token():
    # The second turn's answer was cut at 100 tokens and gone on with for 40 more.
    turns = [TURNS[0], TurnFigures(1600, 1599, 40, 0, begun_tokens=100)]
    assert prefill_span("continue", turns, 1) == PrefillSpan(1639, 1640)
    assert prefill_span("edit", turns, 1) == PrefillSpan(1100, 1500)
    assert prefill_span("regenerate", turns, 1) == PrefillSpan(1499, 1500)
    assert prefill_span("delete", turns, 1) == PrefillSpan(1100, 1100)


@pytest.mark.parametrize(
    ("act", "at", "held", "tokens", "exact"),
    [
        ("fork", 1, None, 0, True),
        ("regenerate", 1, HeldOfBranch(1000, 750, exact=True), 500, True),
        ("regenerate", 1, HeldOfBranch(1700, 50, exact=True), 1, True),
        ("open", 2, HeldOfBranch(1000, 750, exact=False), 750, False),
        ("open", 2, HeldOfBranch(0, None, exact=False), 1750, False),
        ("delete", 1, HeldOfBranch(0, None, exact=False), 1250, False),
        ("edit", 1, HeldOfBranch(1400, 350, exact=True), 400, False),
        ("model", 1, HeldOfBranch(1000, 750, exact=True), 1750, True),
    ],
)
def test_what_is_not_held_before_an_act_is_prefilled_too(act, at, held, tokens, exact) -> None:
    found = price_of_act(act, TURNS, at, None, held=held)
    assert (found.tokens, found.exact) == (tokens, exact)


def test_an_act_that_makes_the_prompt_longer_costs_what_it_adds() -> None:
    whole = price_of_act("system", TURNS, 0, SPEED)
    longer = price_of_act("system", TURNS, 0, SPEED, grows=40, is_counted=False)
    assert whole.tokens is not None and longer.tokens == whole.tokens + 40 and whole.exact and not longer.exact
    assert longer.alternative is not None and longer.alternative.tokens == CORRECTION
    assert price_of_act("edit", TURNS, 0, None, start=300).tokens == 700, "the system prompt stays"
    assert price_of_act("open", [None], 0, None) == Price(None)
