"""What is said to be held of a prompt: where it is, how much, and what the next request would prefill again."""

from __future__ import annotations

import pytest

from kvchat.cache import Cache, PlannedWay, Shape, Tokens, Way
from kvchat.cache.holding import Holding, taken_by
from kvchat.cache.llamacpp.planner import Restorable

LAMP, SHIPS = Tokens(range(400)), Tokens(range(1000, 1400))
REPLY = Tokens(range(5000, 5041))


def served(shape: Shape, *turns: tuple[str, Tokens]) -> Cache:
    """A cache in which these prompts were answered, one after the other, at times from 1 on."""
    clock = iter(range(1, 1000))
    cache = Cache(build="b11549", known=shape, now=lambda: float(next(clock)))
    for owner, prompt in turns:
        cache.sent(prompt, owner)
        cache.ended(REPLY)
    return cache


@pytest.mark.parametrize(
    ("shape", "turns", "place", "tokens", "missing"),
    [
        (Shape(ram_bytes=0), [], "nowhere", 0, 440),
        (Shape(ram_bytes=0), [("lamp", LAMP)], "slot", 440, 0),
        (Shape(ram_bytes=0), [("lamp", LAMP), ("ships", SHIPS)], "nowhere", 0, 440),
        (Shape(), [("lamp", LAMP), ("ships", SHIPS)], "stored", 440, 0),
        (Shape(slots=2, ram_bytes=0), [("lamp", LAMP), ("ships", SHIPS)], "slot", 440, 0),
        (Shape(ram_bytes=0), [("lamp", LAMP.first(200))], "stored", 200, 240),
    ],
)
def test_a_prompt_is_held_where_its_last_request_left_it(
    shape: Shape, turns: list[tuple[str, Tokens]], place: str, tokens: int, missing: int
) -> None:
    prompt = LAMP + REPLY
    found = Holding.of_prompt(served(shape, *turns), prompt, "lamp", detour=False)
    assert (found.place, found.tokens, found.missing, found.exact) == (place, tokens, missing, True)
    assert (found.since is not None) is (place != "nowhere")


def test_of_an_owner_the_longest_state_counts() -> None:
    cache = served(Shape(slots=2, ram_bytes=0), ("lamp", LAMP), ("ships", SHIPS))
    found = Holding.of_owner(cache, "ships", used=441)
    assert found == Holding("slot", 440, 0, found.since if found else None, exact=False)
    grown = Holding.of_owner(cache, "ships", used=700)
    assert grown is not None and (grown.place, grown.missing) == ("stored", 259)
    assert Holding.of_owner(cache, "birds", used=None) is None


def test_what_a_request_takes_depends_on_its_way() -> None:
    cache, prompt = served(Shape(), ("lamp", LAMP), ("ships", SHIPS)), LAMP + REPLY
    assert taken_by(cache, prompt, cache.before(prompt, "lamp").chosen) == (440, "stored")
    assert taken_by(cache, SHIPS, PlannedWay(Way.AS_IS, 1)) == (399, "slot")
    assert taken_by(cache, prompt, PlannedWay(Way.DETOUR, 9)) == (440, "stored")
    assert taken_by(cache, prompt, PlannedWay(Way.RESTORE, 41, restores=Restorable(400, 0))) == (400, "stored")
