"""A server's options that it does not name show in where it ends the batches of a prompt, and in what it reuses."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from kvchat.cache.llamacpp import checkpoints
from kvchat.cache.llamacpp.batches import shape_from_batches
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.llamacpp.hypotheses import Hypotheses, guesses
from kvchat.cache.llamacpp.simulator import Memory, Simulator
from kvchat.cache.tokens import Tokens

SLIDING, HYBRID, DENSE = Shape(rewind=Rewind.WINDOW, window=128), Shape(rewind=Rewind.NOWHERE), Shape()
USERS = (106, 306)
SEEN = {  # as b11549 to b9713 end them: prompts of a system message and a question, then one that goes on behind 1009
    "512": ({}, (0, [306, 500, 1012, 1016]), (1009, [2800, 3312, 3316])),
    "128": ({"micro_batch": 128}, (0, [306, 884, 1012, 1016]), (1009, [3057, 3184, 3312, 3316])),
    "2048": ({"micro_batch": 2048}, (0, [306, 1012, 1016]), (1009, [1268, 3312, 3316])),
    "4096": ({"micro_batch": 4096, "batch": 4096}, (0, [306, 1012, 1016]), (1009, [3312, 3316])),
    "256": (
        {"micro_batch": 256, "batch": 256},
        (0, [256, 306, 562, 760, 1012, 1016]),
        (1009, [1265, 1521, 1777, 2033, 2289, 2545, 2801, 3057, 3060, 3312, 3316]),
    ),
}


@pytest.mark.parametrize("model", [SLIDING, HYBRID])
@pytest.mark.parametrize("size", SEEN)
def test_the_size_of_batches_shows_in_where_they_end(model: Shape, size: str) -> None:
    expected, *requests = SEEN[size]
    shape: Shape | None = model
    for start, ends in requests:
        assert shape is not None
        shape = shape_from_batches(shape, start, ends, USERS)
    assert shape is not None
    assert {name: getattr(shape, name) for name in expected} == expected
    assert shape.micro_batch == 512 if size == "512" else shape != model


def test_a_model_that_saves_no_checkpoints_goes_back_to_anywhere_or_keeps_its_whole_window() -> None:
    """As `--swa-full` on a sliding-window model; a hybrid one then has no checkpoints, and a dense one never does."""
    whole = shape_from_batches(SLIDING, 103, [1016], USERS)
    assert whole is not None and whole.whole_window and not whole.checkpoints
    assert shape_from_batches(HYBRID, 0, [1016], USERS) == replace(HYBRID, checkpoints=0)
    assert shape_from_batches(DENSE, 103, [1016], USERS) == DENSE
    assert shape_from_batches(DENSE, 0, [1012, 1016], USERS) is None, "it saves one"
    again = shape_from_batches(whole, 0, [306, 500, 1012, 1016], USERS)
    assert again == SLIDING, "started again without the option"


def test_what_shows_nothing_changes_nothing() -> None:
    assert shape_from_batches(SLIDING, 1013, [1016], USERS) == SLIDING, "only the tail was read"
    assert shape_from_batches(SLIDING, 0, [77, 1012, 1016], ()) == SLIDING, "a message whose place is not known"
    assert shape_from_batches(SLIDING, 800, [1012, 1016], USERS) == SLIDING


def test_a_whole_window_goes_back_to_anywhere_until_it_was_parked() -> None:
    """Measured on b11549: of a state of 603 tokens, window 128, that came back, 480 are reused and 470 are not."""
    shape = replace(SLIDING, whole_window=True, checkpoints=0, context=8192)
    for parked, back, cached in [
        (False, 470, 470),
        (False, 10, 10),
        (True, 480, 480),
        (True, 470, 0),
        (True, 600, 600),
    ]:
        simulator, talk = Simulator(shape), Tokens(range(1, 601))
        simulator.end(simulator.begin(talk, "", 0.0).slot, Tokens((9001, 9002, 9003, 9004)))
        if parked:
            simulator.end(simulator.begin(Tokens(range(2000, 2700)), "", 1.0).slot, Tokens((9001,)))
        assert simulator.predict(talk.first(back) + Tokens(range(5000, 5040))).cached == cached, (parked, back)


class Server:
    """A server of a hidden shape, and requests as conversations with edits make them."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.simulator, self.random = Simulator(shape), random.Random(seed)
        self.talks: list[list[tuple[int, ...]]] = []

    def ids(self, count: int) -> tuple[int, ...]:
        return tuple(self.random.randrange(1, 30_000) for _ in range(count))

    def prompt(self) -> tuple[list[int], list[int]]:
        """The next prompt, and where its questions begin."""
        if not self.talks or self.random.random() < 0.08:
            system = self.talks[0][0] if self.talks and self.random.random() < 0.5 else self.ids(60)
            self.talks.append([system])
        if self.random.random() < 0.3:
            self.random.shuffle(self.talks)
        talk = self.talks[-1]
        if len(talk) > 3 and self.random.random() < 0.3:  # an edit of an earlier question
            del talk[self.random.randrange(1, len(talk), 2) :]
        talk.append(self.ids(self.random.choice([10, 40, 200, 900])))
        starts = [sum(map(len, talk[:at])) for at in range(1, len(talk), 2)]
        return [token for part in talk for token in part], starts

    def asked(self, candidates: Hypotheses, *, tells: bool) -> bool:
        """Send one request; whether what it reused was predicted. `tells`: whether the server says where batches end."""
        ids, users = self.prompt()
        prompt, sampled, shape = Tokens(ids), Tokens(self.ids(12)), self.simulator.shape
        said, real = candidates.begin(prompt, "", 0.0, None, users), self.simulator.begin(prompt, "", 0.0, None, users)
        if tells:
            candidates.batched(real.cached, ends(shape, real.cached, len(prompt), users))
        candidates.reported(real.cached)
        candidates.end(sampled)
        self.simulator.end(real.slot, sampled)
        self.talks[-1].append(tuple(sampled))
        candidates.observe([len(held.tokens) if held else 0 for held in self.simulator.slots])
        return said.cached == real.cached


def ends(shape: Shape, start: int, prompt: int, users: list[int]) -> list[int]:
    """Where a server of this shape ends the batches of a prompt."""
    found, at = list[int](), start
    saves = shape.rewind is not Rewind.ANYWHERE and shape.checkpoints > 0
    while at < prompt:
        plain = min(at + shape.batch, prompt)
        at = checkpoints._batch_end(at, prompt, users, Memory().checkpoints, shape) if saves else plain
        found.append(at)
    return found


OPTIONS = {
    "micro-batch 128, sliding": replace(SLIDING, micro_batch=128),
    "micro-batch 128, hybrid": replace(HYBRID, micro_batch=128),
    "micro-batch 2048, sliding": replace(SLIDING, micro_batch=2048),
    "micro-batch 4096, hybrid": replace(HYBRID, micro_batch=4096, batch=4096),
    "3 checkpoints": replace(HYBRID, checkpoints=3),
    "8 checkpoints": replace(HYBRID, checkpoints=8),
    "8 checkpoints, sliding": replace(SLIDING, checkpoints=8),
    "the whole window": replace(SLIDING, whole_window=True, checkpoints=0),
    "similarity 0.5": replace(DENSE, slots=4, similarity=0.5),
    "by no similarity": replace(DENSE, slots=2, similarity=0.0),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_are_never_the_default_are_found(name: str) -> None:
    hidden = OPTIONS[name]
    right, count = 0, 250
    for seed in range(2):
        shape = replace(hidden, slots=max(2, hidden.slots))
        server = Server(shape, seed)
        model = replace(Shape(), rewind=hidden.rewind, window=hidden.window)
        candidates = Hypotheses(guesses(shape.slots, model=model))
        right += sum(server.asked(candidates, tells=True) for _ in range(count))
    assert right >= 2 * count * 0.98, (right, candidates.best.shape)


@pytest.mark.parametrize(("checkpoints", "wrong"), [(1, 9), (2, 23), (3, 7)])
def test_two_states_that_are_wholly_lost_tell_how_few_checkpoints_a_server_keeps(checkpoints: int, wrong: int) -> None:
    """By one alone it is not known: it has many causes."""
    found = 0
    for seed in range(3):
        server = Server(replace(HYBRID, slots=2, checkpoints=checkpoints), seed)
        candidates = Hypotheses(guesses(2, model=HYBRID))
        found += sum(not server.asked(candidates, tells=True) for _ in range(150))
    assert found <= wrong


def test_options_that_were_found_are_taken_along() -> None:
    learnt = replace(SLIDING, slots=2, micro_batch=128, checkpoints=8, similarity=0.5)
    found = guesses(2, learnt, model=SLIDING)
    assert {(one.micro_batch, one.checkpoints, one.similarity) for one in found} == {(128, 8, 0.5)}
    others = [one for one in guesses(2, learnt) if one.rewind is not Rewind.WINDOW]
    assert {(one.micro_batch, one.checkpoints, one.whole_window) for one in others} == {(128, 32, False)}
