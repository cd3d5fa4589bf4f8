"""Which builds of llama.cpp are known to have the rules that the simulator plays."""

from __future__ import annotations

import random

import pytest

from kvchat.cache.llamacpp.cache_config import Rewind, Shape, is_tested, writes_checkpoints
from kvchat.cache.llamacpp.simulator import Simulator
from kvchat.cache.llamacpp.trust import ENOUGH, Trust
from kvchat.cache.tokens import Tokens


def test_the_build_that_is_installed_here_is_one_that_the_tests_have_seen() -> None:
    """Whoever takes another build looks whether the simulator's rules hold there, and says so in `TESTED`."""
    xllamacpp = pytest.importorskip("xllamacpp")
    assert is_tested(f"b{xllamacpp.__version__.rpartition('.')[2]}-abc")


@pytest.mark.parametrize(
    ("build", "tested"), [("b8929-1a", False), ("b11600", False), ("b0-unknown", True), ("", True)]
)
def test_other_builds_are_not_taken_for_it(build: str, tested: bool) -> None:
    assert is_tested(build) is tested


@pytest.mark.parametrize(
    ("build", "written"), [("b11063-1a", False), ("b10566", False), ("b11549", True), ("b11700-2b", True), ("", True)]
)
def test_a_file_has_checkpoints_where_the_build_writes_them(build: str, written: bool) -> None:
    """A state of a hybrid model that comes back goes on at its end in any case."""
    assert writes_checkpoints(build) is written
    simulator = Simulator(Shape(rewind=Rewind.NOWHERE, file_checkpoints=written))
    prompt = Tokens(range(1000))
    simulator.begin(prompt, "a", 0.0)
    simulator.end(0, Tokens((5000, 5001)))
    (held,) = simulator.held
    simulator.restored(0, held)
    assert simulator.predict(held.tokens + Tokens((7,))).cached == 1001
    assert bool(simulator.predict(prompt).cached) is written


KINDS = ("question, slot", "regenerate, slot", "question, parked")


def after(trust: Trust, *requests: tuple[str, int, int]) -> Trust:
    for kind, predicted, cached in requests:
        trust = trust.judged(kind, predicted, cached, excused=False)
    return trust


def test_an_unknown_build_is_sure_after_twenty_exact_predictions_over_several_kinds_of_act() -> None:
    right = [(KINDS[at % 3], 100, 100) for at in range(ENOUGH)]
    assert not after(Trust(), *right[:-1]).is_sure("b9999")
    assert after(Trust(), *right).is_sure("b9999")
    assert not after(Trust(), *[(KINDS[0], 100, 100)] * 99).is_sure("b9999"), "one kind of act shows little"
    assert not after(Trust(), *[(kind, 0, 0) for kind in KINDS] * 99).is_sure("b9999"), "nor does an empty cache"
    assert not after(Trust(), *right[:-1], (KINDS[0], 100, 50), right[-1]).is_sure("b9999"), "it begins again"


def test_two_wrong_predictions_take_that_back_until_it_is_shown_again() -> None:
    right, wrong = [(KINDS[at % 3], 100, 100) for at in range(ENOUGH)], (KINDS[0], 100, 50)
    shown = after(Trust(), *right)
    assert after(shown, wrong).is_sure("b9999")
    lost = after(shown, wrong, wrong)
    assert not lost.is_sure("b9999") and not after(lost, *right[:10]).is_sure("b9999")
    assert not after(lost, *right).is_sure("b9999") and after(lost, *right * 2).is_sure("b9999")
    tested = after(Trust(), wrong, wrong)
    assert not tested.is_sure("b11549") and after(tested, *right[:3]).is_sure("b11549")


def test_what_happened_between_speaks_against_nobody() -> None:
    trust = after(Trust(), *[(KINDS[at % 3], 100, 100) for at in range(ENOUGH)])
    for _ in range(9):
        trust = trust.judged(KINDS[0], 100, 50, excused=True)
    assert trust.is_sure("b9999")


@pytest.mark.parametrize("one_in", [3, 8, 15, 30])
def test_a_build_of_another_rule_never_becomes_sure(one_in: int) -> None:
    draw, trust = random.Random(one_in), Trust()
    for _ in range(3000):
        right = draw.randrange(one_in) > 0
        trust = after(trust, (draw.choice(KINDS), 100, 100 if right else 50))
        assert not trust.is_sure("b9999")


@pytest.mark.parametrize("rare", ["edit, slot", "fork, slot", "delete, parked"])
def test_a_build_whose_rule_differs_in_a_rare_act_never_becomes_sure(rare: str) -> None:
    """As 10566, whose old checkpoints are gone when an old question of a hybrid model is edited."""
    right = [(KINDS[at % 3], 100, 100) for at in range(5 * ENOUGH)]
    trust = after(Trust(), *right[:9])
    for _ in range(9):
        trust = after(trust, (rare, 758, 163), *right)
        assert not trust.is_sure("b10566")
    trust = Trust.from_json(trust.to_json())
    assert not after(trust, *right).is_sure("b10566"), "the next run knows it, too"
    assert after(trust, *[(rare, 758, 758)] * 3, *right * 2).is_sure("b10566")


def test_what_was_shown_is_kept_for_the_next_run() -> None:
    half = after(Trust(), *[(KINDS[at % 3], 100, 100) for at in range(ENOUGH - 1)])
    again = Trust.from_json(half.to_json())
    assert not again.is_sure("b9999") and after(again, (KINDS[0], 9, 9)).is_sure("b9999")
    assert Trust.from_json(after(half, (KINDS[0], 9, 9)).to_json()).is_sure("b9999")
    assert Trust.from_json("") == Trust.from_json('{"exact": 1}') == Trust.from_json("[") == Trust()
