"""`Cache` in the wrong order: what cannot be meant is refused, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvchat.cache import Cache, Shape, SlotCount, Tokens

PROMPT = Tokens(range(100))
REPLY = Tokens(range(500, 510))
Call = Callable[[Cache], object]


def sent(cache: Cache) -> object:
    return cache.sent(PROMPT, "A")


def heard(cache: Cache) -> object:
    return cache.heard(0)


def ended(cache: Cache) -> None:
    cache.ended(REPLY)


def cut(cache: Cache) -> None:
    cache.cut(50)


def never_began(cache: Cache) -> None:
    cache.never_began()


def left_by_it(cache: Cache) -> object:
    return cache.left([SlotCount(109, 1)], 0)


def left(cache: Cache) -> object:
    return cache.left([SlotCount(0)])


def batched(cache: Cache) -> None:
    cache.batched(0, [100])


def explain(cache: Cache) -> object:
    return cache.explain()


@pytest.mark.parametrize(
    ("before", "call", "why"),
    [
        ([], heard, "No request was sent"),
        ([], ended, "No request is under way"),
        ([], cut, "No request is under way"),
        ([], never_began, "No request is under way"),
        ([], batched, "No request was sent"),
        ([], explain, "No request was sent"),
        ([sent], sent, "The request before is under way"),
        ([sent], left_by_it, "The request is under way"),
        ([sent, heard], heard, "heard before"),
        ([sent, ended, heard], heard, "heard before"),
        ([sent, ended], ended, "No request is under way"),
        ([sent, ended], cut, "No request is under way"),
        ([sent, cut], ended, "No request is under way"),
        ([sent, ended], never_began, "No request is under way"),
        ([sent, never_began], heard, "No request was sent"),
        ([sent, never_began], explain, "No request was sent"),
    ],
)
def test_a_call_out_of_order_says_what_is_missing(before: list[Call], call: Call, why: str) -> None:
    cache = Cache(build="b11549", known=Shape())
    for one in before:
        one(cache)
    was = cache.best.predict(PROMPT), cache.predictions, cache.running
    with pytest.raises(RuntimeError, match=why):
        call(cache)
    assert (cache.best.predict(PROMPT), cache.predictions, cache.running) == was


@pytest.mark.parametrize(
    "calls",
    [
        [left, sent, heard, ended, left_by_it, explain, sent],
        [sent, ended, heard, left_by_it, explain, sent],
        [sent, batched, heard, cut, left, sent],
        [sent, never_began, sent, ended, explain],
        [sent, left, cut, left_by_it, sent],
    ],
)
def test_every_order_that_can_be_meant_goes(calls: list[Call]) -> None:
    cache = Cache(build="b11549", known=Shape())
    for call in calls:
        call(cache)


def test_no_part_of_it_plays_a_request_past_the_order() -> None:
    """What begins, ends or corrects a request is asked of the cache alone."""
    cache = Cache(build="b11549", known=Shape())
    cache.sent(PROMPT, "A")
    for part in (cache.guesses, cache.slots, cache.notes):
        for name in ("begin", "reported", "answered_in", "batched", "end", "cut", "never_began", "simulator"):
            assert not hasattr(part, name), (part, name)
    assert cache.guesses.said is not None and cache.guesses.settled and cache.guesses.shapes == [Shape()]
