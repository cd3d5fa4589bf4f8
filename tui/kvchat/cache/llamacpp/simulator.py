"""The simulator of llama.cpp's cache: the same slots and parked states, kept in step with what is sent.

It says before a request how many of its tokens the server will reuse. It follows the server's own
decisions (slot choice, parking, look-up, rewinding) and knows nothing but token ids, so that a wrong prediction means
that something else used the server. Pure: no I/O, no clock. Requests are served one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.llamacpp.checkpoints import Checkpoint, Memory, at_most, overwritten, read, resume, saved
from kvchat.cache.llamacpp.host_cache import better, park, ratio, trimmed
from kvchat.cache.llamacpp.prediction import Mismatch, Prediction, StatePlace
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.cache.tokens import NO_TOKENS, Tokens

__all__ = ["Checkpoint", "Held", "Memory", "Mismatch", "Prediction", "Simulator", "StatePlace"]

STOPPED_LATE = 64
"""Tokens that a server may have written after the client stopped reading."""


class _Request(Struct, frozen=True):
    """A request on its way in a slot, or the last one there when it was stopped."""

    prompt: Tokens
    owner: str
    at: float
    start: int
    """Cached tokens."""
    before: Memory
    """The slot's memory when reading began."""
    users: Sequence[int]
    number: int
    tip: str
    copies: tuple[int, ...] = ()
    """Slots in which further answers to the same prompt are generated."""
    taken: Sequence[Held] = ()
    """The parked state that it took, and those that were parked after that one."""
    old: Held | None = None
    """What the slot held before."""
    unknown: Sequence[Held] = ()
    """The parked states that it may have taken, for their ids are not known."""
    least: int = 0
    most: int = 0
    """As of `Prediction`."""
    sampled: Tokens = NO_TOKENS
    """What was sampled when it was stopped, the last token included, which may be decoded by then."""


class _State(Struct):
    """What changes in a simulator."""

    slots: Sequence[Held | None]
    parked: Sequence[Held] = ()
    used: Sequence[int] = ()
    """When each slot was released last, on the clock."""
    clock: int = 0
    """Counts what is begun and ended."""
    busy: Mapping[int, _Request] = field(default_factory=dict)
    stopped: Mapping[int, _Request] = field(default_factory=dict)
    """The last request of a slot, where the client stopped it."""
    room: tuple[float, float] = (0.0, inf)
    """Bytes that the host cache was seen to hold, and those that were too many."""


class Simulator:
    """The slots and parked states of one server."""

    def __init__(self, shape: Shape, state: _State | None = None) -> None:
        self.shape = shape
        self._go_on(state or self._nothing())

    def forget(self) -> None:
        """The server was started again: nothing is held."""
        self._go_on(replace(self._nothing(), room=self._room))

    def _nothing(self) -> _State:
        return _State([None] * self.shape.slots, used=[0] * self.shape.slots)

    @property
    def host(self) -> Shape:
        """`shape` with the size of the host cache, where something was found gone that it should have held: between
        what it held and what was too much. Without the size of a token, a token counts as one byte."""
        least, most = self._room
        if most == inf:
            return self.shape
        return replace(self.shape, ram_bytes=int(least + most) // 2, token_bytes=self.shape.token_bytes or 1.0)

    def _go_on(self, state: _State) -> None:
        self._slots, self._parked, self._used = list(state.slots), list(state.parked), list(state.used)
        self._clock, self._busy, self._stopped = state.clock, dict(state.busy), dict(state.stopped)
        self._room = state.room

    def _state(self) -> _State:
        return _State(self._slots, self._parked, self._used, self._clock, self._busy, self._stopped, self._room)

    @property
    def slots(self) -> Sequence[Held | None]:
        """What each slot holds; None: nothing."""
        return tuple(self._slots)

    @property
    def parked(self) -> Sequence[Held]:
        """The parked states, the oldest first."""
        return tuple(self._parked)

    @property
    def least_recent(self) -> Sequence[int]:
        """The slots, the one released longest ago first."""
        return sorted(range(self.shape.slots), key=lambda slot: (self._used[slot], -slot))

    def recall(self, slots: Sequence[Held | None], parked: Sequence[Held], least_recent: Sequence[int]) -> None:
        """Go on from what another simulator of this server knew: its `slots`, `parked` and `least_recent`."""
        self.forget()
        self._slots[:] = [*slots, *self._slots][: self.shape.slots]
        self._parked = list(parked) if self.shape.ram_bytes != 0 else []
        for slot in least_recent:
            if 0 <= slot < self.shape.slots:
                self._clock += 1
                self._used[slot] = self._clock

    def adopt(self, slot: int, held: Held) -> None:
        """A request that was not played left this in `slot`."""
        if 0 <= slot < self.shape.slots:
            self._slots[slot] = held

    def forget_parked(self, is_gone: Callable[[Held], bool]) -> None:
        """A request that was not played took these parked states, or pushed them out."""
        self._parked = [held for held in self._parked if not is_gone(held)]

    def identify(self, known: Callable[[Held], Held]) -> None:
        """Put what `known` gives for it in the place of every state. A parked state that a later one begins with goes:
        the server dropped it when it parked that one."""
        self._slots = [known(held) if held is not None else None for held in self._slots]
        parked = [known(held) for held in self._parked]
        self._parked = [
            held
            for at, held in enumerate(parked)
            if held.tokens.known < len(held.tokens)
            or not any(later.tokens.starts_with(held.tokens) for later in parked[at + 1 :])
        ]

    def copy(self) -> Simulator:
        """The same state in another object, to try something out."""
        return Simulator(self.shape, self._state())

    def reshaped(self, shape: Shape) -> Simulator:
        """The same state in the cache of a server with other options; no more checkpoints than that keeps."""
        other = Simulator(shape, self._state())
        other._slots = [held and _having_fewer(held, shape) for held in self._slots]
        other._parked = [_having_fewer(held, shape) for held in self._parked]
        return other

    def without_parked(self, prompt: Tokens, more_than: int) -> Simulator:
        """The same without the parked states that begin with more tokens of `prompt`."""
        few = [held for held in self._parked if held.tokens.common(prompt) <= more_than]
        return Simulator(self.shape, replace(self._state(), parked=few))

    def reused_of(self, held: Held, prompt: Tokens) -> int:
        """Tokens of a prompt that are reused of a state that was just restored."""
        alone = Simulator(self.shape)
        alone.restored(0, held)
        return alone.predict(prompt, 0).cached

    def predict(
        self, prompt: Tokens, slot: int | None = None, users: Sequence[int] = (), answers: int = 1
    ) -> Prediction:
        """What `begin` would return; changes nothing."""
        return self.copy().begin(prompt, "", 0.0, slot, users, answers=answers)

    def slot_after_cancel(self, prompt: Tokens) -> int:
        """The slot that `prompt` goes to when the requests that were cancelled have ended. Until then it is not known
        how much of their prompts is in: their batches may have read all of it."""
        later = self.copy()
        later.end_batches()
        return later.predict(prompt).slot

    def end_batches(self) -> None:
        """The batches of the requests that were cancelled have ended, and have read all of their prompts."""
        for slot, request in self._stopped.items():
            held = self._slots[slot]
            if held is None or len(held.tokens) < len(request.prompt):
                self._keep(slot, request, len(request.prompt))

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
        """The request is sent. `slot` pins it. `users` are the tokens at which user messages begin, in order: chat
        requests only. `tip`: as of `Held`, before it is answered. `answers`: how many it asks for. Raises ValueError
        for an empty prompt, which the server does not read at all."""
        if not prompt:
            raise ValueError("A prompt needs at least one token.")
        best, where = self._best(prompt)
        index, chosen_by, look_up = self._choose(prompt, slot)
        before, slots = self.held, self.slots
        old, taken = slots[index], self._look_up(index, prompt) if look_up else ()
        state = self._slots[index]
        common = state.tokens.common(prompt) if state else 0
        memory, length = (state.memory, len(state.tokens)) if state else (Memory(), 0)
        cached, memory = resume(memory, length, common, len(prompt), self.shape)
        least, most = _bounds(cached, prompt, before, slots if taken else ())
        looked = look_up and not (state and _may_begin(state, prompt))
        self._clock += 1
        request = _Request(
            prompt,
            owner,
            at,
            cached,
            memory,
            tuple(users),
            self._clock,
            tip,
            copies=self._copies(index, answers),
            taken=taken,
            old=old,
            unknown=[held for held in self._parked if looked and _may_begin(held, prompt)],
            least=least,
            most=most,
        )
        self._occupy(index, request)
        replaced = [old, *taken[:1], *(slots[copy] for copy in request.copies)]
        gone = [(held, any(held is one for one in replaced)) for held in self._gone(before)]
        return Prediction(
            cached,
            index,
            "nothing" if not common else "parked" if taken else "slot",
            common,
            best,
            where,
            chosen_by,
            replaces=old if old and not self._survives(old, prompt) else None,
            least=least,
            most=most,
            overwritten=tuple(held for held, ran_over in gone if ran_over),
            pushed_out=tuple(held for held, ran_over in gone if not ran_over),
            copies=request.copies,
        )

    def _copies(self, slot: int, answers: int) -> tuple[int, ...]:
        """For each answer but the first the server takes the first free slot other than `slot`, as it is, and
        leaves it empty."""
        free = [other for other in range(self.shape.slots) if other != slot and other not in self._busy]
        return tuple(free[: answers - 1])

    def _occupy(self, slot: int, request: _Request) -> None:
        """Let a request run in `slot`, and in the slots of its copies."""
        for copy in request.copies:
            self.cleared(copy)
        self._busy |= dict.fromkeys((slot, *request.copies), request)
        self._stopped.pop(slot, None)
        self._keep(slot, request, len(request.prompt))
        self._clear_idle(slot)

    def reported(self, slot: int, cached: int, ends: Collection[int] = ()) -> bool:
        """The request in `slot` reused this many tokens. What was believed to be held beyond is gone; where it reused
        more, a parked state of unknown ids is. `ends`: where the batches of its prompt ended, where that is known.
        Returns whether the host cache, which was seen to hold something, was too small for what is missing."""
        slot %= self.shape.slots
        if (request := self._busy.get(slot)) is None:
            return False
        (least, most), sized = self._room, replace(self.shape, token_bytes=self.shape.token_bytes or 1.0)
        size, full = sum(held.bytes(sized) for held in request.taken), False
        without = request.old.tokens.common(request.prompt) if request.old is not None else 0
        if cached >= request.start:
            least = max(least, size) if cached > without + STOPPED_LATE else least
            if cached > request.most + self.shape.micro_batch and most < inf:
                least = (least + most) / 2  # it held something that was believed to have no room
        elif request.taken and request.least < request.start:  # another client went on in the slot, and so did this one
            self._parked = [held for held in self._parked if held is not request.old]
            self._parked[:0] = self._kept_beside(request.taken[0], request, cached)
        elif request.taken and self._came_whole(request):
            full, most = least > 0, min(most, size)
            self._parked = [held for held in self._parked if any(held is one for one in request.taken)]
        self._room = min(least, most), most
        fitting = [
            held
            for held in request.unknown
            if self.shape.overlap * len(held.tokens) <= cached <= len(held.tokens) and cached > request.start
        ]
        if fitting:  # the server moves the state of which it loses least
            moved = min(fitting, key=lambda held: len(held.tokens))
            self._parked = [held for held in self._parked if held is not moved]
        if cached < request.start:
            self._missed(slot, request, cached, ends)
        return full

    def _kept_beside(self, held: Held, request: _Request, cached: int) -> list[Held]:
        """What is parked of a state in which another client, and now this request, went on: all of it where less than
        half was of use to that one. That may be more than is cached where it only goes back to a checkpoint: then no
        more is known of it."""
        keeps = self.shape.keep * len(held.tokens)
        most = cached
        if self.shape.rewind is not Rewind.ANYWHERE and request.old is not None:
            further = (c.tokens for c in held.checkpoints if c.tokens > cached)
            most = min(next(further, len(held.tokens)), len(request.old.tokens))
        if cached >= keeps:
            return []
        if most >= keeps:
            held = replace(held, tokens=held.tokens.first(cached) + Tokens.unknown(len(held.tokens) - cached))
        return [held]

    def _came_whole(self, request: _Request) -> bool:
        """Whether a parked state is of use to a request as it is. One that had to be rewound may be there all the same,
        without the checkpoint that this takes."""
        return self.shape.rewind is Rewind.ANYWHERE or request.prompt.starts_with(request.taken[0].tokens)

    def _missed(self, slot: int, request: _Request, cached: int, ends: Collection[int]) -> None:
        left = tuple(c for c in request.before.checkpoints if c.tokens - 1 <= cached)
        window = max(0, cached + 1 - self.shape.window)  # it went on from there, so that is held
        first = min(request.before.first, window)
        message = next((user for user in request.users[:-1] if user > cached), None)
        if not left and ends and message is not None and message not in ends:  # a slot without one ends a batch there
            left = (Checkpoint(cached, first),)
        request = replace(request, start=cached, before=Memory(first, left))
        self._busy |= dict.fromkeys((slot, *request.copies), request)
        self._keep(slot, request, len(request.prompt))

    def end(
        self, slot: int, sampled: Tokens, *, stopped: bool = False, tip: str = "", order: Sequence[int] = ()
    ) -> None:
        """The request in `slot` is done. `sampled` are all sampled tokens: the last one is never decoded. `tip`: as of
        `Held`, with the answer. `order`: in which its answers ended, where they were several; 0 is the one in `slot`.

        `stopped`: the client stopped it, so that the server may have written some more."""
        slot %= self.shape.slots
        request, held = self._release(slot, order), self._slots[slot]
        if request is None or held is None:
            return
        tokens = _decoded(request.prompt, sampled)
        first = overwritten(held.memory.first, len(tokens), self.shape)
        self._slots[slot] = replace(held, tokens=tokens, memory=replace(held.memory, first=first), tip=tip or held.tip)
        self._share_window(slot)
        if stopped:
            self._stopped[slot] = replace(request, sampled=sampled)

    def cut(self, slot: int, processed: int) -> None:
        """The request in `slot` was cancelled when `processed` tokens of its prompt, cached ones included, were in."""
        slot %= self.shape.slots
        request = self._release(slot)
        if request is not None:
            self._stopped[slot] = request
            self._keep(slot, request, max(processed, request.start))

    def restored(self, slot: int, held: Held) -> Prediction:
        """A slot file was restored into `slot`: what that ran over."""
        slot, before = slot % self.shape.slots, self.held
        self.cleared(slot)
        memory = saved(held.memory, len(held.tokens), self.shape)
        if not self.shape.file_checkpoints:
            memory = Memory(memory.first)
        self._slots[slot] = replace(held, memory=memory)
        return Prediction(0, slot, "nothing", 0, 0, None, "pinned", None, overwritten=tuple(self._gone(before)))

    def probed(self, slot: int) -> None:
        """A request was pinned to `slot` that began with all it holds, and left it as it was."""
        slot %= self.shape.slots
        self._clear_idle(slot)
        self._release(slot)

    def put_back(self, slot: int) -> None:
        """What `slot` holds was saved and restored: the same, as it comes back from a file."""
        held = self._slots[slot % self.shape.slots]
        if held is not None:
            self.restored(slot, held)

    def cleared(self, slot: int) -> None:
        """`slot` was emptied."""
        slot %= self.shape.slots
        self._slots[slot] = None
        self._busy.pop(slot, None)
        self._stopped.pop(slot, None)

    def observe(self, counts: Sequence[int | None], used: Collection[int] = ()) -> list[Mismatch]:
        """Compare with the tokens that the server reports per idle slot (`n_prompt_tokens`); None for a busy one.
        `used`: slots that are known to have been used by another client, even where the count is the same.

        A slot with another count was used by another client: what it held is parked where the server parks, for it
        does when an unrelated prompt comes; else it is lost. After a stopped request a different count is normal, and
        so is a task that was not seen before: it may be that one."""
        found, used = list[Mismatch](), set(used) - self._stopped.keys()
        for slot, count in enumerate(counts[: self.shape.slots]):
            held = self._slots[slot]
            same = count == (len(held.tokens) if held else 0) and slot not in used
            if count is None or slot in self._busy or same:
                continue
            if slot not in used and self._settled(slot, count):
                self._stopped.pop(slot)
                continue
            found.append(Mismatch(slot, held, count))
        for one in sorted(found, key=lambda one: not one.count):
            self._used_by_another(one.slot, one.count)
        return found

    def _used_by_another(self, slot: int, count: int) -> None:
        """Play that another client's request left this many tokens in `slot`: none of them is known, so that it counts
        as unlike all that is held; in a slot that was not used longest ago it was not. 0: it was erased, or emptied."""
        if not count:
            self.cleared(slot)
            return
        prompt = Tokens.unknown(count)
        self.begin(prompt, "", 0.0, None if self.predict(prompt).slot == slot else slot)
        self._release(slot)

    def _settled(self, slot: int, count: int) -> bool:
        """Whether `count` is what a stopped request left behind; the slot is then set to it."""
        request, held = self._stopped.get(slot), self._slots[slot]
        if request is None or count < request.start:
            return False
        if count <= len(request.prompt):
            self._keep(slot, request, count)
            return True
        if held is None or len(held.tokens) < len(request.prompt):  # the batch that ran read the rest of the prompt
            held = self._having(request, len(request.prompt))
        if count > len(held.tokens) + STOPPED_LATE:
            return False
        read = held.tokens if not request.sampled else request.prompt + request.sampled
        self._slots[slot] = replace(held, tokens=read.first(count) + Tokens.unknown(count - len(read)))
        return True

    def _best(self, prompt: Tokens) -> tuple[int, StatePlace | None]:
        """The longest common prefix with anything held, and where that is."""
        best, where = 0, None
        for index, held in enumerate(self._slots):
            if held is not None and (common := held.tokens.common(prompt)) > best:
                best, where = common, StatePlace("slot", index)
        for index, held in enumerate(self._parked):
            if (common := held.tokens.common(prompt)) > best:
                best, where = common, StatePlace("parked", index)
        return best, where

    def _choose(
        self,
        prompt: Tokens,
        pinned: int | None,
    ) -> tuple[int, Literal["prefix", "least recent", "pinned"], bool]:
        """The slot, why it is that one, and whether parked states are looked up.

        A number beyond the last slot means one of them, too, but its state then counts as useless: it is parked, and
        a better parked state is looked up."""
        free = [slot for slot in range(self.shape.slots) if slot not in self._busy] or range(self.shape.slots)
        chosen, most = None if pinned is None else pinned % self.shape.slots, 0.0
        for slot in free if pinned is None else [pinned]:
            held = self._slots[slot] if slot < self.shape.slots else None
            share = ratio(held.tokens.common(prompt), len(prompt)) if held else 0.0
            if share > most and share > (ratio(self.shape.similarity, 1) or 1.0):
                chosen, most = slot, share
        if chosen is None:
            return min(free, key=lambda slot: (self._used[slot], -slot)), "least recent", True
        held = self._slots[chosen]
        loses = held is not None and ratio(ratio(most * len(prompt), 1), len(held.tokens)) < self.shape.keep
        return chosen, "prefix" if pinned is None else "pinned", loses

    def _look_up(self, slot: int, prompt: Tokens) -> Sequence[Held]:
        """Park what `slot` holds and take the better parked state, if there is one: that, and those parked after it."""
        if self.shape.ram_bytes == 0:
            return ()
        held, taken = self._slots[slot], tuple[Held, ...]()
        if held is not None:
            self._parked = park(self._parked, held, self.host)
        index = better(self._parked, held, prompt, self.shape)
        if index is not None and not self.has_room(slot, len(self._parked[index].tokens)):
            self._slots[slot] = None  # the restore fails half-way; the state stays parked
        elif index is not None:
            taken = tuple(self._parked[index:])
            state = self._parked.pop(index)
            self._slots[slot] = replace(state, memory=saved(state.memory, len(state.tokens), self.shape))
        self._parked = trimmed(self._parked, self.shape)
        return taken

    def has_room(self, slot: int, tokens: int) -> bool:
        """Whether this many tokens fit into `slot` next to what the others hold. With one KV cache for all, the server
        restores a state of the host cache before it empties the idle slots."""
        others = sum(len(held.tokens) for other, held in enumerate(self._slots) if held and other != slot)
        return not self.shape.unified or not self.shape.context or tokens <= self.shape.context - others

    def _clear_idle(self, chosen: int) -> None:
        """Park the other slots' states; with one KV cache for all they are emptied, too."""
        if not self.shape.parks_idle or self.shape.ram_bytes == 0:
            return
        for slot, held in enumerate(self._slots):
            if slot == chosen or slot in self._busy or held is None:
                continue
            self._parked = trimmed(park(self._parked, held, self.host), self.shape)
            if self.shape.unified:
                self.cleared(slot)

    @property
    def held(self) -> list[Held]:
        """All states, in slots and parked."""
        return [held for held in (*self._slots, *self._parked) if held is not None]

    def _gone(self, before: Sequence[Held]) -> list[Held]:
        """Those of the states `before` of which not all is held any more."""
        now = self.held
        there = {id(held) for held in now}
        return [
            held
            for held in before
            if id(held) not in there and not any(other.tokens.starts_with(held.tokens) for other in now)
        ]

    def _survives(self, held: Held, prompt: Tokens) -> bool:
        """Whether all of a replaced state is still somewhere."""
        return prompt.starts_with(held.tokens) or any(p.tokens.starts_with(held.tokens) for p in self._parked)

    def _release(self, slot: int, order: Sequence[int] = ()) -> _Request | None:
        """The request that ran in `slot`, which is free from now on."""
        request = self._busy.pop(slot, None)
        used = (slot, *(request.copies if request is not None else ()))
        for freed in [used[at] for at in order if at < len(used)] or used:
            self._clock += 1
            self._used[freed] = self._clock
            self._busy.pop(freed, None)
        return request

    def _keep(self, slot: int, request: _Request, processed: int) -> None:
        """Let `slot` hold the first `processed` tokens of a request's prompt."""
        self._slots[slot] = self._having(request, processed) if processed else None
        self._share_window(slot)

    def _having(self, request: _Request, processed: int) -> Held:
        """What is held of a request's prompt when `processed` tokens of it are in."""
        memory = read(
            request.before, request.start, len(request.prompt), processed, request.users, request.number, self.shape
        )
        return Held(request.prompt.first(processed), request.owner, request.at, memory, request.tip)

    def _share_window(self, slot: int) -> None:
        """With one cache for all, what `slot` reads overwrites the others' old positions, of the oldest use first."""
        if self.shape.rewind is not Rewind.WINDOW or not self.shape.unified:
            return
        filled = sum(len(held.tokens) - held.memory.first for held in self._slots if held)
        over = filled - self.shape.window_room
        for other in sorted(range(self.shape.slots), key=lambda other: (other == slot, self._used[other])):
            held = self._slots[other]
            if over <= 0 or held is None:
                continue
            spare = max(0, len(held.tokens) - self.shape.window - held.memory.first)
            taken = min(over, spare)
            over -= taken
            self._slots[other] = replace(held, memory=replace(held.memory, first=held.memory.first + taken))


def _having_fewer(held: Held, shape: Shape) -> Held:
    return replace(held, memory=at_most(held.memory, shape))


def _may_begin(held: Held, prompt: Tokens) -> bool:
    """Whether a state may have more of `prompt` than is known of its ids."""
    return held.tokens.common(prompt) == held.tokens.known < len(held.tokens)


def _bounds(cached: int, prompt: Tokens, held: Sequence[Held], slots: Sequence[Held | None]) -> tuple[int, int]:
    """The least and the most tokens that are reused of a prompt where ids of what is held are not known. `slots`: where
    a parked state was taken, for the server may have found more in them."""
    least = [one.tokens.known for one in slots if one and _may_begin(one, prompt)]
    most = [min(len(one.tokens), len(prompt) - 1) for one in held if _may_begin(one, prompt)]
    return min([cached, *least]), max([cached, *most])


@lru_cache(maxsize=1)
def _decoded(prompt: Tokens, sampled: Tokens) -> Tokens:
    """What a slot holds after an answer: one copy for all simulators of a server."""
    return prompt + sampled.first(len(sampled) - 1)
