"""Guesses about a server whose cache is not known: the right one is found by what the server reports."""

from __future__ import annotations

import json
import random
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace

from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.llamacpp.hypotheses import Hypotheses, guesses
from kvchat.cache.llamacpp.simulator import Simulator
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.cache.tokens import Tokens

REQUESTS = 40
"""After so many requests of a person, the shape is known well enough."""


class Server:
    """A server of a hidden shape, and requests as conversations make them."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.simulator = Simulator(shape)
        self.random = random.Random(seed)
        self.talks: list[list[int]] = []

    def ids(self, count: int) -> list[int]:
        return [self.random.randrange(1, 30_000) for _ in range(count)]

    def prompt(self) -> list[int]:
        """The next prompt: mostly of the conversation used last."""
        if len(self.talks) < 2 or self.random.random() < 0.1:
            shared = self.talks[0][:400] if self.talks and self.random.random() < 0.7 else self.ids(400)
            self.talks.append(shared + self.ids(self.random.choice([50, 1500])))
            return self.talks[-1]
        if self.random.random() < 0.3:
            self.random.shuffle(self.talks)
        talk = self.talks[-1]
        if self.random.random() < 0.2:
            del talk[max(1, len(talk) - self.random.choice([20, 200, 1000])) :]
        talk += self.ids(self.random.choice([20, 80, 300]))
        return talk

    def asked(self, candidates: Hypotheses) -> bool:
        """Send one request; whether what it reused was predicted."""
        talk = self.prompt()
        prompt, sampled = Tokens(talk), Tokens(self.ids(20))
        users = [len(talk) - 10]
        said, real = candidates.begin(prompt, "", 0.0, None, users), self.simulator.begin(prompt, "", 0.0, None, users)
        candidates.reported(real.cached)
        candidates.end(sampled)
        self.simulator.end(real.slot, sampled)
        talk += list(sampled)
        candidates.observe([len(held.tokens) if held else 0 for held in self.simulator.slots])
        return said.cached == real.cached


@pytest.mark.parametrize("slots", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)])
def test_the_shape_of_a_server_is_found(slots: int) -> None:
    for seed, hidden in enumerate(guesses(slots)):
        server, candidates = Server(hidden, seed), Hypotheses(guesses(slots))
        for _ in range(REQUESTS):
            server.asked(candidates)
        right = sum(server.asked(candidates) for _ in range(100))
        assert right >= 99, (hidden, candidates.best.shape)


def test_a_server_that_was_started_with_other_options_is_learnt_anew() -> None:
    options = guesses(2)
    dense, hybrid = options[0], next(shape for shape in options if shape.rewind is Rewind.NOWHERE)
    candidates = Hypotheses(options)
    for seed, hidden in enumerate((dense, hybrid, dense)):
        server = Server(hidden, seed)
        candidates.forget()
        for _ in range(REQUESTS):
            server.asked(candidates)
        assert sum(server.asked(candidates) for _ in range(100)) >= 99, candidates.best.shape


def test_after_many_turns_one_that_shows_other_options_is_enough() -> None:
    """What a guess got wrong long ago counts for little."""
    candidates, talk = (
        Hypotheses([Shape(ram_bytes=0), Shape(ram_bytes=0, rewind=Rewind.NOWHERE)]),
        Tokens(range(1, 1001)),
    )

    def asked(prompt: Tokens, kind: int) -> None:
        candidates.begin(prompt, "", 0.0)
        candidates.reported([*candidates.all_said.values()][kind].cached)
        candidates.end(Tokens((7,)))

    for number in range(2):
        asked(talk, 0)
        asked(talk.first(900) + Tokens(range(2000 + number, 2100 + number)), 0)
    for count in range(REQUESTS):
        asked(talk + Tokens(range(5000, 5020 + 20 * count)), 0)
    assert candidates.best.shape.rewind is Rewind.ANYWHERE
    candidates.forget()
    asked(talk, 1)
    asked(talk.first(900), 1)
    assert candidates.best.shape.rewind is Rewind.NOWHERE


BOUND = Shape(slots=2, ram_bytes=4000, token_bytes=1.0)


@pytest.mark.parametrize(
    "hidden",
    [
        *(replace(BOUND, rewind=rewind, window=128) for rewind in Rewind),
        replace(BOUND, slots=1),
        replace(BOUND, slots=1, rewind=Rewind.NOWHERE, micro_batch=2048),
        replace(BOUND, rewind=Rewind.NOWHERE, checkpoints=3),
        replace(BOUND, rewind=Rewind.WINDOW, window=512, checkpoints=3),
        replace(BOUND, slots=4, unified=True, context=8000),
        replace(BOUND, ram_bytes=0, similarity=0.5),
    ],
)
def test_what_a_small_host_cache_and_few_checkpoints_lose_is_never_sure_to_be_there(hidden: Shape) -> None:
    """A thousand turns on servers whose shapes no guess has."""
    server, candidates, lost = Server(hidden, 1), Hypotheses(guesses(hidden.slots)), 0
    for turn in range(1000 if hidden is BOUND else 150):
        if turn % 50 == 49:
            server.simulator.forget()
            candidates.forget()
        talk = server.prompt()
        prompt, sampled = Tokens(talk), Tokens(server.ids(20))
        said, real = candidates.begin(prompt, "", 0.0), server.simulator.begin(prompt, "", 0.0)
        lost += said.cached > real.cached
        if not real.cached and said.slot == real.slot:
            assert not candidates.surely_cached(prompt, None), said
        candidates.reported(real.cached)
        candidates.end(sampled)
        server.simulator.end(real.slot, sampled)
        talk += list(sampled)
        candidates.observe([len(held.tokens) if held else 0 for held in server.simulator.slots])
    assert lost, "it has lost something"


def test_what_was_learnt_is_believed_first() -> None:
    learnt = Shape(slots=9, unified=True, rewind=Rewind.WINDOW, window=640)
    found = guesses(2, learnt, 4096)
    assert found[0] == replace(learnt, slots=2, context=4096) and found[1:] == guesses(2, context=4096)
    assert Hypotheses(found).best.shape == found[0]
    assert guesses(2, guesses(2)[3])[0] == guesses(2)[3] and len(guesses(2, guesses(2)[3])) == len(guesses(2))


def test_a_request_that_never_began_leaves_everything_as_it_was() -> None:
    candidates, prompt = Hypotheses(guesses(2)), Tokens(range(1, 500))
    candidates.begin(prompt, "a", 0.0)
    candidates.end(Tokens((7,)))
    candidates.begin(Tokens(range(600, 900)), "b", 1.0, 0)
    candidates.cut(0)
    candidates.never_began()
    assert candidates.begin(prompt, "a", 2.0).cached == len(prompt) - 1
    candidates.end(Tokens((7,)))
    candidates.never_began()
    assert candidates.begin(prompt, "a", 3.0).cached == len(prompt) - 1


def test_slots_that_one_guess_explains_surprise_nobody() -> None:
    """With one cache for all, the other slots are emptied: whoever did not expect it is less believed."""
    candidates = Hypotheses([Shape(slots=2), Shape(slots=2, unified=True)])
    first, second = Tokens(range(1, 200)), Tokens(range(300, 600))
    for prompt in (first, second):
        candidates.begin(prompt, "", 0.0)
        candidates.end(Tokens((7,)))
    counts = [len(held.tokens) if held else 0 for held in candidates._guesses[1].simulator.slots]
    assert candidates.observe(counts) == [] and candidates.best.shape.unified
    assert candidates.observe([70, 80]), "nobody expected that"


@given(
    st.builds(
        Shape,
        slots=st.integers(1, 64),
        unified=st.booleans(),
        ram_bytes=st.none() | st.integers(0, 1 << 40),
        token_bytes=st.floats(0, 1e6),
        rewind=st.sampled_from(Rewind),
        window=st.integers(0, 8192),
        parks_idle=st.booleans(),
        batch=st.integers(1, 4096),
    )
)
def test_a_shape_is_kept_as_text(shape: Shape) -> None:
    assert Shape.from_json(shape.to_json()) == shape


KEPT = to_builtins(Shape())


@given(
    st.text()
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)
    | st.tuples(st.sampled_from([*KEPT, "other"]), st.sampled_from([None, "x", -1, True, 1.5, 1e300, [], {}])).map(
        lambda change: json.dumps({**KEPT, change[0]: change[1]})
    )
)
@example("[" * 100_000)
@example(json.dumps({**KEPT, "slots": 0}))
@example('{"rewind": "anywhere", "slots": NaN}')
def test_a_text_that_is_no_shape_gives_none_or_a_shape_that_works(text: str) -> None:
    shape = Shape.from_json(text)
    if shape is not None:
        simulator = Simulator(shape)
        simulator.end(simulator.begin(Tokens(range(1, 3000)), "", 0.0).slot, Tokens((7,)))
        simulator.restored(0, Held(Tokens((1, 2))))
        assert simulator.predict(Tokens(range(1, 3000))).cached >= 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[1]",
        json.dumps({**KEPT, "slots": "four"}),
        json.dumps({**KEPT, "unified": 1}),
        json.dumps({**KEPT, "rewind": "sometimes"}),
    ],
)
def test_what_is_not_a_shape_is_not_taken(text: str) -> None:
    assert Shape.from_json(text) is None


def test_guesses_that_are_far_behind_are_not_played_on() -> None:
    server, candidates = Server(guesses(2)[0], 3), Hypotheses(guesses(2))
    every = len(candidates._guesses)
    for _ in range(REQUESTS):
        server.asked(candidates)
    assert len(candidates._guesses) < every / 2


if __name__ == "__main__":  # what a turn of 100,000 tokens costs
    for slots in (1, 4):
        candidates, talk = Hypotheses(guesses(slots)), random.Random(1).choices(range(30_000), k=100_000)
        sizes: list[float] = []
        for number in range(30):
            prompt = Tokens(talk if number % 2 else talk[:50_000] + talk[:50_000])
            began = time.perf_counter()
            said = candidates.begin(prompt, "", 0.0)
            candidates.reported(said.cached)
            candidates.end(Tokens.unknown(200))
            candidates.observe([len(held.tokens) if held else 0 for held in candidates.best.slots])
            sizes.append((time.perf_counter() - began) * 1000)
        print(
            f"{slots} slots, {len(guesses(slots))} guesses, {len(candidates._guesses)} left: "
            f"first {sizes[0]:.1f} ms, most {max(sizes):.1f}, last {sizes[-1]:.1f}"
        )


def test_answers_that_break_off_together_speak_for_a_sliding_window_in_one_cache_for_all() -> None:
    candidates = Hypotheses(guesses(4))
    candidates.begin(Tokens(range(1, 1300)), "a", 0.0, answers=2)
    candidates.ran_out()
    assert candidates.best.shape.rewind is Rewind.WINDOW and candidates.best.shape.unified


def test_the_guess_that_claims_least_is_one_that_nothing_tells_apart_from_the_best() -> None:
    """A state that was pushed out is back only where there is a host cache."""
    candidates, prompt = Hypotheses(guesses(1)), Tokens(range(1, 500))
    for at, ids in enumerate((prompt, Tokens(range(600, 1200)))):
        candidates.begin(ids, "", float(at))
        candidates.end(Tokens((7,)))
    assert candidates.best.predict(prompt).best > 400 > candidates.modest(prompt).predict(prompt).cached


def test_what_nothing_has_told_apart_yet_is_no_sure_word() -> None:
    """Whether a server parks states shows when the first one should come back; until then guesses differ about it."""
    for ram, came in ((8192 << 20, 400), (0, 3)):
        candidates, server = Hypotheses(guesses(1)), Simulator(Shape(ram_bytes=ram))
        talks = [Tokens((1, 2, 3)) + Tokens(range(start, start + 400)) for start in (1000, 2000)]
        for talk in talks:
            candidates.begin(talk, "", 0.0)
            candidates.reported(server.begin(talk, "", 0.0).cached)
            candidates.end(Tokens((7,)))
            server.end(0, Tokens((7,)))
        assert candidates.agree_on(talks[1]) and not candidates.agree_on(talks[0])
        assert candidates.may_park
        candidates.begin(talks[0], "", 1.0)
        cached = server.begin(talks[0], "", 1.0).cached
        assert abs(cached - came) <= 3
        candidates.reported(cached)
        candidates.end(Tokens((7,)))
        server.end(0, Tokens((7,)))
        assert candidates.agree_on(talks[1]), "one of them was right"
