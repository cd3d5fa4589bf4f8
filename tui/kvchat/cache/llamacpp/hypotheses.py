"""What a server's cache may be like, where it does not say: one simulator per guess, and the one that has been right.

Every guess is played along from the first request; the one that predicted best is believed, the first one
where nothing tells them apart. What shows in the batches of a prompt is not guessed (`batches`); options that are
never the default are, once a prediction is wrong that one of them explains.
What was learnt is a `Shape` that can be kept for the server, its build and model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kvchat.cache.llamacpp.batches import shape_from_batches
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.llamacpp.checkpoints import Memory
from kvchat.cache.llamacpp.simulator import Mismatch, Prediction, Simulator
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.cache.tokens import Tokens
from kvchat.figures.accounting import NOISE

MEMORY = 0.9
"""How much of its record a guess keeps with each new request: a rule that changed shows after a few."""
TOLERANCE = 2
"""Tokens that a right guess may be off."""
FAR_BEHIND = 3.0
"""A guess that was wrong this many times more than the best one is dropped, until the server is started again."""
SHOWN = 2
"""All guesses of other models were wrong this many times more than one of a dense one: it is dense."""
LEVEL = 0.5
"""Guesses whose records differ by no more than this are equally good."""
WINDOWS = (1024, 512, 128, 4096)
"""Tokens of the sliding windows that models have."""
CHECKPOINTS = tuple(dict.fromkeys((8, 3, 16, 4, *range(1, Shape().checkpoints))))
"""Other numbers of checkpoints (`--ctx-checkpoints`), those that were once llama-server's own first."""
SIMILARITIES = (0.5, 0.0, 0.25, 0.75, 0.9)
"""Other values of `--slot-prompt-similarity`, as far as they are worth a guess; 0.5 was once llama-server's own."""
MOST_PARENTS, MOST_EXPLAINED = 8, 2
"""Guesses that are varied for one wrong prediction, and those that are added for each of them."""
ONCE = 1
"""This many reports that no guess explains have another cause: an unseen program, an answer in other tokens."""
MOST_ADDED = 8
"""Guesses that are added to those that were given."""


class Replay(Struct, frozen=True):
    """A request as one hypothesis has played it."""

    shape: Shape
    before: Simulator
    """The simulator as it was when the request was sent."""
    prediction: Prediction


class _Hypothesis(Struct):
    """One guess about the server's cache, with its simulator."""

    simulator: Simulator
    wrong: float = 0.0
    """How often it was wrong of late."""
    mistakes: int = 0
    """How often it was wrong since the server was started."""
    said: Prediction | None = None
    """Of the last `begin`."""
    before: Simulator | None = None
    """The simulator before the last `begin`."""

    def plays(self, cached: int, ends: Sequence[int], slot: int | None = None) -> bool:
        """Play what was reported for the last `begin`, as of `Simulator.reported`; `slot`: which one answered it.
        Whether that was said."""
        if self.said is None or not self.said.allows(cached, TOLERANCE) or slot not in (None, self.said.slot):
            return False
        self.simulator.reported(self.said.slot, cached, ends)
        return True


class _Unexplained(Struct, frozen=True):
    """A report that no guess explained."""

    cached: int
    begun: Callable[[Simulator, int | None], Prediction]
    pinned: int | None
    before: Mapping[int, Simulator]
    """By `id` of each guess: its simulator before that request."""

    def is_explained_by(self, guess: _Hypothesis, shape: Shape) -> bool:
        """Whether `guess` would have said it with this shape."""
        before = self.before.get(id(guess))
        return before is not None and self.begun(before.reshaped(shape), self.pinned).allows(self.cached, TOLERANCE)


class Hypotheses:
    """Simulators of one server, one per guess about its cache. Everything but `best` goes to all of them."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._runs = False
        """Whether the last `begin` is not ended yet."""
        self._all = [_Hypothesis(Simulator(shape)) for shape in shapes]
        self._most = len(shapes) + MOST_ADDED
        self._guesses = list(self._all)
        self._dropped: list[_Hypothesis] = []
        self._begun: Callable[[Simulator, int | None], Prediction]
        """Plays the last `begin`."""
        self._users: Sequence[int] = ()
        self._pinned: int | None = None
        """Of the last `begin`."""
        self._unexplained = 0
        """Reports that no guess explained."""
        self._earlier: _Unexplained | None = None
        """The last of them."""
        self._cached: int | None = None
        """What was reported for the last `begin`."""
        self._ends: Sequence[int] = ()
        """Where the batches of the last `begin` ended, in tokens; empty: not known."""
        self._ended: Callable[[Simulator, int], None] | None = None
        """Plays the end of the last `begin`; None: it is not ended, or was cut."""

    @property
    def _best(self) -> _Hypothesis:
        return min(self._guesses, key=lambda guess: guess.wrong)

    @property
    def best(self) -> Simulator:
        """The simulator that has been right most."""
        return self._best.simulator

    @property
    def settled(self) -> bool:
        """Whether one guess is ahead of all others."""
        first, *others = sorted(guess.wrong for guess in self._guesses)
        return not others or first + LEVEL < others[0]

    def modest(self, prompt: Tokens) -> Simulator:
        """Of the guesses that nothing tells apart from the best one, the one that claims least of `prompt`."""
        return min(self.likely, key=lambda simulator: simulator.predict(prompt).cached)

    def agree_on(self, prompt: Tokens) -> bool:
        """Whether all guesses that nothing tells apart from the best one claim as much of `prompt`."""
        claims = [simulator.predict(prompt).cached for simulator in self.likely]
        return max(claims) - min(claims) <= NOISE

    @property
    def likely(self) -> list[Simulator]:
        """The best one, and the others that nothing tells apart from it."""
        most = self._best.wrong + LEVEL
        return [
            guess.simulator for guess in sorted(self._guesses, key=lambda guess: guess.wrong) if guess.wrong <= most
        ]

    def surely_cached(self, prompt: Tokens, slot: int | None) -> int:
        """What the server reuses at least of `prompt`, the last `begin`, by every guess that nothing tells apart from
        the best one, whatever it has lost of its host cache and its checkpoints."""
        most = self._best.wrong + LEVEL
        before = [guess.before for guess in self._guesses if guess.wrong <= most and guess.before is not None]
        dense = [guess.mistakes for guess in self._all if _is_dense(guess)]
        others = [guess.mistakes for guess in self._all if not _is_dense(guess)]
        rewinds = not others or (bool(dense) and min(dense) + SHOWN <= min(others))
        return min((_in_slot(one.without_parked(prompt, 0), prompt, slot, rewinds) for one in before), default=0)

    @property
    def rewinds(self) -> bool:
        """Whether all guesses are of a dense model, which goes back to anywhere."""
        return all(_is_dense(guess) for guess in self._guesses)

    @property
    def said(self) -> Prediction | None:
        """What the guess that is believed now said of the last `begin`."""
        return self._best.said

    @property
    def _proved(self) -> _Hypothesis:
        """The guess that was wrong least since the server was started. Of equals it is the one that claims least: a
        model that goes back anywhere, no host cache."""
        return min(
            self._guesses,
            key=lambda guess: (guess.mistakes, not _is_dense(guess), guess.simulator.shape.ram_bytes != 0),
        )

    @property
    def proved_shape(self) -> Shape:
        """What the server's cache is like by all that it has reported."""
        return self._proved.simulator.shape

    @property
    def may_park(self) -> bool:
        """Whether the server may have a host cache, though none was seen to hold anything."""
        shapes = [guess.simulator.shape for guess in self._guesses]
        return self.proved_shape.ram_bytes == 0 and any(shape.ram_bytes != 0 for shape in shapes)

    @property
    def proved(self) -> Replay | None:
        """The last `begin` as the guess of `proved_shape` has it; None: there was none."""
        guess = self._proved
        if guess.said is None or guess.before is None:
            return None
        return Replay(guess.simulator.shape, guess.before, guess.said)

    @property
    def running(self) -> int | None:
        """The slot of the last `begin`, as long as it is not known how that ended."""
        return self.said.slot if self._runs and self.said is not None else None

    @property
    def all_said(self) -> dict[Shape | None, Prediction]:
        """What each guess said of the last `begin`."""
        return {guess.simulator.shape: guess.said for guess in self._guesses if guess.said is not None}

    @property
    def is_dense(self) -> bool | None:
        """Whether the model's cache goes back to anywhere, as far as what was reported tells; None: it does not."""
        dense = [guess.mistakes for guess in self._guesses if _is_dense(guess)]
        others = [guess.mistakes for guess in self._guesses if not _is_dense(guess)]
        if not dense or not others:
            return not others
        return min(dense) < min(others) if min(dense) != min(others) else None

    def begin(
        self,
        prompt: Tokens,
        owner: str,
        at: float,
        slot: int | None = None,
        users: Sequence[int] = (),
        tip: str = "",
        answers: int = 1,
    ) -> Prediction:
        self._runs = True
        self._users, self._pinned, self._cached, self._ends, self._ended = users, slot, None, (), None
        self._begun = lambda simulator, slot: simulator.begin(prompt, owner, at, slot, users, tip, answers)
        for guess in self._guesses:
            guess.before = guess.simulator.copy()
            guess.said = self._begun(guess.simulator, slot)
        found = self.said
        assert found is not None
        return found

    def reported(self, cached: int, *, proves: bool = True) -> None:
        """What the server reported to have reused for the last `begin`. `proves`: whether that tells the guesses
        apart; it does not where one is only right by what it does not know."""
        said = [guess.said for guess in self._guesses if guess.said is not None]
        proves = proves and not any(one.allows(cached) and abs(one.cached - cached) > TOLERANCE for one in said)
        best, record, is_explained = self._best, self._best.wrong, not proves
        for guess in self._guesses:
            if guess.said is not None:
                full = guess.simulator.reported(guess.said.slot, cached, self._ends)
                wrong = not full and not guess.said.allows(cached, TOLERANCE)
                is_explained |= not wrong and (guess is best or not _differ_in_checkpoints(guess, best))
                if proves:
                    guess.wrong = guess.wrong * MEMORY + wrong
                    guess.mistakes += wrong
        self._cached = cached
        self._unexplained += not is_explained
        if not is_explained:
            if self._unexplained > ONCE:
                lost = best.wrong if cached <= NOISE else record  # that all is lost once has many causes
                self._vary(best, record, _other_checkpoints, lambda guess: guess.plays(cached, self._ends), lost)
            before = {id(guess): guess.before for guess in self._guesses if guess.before is not None}
            self._earlier = _Unexplained(cached, self._begun, self._pinned, before)
        self._drop()

    def _vary(
        self,
        best: _Hypothesis,
        record: float,
        options: Callable[[Shape], Iterator[Shape]],
        explains: Callable[[_Hypothesis], bool],
        once: float | None = None,
    ) -> bool:
        """Add guesses that explain what none does: those that are as good as the best one with one of `options`, played
        from before the last `begin` on, with the record that this one had; `once`: with this one, where they do not
        explain the report before that none did, and behind the others. Whether there are any."""
        found, best_shape = list[_Hypothesis](), best.simulator.shape
        twice = set[int]()
        for parent in self._guesses[:MOST_PARENTS]:
            before, shape, explained = parent.before, parent.simulator.shape, 0
            remembers = shape.checkpoints > best_shape.checkpoints  # what the best one has dropped
            if before is None or shape.kind != best_shape.kind or (parent.wrong > best.wrong + LEVEL and not remembers):
                continue
            known = {guess.simulator.shape for guess in (*self._all, *found)}
            for other in options(shape):
                if other in known or explained == MOST_EXPLAINED or len(self._guesses) + len(found) >= self._most:
                    continue
                start = before.reshaped(other)
                guess = _Hypothesis(start.copy(), record, max(0, best.mistakes - 1), before=start)
                guess.said = self._begun(guess.simulator, self._pinned)
                if explains(guess):
                    found.append(guess)
                    explained += 1
                    if self._earlier is not None and self._earlier.is_explained_by(parent, other):
                        twice.add(id(guess))
                    elif once is not None:
                        guess.wrong = once
        found.sort(key=lambda guess: id(guess) not in twice)
        self._all += found
        self._guesses += found
        return bool(found)

    def ran_out(self) -> None:
        """The server broke off several answers in a window that was not full: a sliding window in one cache for all
        slots has no room for them, and speaks against all other guesses."""
        for guess in self._guesses:
            shape = guess.simulator.shape
            guess.wrong += not (shape.rewind is Rewind.WINDOW and shape.unified)

    def batched(self, start: int, ends: Sequence[int]) -> None:
        """How far the prompt of the last `begin` was read after each batch, from `start` on, in tokens: it is played
        again as the server's options are by that. A guess that ends no batch there loses credit."""
        self._ends = ends
        for guess in self._guesses:
            if guess.said is None or guess.before is None:
                continue
            shape = shape_from_batches(guess.simulator.shape, start, ends, self._users)
            if shape is None:
                guess.wrong += 1
                guess.mistakes += 1
            elif shape != guess.simulator.shape:
                guess.simulator = guess.before.reshaped(shape)
                guess.said = self._begun(guess.simulator, guess.said.slot)

    def answered_in(self, slot: int, cached: int) -> None:
        """It was another slot that answered the last `begin`: what was reported is played there."""
        best = self._best
        if self._pinned is None:
            self._vary(best, best.wrong, _other_similarities, lambda guess: guess.plays(cached, self._ends, slot))
        self._play_in(slot)

    def _play_in(self, slot: int) -> list[_Hypothesis]:
        """Play the last `begin`, as far as it has come, in this slot; the guesses that had it in another one."""
        moved = [guess for guess in self._guesses if guess.said is not None and guess.said.slot != slot]
        for guess in moved:
            assert guess.said is not None and guess.before is not None
            guess.simulator = guess.before.copy()
            self._begun(guess.simulator, slot)
            if self._cached is not None:
                guess.simulator.reported(slot, self._cached, self._ends)
                guess.said = replace(guess.said, common=min(guess.said.common, self._cached))
            if self._ended is not None:
                self._ended(guess.simulator, slot)
            guess.said = replace(guess.said, slot=slot)
        return moved

    def _drop(self) -> None:
        most = self._best.wrong + FAR_BEHIND
        self._dropped += [guess for guess in self._guesses if guess.wrong >= most]
        self._guesses = [guess for guess in self._guesses if guess.wrong < most]

    def end(self, sampled: Tokens, *, stopped: bool = False, tip: str = "", order: Sequence[int] = ()) -> None:
        """The last `begin` is done. As of `Simulator.end`."""
        self._runs = False
        self._ended = lambda simulator, slot: simulator.end(slot, sampled, stopped=stopped, tip=tip, order=order)
        for guess in self._guesses:
            if guess.said is not None:
                self._ended(guess.simulator, guess.said.slot)

    def cut(self, processed: int) -> None:
        """The last `begin` was cancelled when `processed` tokens were in."""
        self._runs = False
        for guess in self._guesses:
            if guess.said is not None:
                guess.simulator.cut(guess.said.slot, processed)

    def never_began(self) -> None:
        """The last `begin` was cancelled before the server took it up."""
        self._runs = False
        for guess in self._guesses:
            guess.simulator, guess.before = guess.before or guess.simulator, None

    @property
    def memories(self) -> dict[str, list[Memory]]:
        """By the kind of model: how far back it can go in what the best guess's slots and host cache hold, in order."""
        best, found = self.best, dict[str, list[Memory]]()
        for guess in self._guesses:
            simulator, shape = guess.simulator, guess.simulator.shape
            same = (shape.unified, shape.ram_bytes) == (best.shape.unified, best.shape.ram_bytes)
            if (
                not _is_dense(guess)
                and same
                and [len(held.tokens) for held in simulator.held] == [len(held.tokens) for held in best.held]
            ):
                found[shape.kind] = [held.memory for held in simulator.held]
        return found

    def recall(
        self,
        slots: Sequence[Held | None],
        parked: Sequence[Held],
        least_recent: Sequence[int],
        memories: Mapping[str, Sequence[Memory]],
    ) -> None:
        """As `Simulator.recall`. `memories`: as they were."""
        for guess in self._guesses:
            known = iter(memories.get(guess.simulator.shape.kind, ()))

            def remembered(held: Held, known: Iterator[Memory] = known) -> Held:
                return replace(held, memory=next(known, Memory()))

            guess.simulator.recall(
                [remembered(held) if held is not None else None for held in slots],
                [remembered(held) for held in parked],
                least_recent,
            )

    def identify(self, known: Callable[[Held], Held]) -> None:
        """As `Simulator.identify`."""
        for guess in self._guesses:
            guess.simulator.identify(known)
            if guess.before is not None:  # from which the last `begin` may be played again
                guess.before.identify(known)

    @property
    def shapes(self) -> list[Shape]:
        """Of all guesses, in an order that is the same for the same ones."""
        return [guess.simulator.shape for guess in self._sorted]

    @property
    def _sorted(self) -> list[_Hypothesis]:
        return sorted(self._all, key=lambda guess: guess.simulator.shape.to_json())

    @property
    def records(self) -> list[tuple[float, int]]:
        """How often each guess was wrong, of late and since the server was started, in the order of `shapes`."""
        return [(guess.wrong, guess.mistakes) for guess in self._sorted]

    def recall_records(self, records: Sequence[tuple[float, int]]) -> None:
        """Go on with the records of guesses of the same shapes; with none where they are not as many."""
        if len(records) != len(self._all):
            return
        for guess, (wrong, mistakes) in zip(self._sorted, records, strict=True):
            guess.wrong, guess.mistakes = wrong, mistakes
        self._drop()

    def adopt(self, slot: int, held: Held, memories: Mapping[str, Memory] | None = None) -> None:
        """As `Simulator.adopt`. `memories`: how far back it can go, by what the cache may be like."""
        for guess in self._guesses:
            memory = (memories or {}).get(guess.simulator.shape.kind, held.memory)
            guess.simulator.adopt(slot, replace(held, memory=memory))

    def forget_parked(self, is_gone: Callable[[Held], bool]) -> None:
        """As `Simulator.forget_parked`."""
        for guess in self._guesses:
            guess.simulator.forget_parked(is_gone)

    def restored(self, slot: int, held: Held) -> dict[Shape | None, Prediction]:
        """As `Simulator.restored`, by guess."""
        return {guess.simulator.shape: guess.simulator.restored(slot, held) for guess in self._guesses}

    def probed(self, slot: int) -> None:
        """As `Simulator.probed`."""
        for guess in self._guesses:
            guess.simulator.probed(slot)

    def put_back(self, slot: int) -> None:
        """As `Simulator.put_back`."""
        for guess in self._guesses:
            guess.simulator.put_back(slot)

    def cleared(self, slot: int) -> None:
        for guess in self._guesses:
            guess.simulator.cleared(slot)

    def forget(self) -> None:
        """The server was started again, perhaps with other options: nothing is held, and all guesses are played again,
        those that were dropped behind the others."""
        for guess in (*self._guesses, *self._dropped):
            guess.simulator.forget()
            guess.said = guess.before = None
            guess.mistakes = 0
        for guess in self._dropped:
            guess.wrong = min(guess.wrong, self._best.wrong + 1)
        self._guesses, self._dropped = [*self._guesses, *self._dropped], []

    def observe(
        self, counts: Sequence[int | None], used: Collection[int] = (), ran: int | None = None
    ) -> list[Mismatch]:
        """As `Simulator.observe`; a guess that the slots contradict loses credit. Returns what surprised the best one;
        nothing where another guess explains the slots. `ran`: the slot of the last `begin`, where the server shows it:
        if that has ended, it is played there."""
        best = self._best
        surprises = [(guess, guess.simulator.observe(counts, used)) for guess in self._guesses]
        cached, ended = self._cached, self._ended
        explained = any(not found for _, found in surprises)
        if not explained and cached is not None and ended is not None and self._pinned is None:

            def explains(guess: _Hypothesis) -> bool:
                assert guess.said is not None
                if not guess.plays(cached, self._ends):
                    return False
                ended(guess.simulator, guess.said.slot)
                return not guess.simulator.observe(counts, used)

            explained = self._vary(best, best.wrong + 1, _other_similarities, explains)
        for guess, found in surprises:
            guess.wrong += bool(found)
        of_best = next(found for guess, found in surprises if guess is best)
        for guess in self._play_in(ran) if ran is not None and ended is not None else ():
            found = guess.simulator.observe(counts, used)
            of_best = found if guess is best else of_best
        return [] if explained else of_best


class Guesses:
    """What the guesses about a server have in common, to be asked and not to be played: `Cache` keeps the order in
    which that is done."""

    def __init__(self, played: Hypotheses) -> None:
        self._played = played

    @property
    def said(self) -> Prediction | None:
        """As `Hypotheses.said`."""
        return self._played.said

    @property
    def settled(self) -> bool:
        """As `Hypotheses.settled`."""
        return self._played.settled

    @property
    def rewinds(self) -> bool:
        """As `Hypotheses.rewinds`."""
        return self._played.rewinds

    @property
    def shapes(self) -> list[Shape]:
        """As `Hypotheses.shapes`."""
        return self._played.shapes

    def modest(self, prompt: Tokens) -> Simulator:
        """As `Hypotheses.modest`, to be looked at."""
        return self._played.modest(prompt)

    def surely_cached(self, prompt: Tokens, slot: int | None) -> int:
        """As `Hypotheses.surely_cached`."""
        return self._played.surely_cached(prompt, slot)


def _in_slot(simulator: Simulator, prompt: Tokens, slot: int | None, rewinds: bool) -> int:
    """What is reused of `prompt` without going back, unless the model is known to do so."""
    found = simulator.predict(prompt, slot)
    held = simulator.slots[found.slot]
    return found.cached if rewinds or (held is not None and found.cached == len(held.tokens)) else 0


def _is_dense(guess: _Hypothesis) -> bool:
    return guess.simulator.shape.rewind is Rewind.ANYWHERE


def _differ_in_checkpoints(one: _Hypothesis, other: _Hypothesis) -> bool:
    """Whether it is only the number of checkpoints in which two guesses differ."""
    return replace(one.simulator.shape, checkpoints=0) == replace(other.simulator.shape, checkpoints=0)


def _other_checkpoints(shape: Shape) -> Iterator[Shape]:
    if shape.rewind is not Rewind.ANYWHERE and shape.checkpoints:
        yield from (replace(shape, checkpoints=count) for count in CHECKPOINTS)


def _other_similarities(shape: Shape) -> Iterator[Shape]:
    if shape.slots > 1:
        yield from (replace(shape, similarity=share) for share in SIMILARITIES)


def guesses(
    slots: int | None, learnt: Shape | None = None, context: int | None = None, model: Shape | None = None
) -> list[Shape]:
    """What a llama.cpp server's cache may be like, the likeliest first. llama-server's default is four slots with one
    KV cache for all. `context`: the tokens that a slot may hold, as the server reports them. `model`: what its model's
    file says of it."""
    slots, context = slots or 1, context or 0
    likely = slots == 4

    def whole(unified: bool) -> int:
        return context if unified else context * slots

    if model is None:
        windows = (Shape(rewind=Rewind.WINDOW, window=size) for size in WINDOWS)
        models = [Shape(), Shape(rewind=Rewind.NOWHERE), *windows]
    else:
        models = [model]
        learnt = learnt if learnt is not None and learnt.kind in {one.kind for one in models} else None
    found = [
        replace(one if learnt is None else one.with_options(learnt), slots=slots, unified=unified, ram_bytes=ram)
        for one in models
        for ram in (8192 << 20, 0)
        for unified in ((likely, not likely) if slots > 1 else (False,))
    ]
    first = [replace(learnt, slots=slots)] if learnt else []
    return list(dict.fromkeys(replace(one, context=whole(one.unified)) for one in (*first, *found)))
