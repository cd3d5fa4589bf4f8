"""What a server was known to hold, as a value to store: without token ids, which are found again by what they are of.

A note is a claim, and the server's own words are the proof: a look corrects what was recalled.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from kvchat.cache.journal import Journal, Sighting, Use
from kvchat.cache.llamacpp.checkpoints import Memory
from kvchat.cache.llamacpp.hypotheses import Hypotheses
from kvchat.cache.llamacpp.prediction import Prediction
from kvchat.cache.llamacpp.server_state import ServerState, SlotCount
from kvchat.cache.llamacpp.slot_observer import SOMEWHERE, UNSEEN, SlotObserver
from kvchat.cache.llamacpp.slot_state import Held, State
from kvchat.cache.tokens import Tokens

Count = Annotated[int, Meta(ge=0, le=1 << 24)]
Index = Annotated[int, Meta(ge=0, le=1 << 12)]

_marks = count(2)


class Claim(Struct, frozen=True):
    """A state that the server was known to hold."""

    conversation: str
    tip: str
    tokens: Count
    sure: Count
    """How many ids of its branch it begins with."""
    at: float

    @property
    def state(self) -> State:
        return self.conversation, self.tip, self.tokens

    def held(self) -> Held:
        """As the simulator has it, the ids unknown and unlike all others."""
        return Held(Tokens.unknown(self.tokens, next(_marks)), self.conversation, self.at, tip=self.tip)


class NotedUse(Struct, frozen=True):
    """A request of ours."""

    number: int
    kind: Literal["conversation", "warm-up", "side"]
    conversation: str
    slot: Index
    by_prefix: bool
    """Whether the server chose the slot because that held a prompt that begins alike."""
    overwritten: tuple[Claim, ...]
    pushed_out: tuple[Claim, ...]

    def use(self, server: str) -> Use:
        """As the journal has it."""
        said = Prediction(
            0,
            self.slot,
            "nothing",
            0,
            0,
            None,
            "prefix" if self.by_prefix else "least recent",
            None,
            overwritten=tuple(claim.held() for claim in self.overwritten),
            pushed_out=tuple(claim.held() for claim in self.pushed_out),
        )
        return Use(self.number, self.kind, self.conversation, server, self.slot, {None: said}, own=False)


class Note(Struct, frozen=True):
    """What was known of a server."""

    process: str
    tasks: tuple[int | None, ...]
    counts: tuple[int, ...]
    running: int | None
    """The slot of a request that was not ended yet; SOMEWHERE: it was not known."""
    slots: tuple[Claim | None, ...]
    parked: tuple[Claim, ...]
    least_recent: tuple[Index, ...]
    memories: dict[str, tuple[Memory, ...]]
    """As of `Hypotheses`."""
    records: tuple[tuple[float, int], ...]
    shapes: int
    """Tells lists of guesses apart."""
    number: int
    uses: tuple[NotedUse, ...]
    reads: dict[str, tuple[int, int | None]]
    """By the digest of an answer: the number of its request, and its slot."""
    seen: tuple[Sighting, ...]
    file: str = ""
    """Of the model, as of `ServerState`."""

    @classmethod
    def from_json(cls, text: str) -> Note | None:
        """The note in `text`; None if it is not one, or an older kvchat's."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return None

    def is_of(self, counts: Sequence[SlotCount]) -> bool:
        """Whether all slots are as this run left them."""
        if self.running is not None or not any(count.task is not None for count in counts):
            return False
        seen = zip(self.counts, self.tasks, strict=False)
        shown = [(count.tokens, count.task) for count in counts]
        return len(counts) == len(self.counts) == len(self.tasks) and all(
            tokens == now and task in (last, UNSEEN) for (tokens, task), (now, last) in zip(seen, shown, strict=True)
        )

    def runs_in(self, slot: int) -> bool:
        """Whether a request that was not ended yet may be in a slot."""
        return self.running in (slot, SOMEWHERE)

    def held(self) -> Iterator[Claim]:
        """The states that slots and the host cache held."""
        yield from filter(None, self.slots)
        yield from self.parked

    def claims(self) -> Iterator[Claim]:
        """All states that it names."""
        yield from self.held()
        for use in self.uses:
            yield from (*use.overwritten, *use.pushed_out)

    def left_in(self, slot: int, found: SlotCount) -> Held | None:
        """What a request of ours left in a slot that the server says this of; None: it was another one."""
        if slot >= min(len(self.counts), len(self.tasks), len(self.slots)):
            return None
        same = self.counts[slot] == found.tokens and found.task is not None and self.tasks[slot] in (found.task, UNSEEN)
        claim = self.slots[slot]
        return claim.held() if same and claim and claim.conversation and claim.tokens == found.tokens else None

    def memories_of(self, slot: int) -> dict[str, Memory]:
        """How far back what a slot holds can go, as of `Hypotheses.memories`."""
        at = sum(claim is not None for claim in self.slots[:slot])
        return {kind: memories[at] for kind, memories in self.memories.items() if at < len(memories)}


class CacheNotes:
    """What one run notes of a server, and the next one takes over."""

    def __init__(self, server: str, guesses: Hypotheses, slots: SlotObserver, journal: Journal) -> None:
        self._server = server
        self._guesses = guesses
        self._slots = slots
        self._journal = journal

    def note(self, claim: Callable[[Held], Claim], reads: dict[str, tuple[int, int | None]]) -> Note:
        """What is known of the server, to be stored. `claim`: what is noted of a state. `reads`: as of `Note`."""
        best, slots = self._guesses.best, self._slots
        uses = self._journal.uses_of(self._server, self._guesses.proved_shape)
        return Note(
            process=slots.state.process,
            tasks=slots.tasks,
            counts=slots.tokens,
            running=slots.running,
            slots=tuple(claim(held) if held is not None else None for held in best.slots),
            parked=tuple(map(claim, best.parked)),
            least_recent=tuple(best.least_recent),
            memories={kind: tuple(memories) for kind, memories in self._guesses.memories.items()},
            records=tuple(self._guesses.records),
            shapes=self._fingerprint(),
            number=self._journal.number,
            uses=tuple(
                NotedUse(
                    use.number,
                    use.kind,
                    use.conversation,
                    said.slot,
                    said.chosen_by == "prefix",
                    tuple(map(claim, said.overwritten)),
                    tuple(map(claim, said.pushed_out)),
                )
                for use, said in uses
            ),
            reads=reads,
            seen=tuple(self._journal.seen_of(self._server)),
            file=slots.state.file,
        )

    def _fingerprint(self) -> int:
        return zlib.crc32("".join(shape.to_json() for shape in self._guesses.shapes).encode())

    def _recall_held(self, note: Note) -> None:
        slots = [claim.held() if claim is not None else None for claim in note.slots]
        parked = [claim.held() for claim in note.parked]
        self._guesses.recall(slots, parked, note.least_recent, note.memories)
        self._slots.tasks, self._slots.tokens = note.tasks, note.counts

    def catch_up(self, note: Note) -> None:
        """Go on from what another run has made of the server meanwhile, with the ids that are known here."""
        known = {held.state: held.tokens for held in self._guesses.best.held}
        self._recall_held(note)
        self._guesses.identify(lambda held: replace(held, tokens=known.get(held.state, held.tokens)))

    def recall(self, note: Note) -> None:
        """Go on from what another run noted, which the next look corrects."""
        self._recall_held(note)
        if note.shapes == self._fingerprint():
            self._guesses.recall_records(note.records)
        self._slots.state = ServerState(process=note.process, file=note.file)
        self._slots.looked_at = note.number / 1000

    def recall_uses(self, note: Note) -> None:
        """Take over who used the server."""
        self._journal.recall(self._server, note.number, [use.use(self._server) for use in note.uses], note.seen)

    def identify(self, known: Callable[[Held], Held]) -> None:
        """Put what `known` gives for it in the place of every state that is held, or was lost."""
        self._guesses.identify(known)
        self._journal.identify(known)
