"""Conversations that begin alike: once they come back, each is given a slot of its own, and nothing costs more."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from kvchat.cache.journal import RECENT_VISITS, Journal
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.llamacpp.planner import DETOUR, Way, plan
from kvchat.cache.llamacpp.simulator import Simulator
from kvchat.cache.tokens import Tokens

SERVER = "http://here"
BARE = Shape(slots=4, ram_bytes=0)
"""Without a host cache."""
APART = {
    "dense": BARE,
    "dense, one cache for all": replace(BARE, unified=True),
    "window": replace(BARE, rewind=Rewind.WINDOW, window=512),
    "hybrid": replace(BARE, rewind=Rewind.NOWHERE),
    "hybrid, host cache": Shape(slots=4, rewind=Rewind.NOWHERE),
    "hybrid, 2 slots, host cache": Shape(slots=2, rewind=Rewind.NOWHERE),
}
TOGETHER = {
    "1 slot": Shape(ram_bytes=0),
    "1 slot, host cache": Shape(),
    "llama-server's default": Shape(slots=4, unified=True),
    "hybrid on the default": Shape(slots=4, unified=True, rewind=Rewind.NOWHERE),
}
"""There the slots are no choice of ours."""


def ids(start: int, count: int) -> Tokens:
    return Tokens(range(start * 10_000 + 1, start * 10_000 + 1 + count))


class Spent(NamedTuple):
    evaluated: int
    wasted: int


class Talks:
    """Conversations with one system prompt on one server."""

    def __init__(self, shape: Shape, head: int = 700, *, counts: bool = True) -> None:
        """`counts`: whether it counts how often they come back."""
        self.simulator, self.journal, self._counts = Simulator(shape), Journal(), counts
        self._held = dict[str, Tokens]()
        self._users = dict[str, list[int]]()
        self._head, self._next = ids(0, head), 1

    def returns(self, id: str) -> Mapping[str, int]:
        return {**self.journal.returns_to(SERVER), id: 0} if self._counts else {}

    def ask(self, id: str, question: int = 40, answer: int = 20) -> Spent:
        """A question, and what it cost."""
        begun, base = id in self._held, self._held.get(id, self._head)
        found = plan(self.simulator, base, returns=self.returns(id))
        if found.chosen.way is Way.DETOUR:
            self.simulator.end(self.simulator.begin(DETOUR, "", 0.0).slot, Tokens((-9,)))
        self._users.setdefault(id, []).append(len(base))
        prompt = base + ids(self._next, question)
        said = self.simulator.begin(prompt, id, 0.0, found.slot, self._users[id])
        self.journal.used("conversation", id, SERVER, said.slot, {})
        self.simulator.end(said.slot, ids(self._next + 1, answer))
        self._held[id], self._next = prompt + ids(self._next + 1, answer).first(answer - 1), self._next + 2
        read = len(prompt) - said.cached + (len(DETOUR) if found.chosen.way is Way.DETOUR else 0)
        return Spent(read, max(0, read - (question if begun else len(prompt))))

    def size(self, id: str) -> int:
        return len(self._held.get(id, ()))


def walked(shape: Shape, seed: int, *, counts: bool, alike: int = 3, requests: int = 220) -> Spent:
    """A walk in which every other request comes back to another of `alike` conversations, which end at some length."""
    chance, talks, names = random.Random(seed), Talks(shape, counts=counts), [str(at) for at in range(1000)]
    live, now, spent = [names.pop() for _ in range(alike)], "", list[Spent]()
    for _ in range(requests):
        live = [names.pop() if talks.size(id) > 2000 else id for id in live]
        now = chance.choice(live) if now not in live or chance.random() < 0.5 else now
        spent.append(talks.ask(now, chance.choice([8, 20, 70, 200]), chance.choice([12, 60])))
    return Spent(sum(one.evaluated for one in spent), sum(one.wasted for one in spent))


@pytest.mark.parametrize("name", APART)
def test_of_what_conversations_waste_that_begin_alike_at_least_half_goes(name: str) -> None:
    for seed in range(2):
        counted, before = (walked(APART[name], seed, counts=counts) for counts in (True, False))
        assert counted.wasted * 2 <= before.wasted, (counted, before)
        assert counted.evaluated < before.evaluated


@pytest.mark.parametrize("name", TOGETHER)
def test_where_slots_are_no_choice_nothing_changes(name: str) -> None:
    counted, before = (walked(TOGETHER[name], 1, counts=counts, requests=100) for counts in (True, False))
    assert counted == before


@pytest.mark.parametrize("name", {**APART, **TOGETHER})
def test_who_never_comes_back_costs_nobody_anything(name: str) -> None:
    """Each conversation is asked some questions, and then never again."""
    counted, before = (Talks({**APART, **TOGETHER}[name], counts=counts) for counts in (True, False))
    for at in range(40):
        assert counted.ask(str(at // 4)) == before.ask(str(at // 4))


def test_after_the_second_return_each_has_a_slot_of_its_own() -> None:
    talks = Talks(BARE, head=300)
    for _ in range(4):
        for id in "ab":
            talks.ask(id, 80)
    assert [held.owner for held in talks.simulator.slots if held] == ["b", "a"]
    for id in "abab":
        assert talks.ask(id, 80).wasted <= 1


def test_a_slot_of_its_own_waits_until_it_pays() -> None:
    """What one takes from the other is short beside the system prompt, which a slot of its own prefills again."""
    talks = Talks(BARE, head=3000)
    spent = [talks.ask(id, 20) for id in "abababab"]
    assert all(one.evaluated < 300 for one in spent[1:])
    assert sum(held is not None for held in talks.simulator.slots) == 1


def test_a_busy_slot_is_nobodys() -> None:
    talks = Talks(BARE, head=300)
    for id in "abababab":
        talks.ask(id, 80)
    prompt = ids(0, 300) + ids(99, 5)
    free = plan(talks.simulator, prompt, returns=talks.returns("c"))
    assert free.slot is not None
    assert plan(talks.simulator, prompt, returns=talks.returns("c"), busy={free.slot}).slot not in (None, free.slot)
    assert plan(talks.simulator, prompt, returns=talks.returns("c"), busy=range(4)).slot is None


def test_one_cache_for_all_that_is_full_has_no_slot_to_give() -> None:
    for context, pinned in ((8192, True), (1200, False)):
        talks = Talks(replace(APART["dense, one cache for all"], context=context), head=300)
        for id in "abab":
            talks.ask(id, 150)
        assert (plan(talks.simulator, ids(0, 300), returns={"a": 2, "b": 2}).slot is not None) is pinned


def test_one_that_has_not_come_back_for_long_gives_its_slot_away() -> None:
    talks = Talks(replace(BARE, slots=2), head=300)
    for id in "abababab" + "cd" * RECENT_VISITS:
        talks.ask(id, 80)
    assert sorted(held.owner for held in talks.simulator.slots if held) == ["c", "d"]
    assert not {"a", "b"} & talks.journal.returns_to(SERVER).keys()


def test_returns_are_counted_by_server_and_not_by_request() -> None:
    journal = Journal()
    for id, server in (("a", SERVER), ("a", SERVER), ("b", SERVER), ("a", "http://there"), ("b", SERVER), ("", SERVER)):
        journal.used("conversation", id, server, 0, {})
    assert not journal.returns_to(SERVER) and not journal.returns_to("http://there")
    for kind in ("warm-up", "conversation", "side"):
        journal.used(kind, "a", SERVER, 0, {})  # type: ignore[arg-type]
    assert journal.returns_to(SERVER) == {"a": 1}
