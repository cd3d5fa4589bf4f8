"""What a server's cache may be like, where it does not say: one twin per guess, and the one that has been right.

The rule: every guess is played along from the first request; the one that predicted best is believed, the first one
where nothing tells them apart. What was learnt is a `Shape` that can be kept for the server, its build and model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace

from kvchat.cache.llamacpp.held import Held
from kvchat.cache.llamacpp.shape import Rewind, Shape
from kvchat.cache.llamacpp.twin import Mismatch, Prediction, Twin
from kvchat.cache.tokens import Tokens

MEMORY = 0.9
"""How much of its record a guess keeps with each new request: a rule that changed shows after a few."""
FAR_BEHIND = 3.0
"""A guess that was wrong so many times more than the best one is not played on, until the server is started anew."""
WINDOWS = (1024, 512, 128, 4096)
"""Tokens of the sliding windows that models have."""


@dataclass(slots=True)
class _Guess:
    """One guess, played."""

    twin: Twin
    wrong: float = 0.0
    """How often it was wrong of late."""
    said: Prediction | None = None
    """Of the last `begin`."""
    before: Twin | None = None
    """The twin before the last `begin`."""


class Candidates:
    """Twins of one server, one per guess about its cache. Everything but `best` goes to all of them."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._guesses = [_Guess(Twin(shape)) for shape in shapes]
        self._dropped: list[_Guess] = []

    @property
    def _best(self) -> _Guess:
        return min(self._guesses, key=lambda guess: guess.wrong)

    @property
    def best(self) -> Twin:
        """The twin that has been right most."""
        return self._best.twin

    @property
    def settled(self) -> bool:
        """Whether one guess is ahead of all others."""
        first, *others = sorted(guess.wrong for guess in self._guesses)
        return not others or first + 0.5 < others[0]

    @property
    def rewinds(self) -> bool:
        """Whether all guesses are of a dense model, which goes back to anywhere."""
        return all(guess.twin.shape.rewind is Rewind.ANYWHERE for guess in self._guesses)

    @property
    def said(self) -> Prediction | None:
        """What the guess that is believed now said of the last `begin`."""
        return self._best.said

    @property
    def may_not_rewind(self) -> bool:
        """Whether a guess of a model that cannot go back anywhere has been as right as the best one."""
        least = self._best.wrong + 0.5
        return any(guess.twin.shape.rewind is not Rewind.ANYWHERE and guess.wrong <= least for guess in self._guesses)

    def begin(self, prompt: Tokens, owner: str, at: float, slot: int | None = None,
              users: Sequence[int] = ()) -> Prediction:
        for guess in self._guesses:
            guess.before = guess.twin.copy()
            guess.said = guess.twin.begin(prompt, owner, at, slot, users)
        found = self.said
        assert found is not None
        return found

    def reported(self, cached: int) -> None:
        """What the server reported to have reused for the last `begin`."""
        for guess in self._guesses:
            if guess.said is not None:
                guess.wrong = guess.wrong * MEMORY + (abs(guess.said.cached - cached) > 2)
        most = self._best.wrong + FAR_BEHIND
        self._dropped += [guess for guess in self._guesses if guess.wrong >= most]
        self._guesses = [guess for guess in self._guesses if guess.wrong < most]

    def end(self, sampled: Tokens, *, stopped: bool = False) -> None:
        """The last `begin` is done."""
        for guess in self._guesses:
            if guess.said is not None:
                guess.twin.end(guess.said.slot, sampled, stopped=stopped)

    def cut(self, processed: int) -> None:
        """The last `begin` was cancelled when `processed` tokens were in."""
        for guess in self._guesses:
            if guess.said is not None:
                guess.twin.cut(guess.said.slot, processed)

    def never_began(self) -> None:
        """The last `begin` was cancelled before the server took it up."""
        for guess in self._guesses:
            guess.twin, guess.before = guess.before or guess.twin, None

    def restored(self, slot: int, held: Held) -> None:
        for guess in self._guesses:
            guess.twin.restored(slot, held)

    def cleared(self, slot: int) -> None:
        for guess in self._guesses:
            guess.twin.cleared(slot)

    def forget(self) -> None:
        """The server was started anew, perhaps with other options: nothing is held, and all guesses are played again,
        those that were dropped behind the others."""
        for guess in (*self._guesses, *self._dropped):
            guess.twin.forget()
            guess.said = guess.before = None
        for guess in self._dropped:
            guess.wrong = min(guess.wrong, self._best.wrong + 1)
        self._guesses, self._dropped = [*self._guesses, *self._dropped], []

    def observe(self, counts: Sequence[int | None]) -> list[Mismatch]:
        """As `Twin.observe`; a guess that the slots contradict loses credit. Returns what surprised the best one;
        nothing where another guess explains the slots."""
        best, surprises = self._best, [(guess, guess.twin.observe(counts)) for guess in self._guesses]
        for guess, found in surprises:
            guess.wrong += bool(found)
        explained = any(not found for _, found in surprises)
        return [] if explained else next(found for guess, found in surprises if guess is best)


def guesses(slots: int | None, learnt: Shape | None = None) -> list[Shape]:
    """What a llama.cpp server's cache may be like, the likeliest first. llama-server's default is four slots with one
    KV cache for all."""
    slots = slots or 1
    likely = slots == 4
    found = [
        Shape(slots=slots, unified=unified, ram_bytes=ram, rewind=rewind, window=window)
        for rewind, window in ((Rewind.ANYWHERE, 0), (Rewind.NOWHERE, 0), *((Rewind.WINDOW, size) for size in WINDOWS))
        for ram in (8192 << 20, 0)
        for unified in ((likely, not likely) if slots > 1 else (False,))
    ]
    return list(dict.fromkeys([replace(learnt, slots=slots), *found] if learnt else found))


def shape_to_json(shape: Shape) -> str:
    return json.dumps(asdict(shape))


def shape_from_json(text: str) -> Shape | None:
    """The shape in `text`; None if it is not one."""
    try:
        found = json.loads(text)
        shape = Shape(**{**found, "rewind": Rewind(found["rewind"])})
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    usual = Shape()
    for field in fields(Shape):
        value, like = getattr(shape, field.name), getattr(usual, field.name)
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1 << 62
        if field.name == "ram_bytes" and value is None:
            continue
        if type(value) is not type(like) and not (isinstance(like, float) and number):
            return None
        if isinstance(like, (int, float)) and not isinstance(like, bool) and not number:
            return None
    return shape if shape.slots and shape.batch and shape.micro_batch else None
