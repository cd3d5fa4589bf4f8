"""What a server's cache may be like, where it does not say: one twin per guess, and the one that has been right.

The rule: every guess is played along from the first request; the one that predicted best is believed, the first one
where nothing tells them apart. What was learnt is a `Shape` that can be kept for the server, its build and model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace

from kvchat.cache.held import Held
from kvchat.cache.shape import Rewind, Shape
from kvchat.cache.tokens import Tokens
from kvchat.cache.twin import Mismatch, Prediction, Twin

MEMORY = 0.9
"""How much of its record a guess keeps with each new request: a rule that changed shows after a few."""
USUAL_WINDOW = 1024


class Candidates:
    """Twins of one server, one per guess about its cache. Everything but `best` goes to all of them."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._twins = [Twin(shape) for shape in shapes]
        self._wrong = [0.0] * len(self._twins)
        self._said: list[Prediction | None] = [None] * len(self._twins)

    @property
    def best(self) -> Twin:
        """The twin that has been right most."""
        return self._twins[min(range(len(self._twins)), key=self._wrong.__getitem__)]

    @property
    def settled(self) -> bool:
        """Whether one guess is ahead of all others."""
        return len(self._twins) == 1 or sorted(self._wrong)[0] + 0.5 < sorted(self._wrong)[1]

    @property
    def rewinds(self) -> bool:
        """Whether all guesses are of a dense model, which goes back to anywhere."""
        return all(twin.shape.rewind is Rewind.ANYWHERE for twin in self._twins)

    def begin(self, prompt: Tokens, owner: str, at: float, slot: int | None = None,
              users: Sequence[int] = ()) -> Prediction:
        best = self.best
        self._said = [twin.begin(prompt, owner, at, slot, users) for twin in self._twins]
        found = self._said[self._twins.index(best)]
        assert found is not None
        return found

    def reported(self, cached: int) -> None:
        """What the server reported to have reused for the last `begin`."""
        for at, said in enumerate(self._said):
            if said is not None:
                self._wrong[at] = self._wrong[at] * MEMORY + (abs(said.cached - cached) > 2)

    def end(self, sampled: Tokens, *, stopped: bool = False) -> None:
        """The last `begin` is done."""
        for twin, said in zip(self._twins, self._said, strict=True):
            if said is not None:
                twin.end(said.slot, sampled, stopped=stopped)

    def cut(self, processed: int) -> None:
        """The last `begin` was cancelled when `processed` tokens were in."""
        for twin, said in zip(self._twins, self._said, strict=True):
            if said is not None:
                twin.cut(said.slot, processed)

    def restored(self, slot: int, held: Held) -> None:
        for twin in self._twins:
            twin.restored(slot, held)

    def cleared(self, slot: int) -> None:
        for twin in self._twins:
            twin.cleared(slot)

    def forget(self) -> None:
        for twin in self._twins:
            twin.forget()

    def observe(self, counts: Sequence[int]) -> list[Mismatch]:
        """As `Twin.observe`; a guess that the slots contradict loses credit. Returns what surprised the best one."""
        best, found = self.best, []
        for at, twin in enumerate(self._twins):
            mismatches = twin.observe(counts)
            self._wrong[at] += bool(mismatches)
            if twin is best:
                found = mismatches
        return found


def guesses(slots: int | None, learnt: Shape | None = None) -> list[Shape]:
    """What a llama.cpp server's cache may be like, the likeliest first. llama-server's default is four slots with one
    KV cache for all."""
    slots = slots or 1
    likely = slots == 4
    found = [
        Shape(slots=slots, unified=unified, ram_bytes=ram, rewind=rewind, window=window)
        for rewind, window in ((Rewind.ANYWHERE, 0), (Rewind.WINDOW, USUAL_WINDOW), (Rewind.NOWHERE, 0))
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
        names: Iterable[str] = [field.name for field in fields(Shape)]
        return Shape(**{**{name: found[name] for name in names if name in found}, "rewind": Rewind(found["rewind"])})
    except (ValueError, TypeError, KeyError):
        return None
