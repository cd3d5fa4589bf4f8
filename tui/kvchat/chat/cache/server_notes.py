"""What a server that outlives kvchat still holds of our conversations, and who used which slot: noted in the store as
it happens, so that the next kvchat, a short `kvchat ask` included, goes on from there.

A note is a claim, and the server's own words are the proof: the next look corrects it as in one run. A slot with
another count was used by somebody else, and a process of another name holds nothing. A note has no token ids: they are
noted with their conversations when kvchat ends, and asked for where they are not.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from kvchat.backends.dialect import ServerInfo
from kvchat.cache import Held, Memory, ServerState, SlotCount, Tokens
from kvchat.cache.journal import Sighting, Use
from kvchat.cache.llamacpp.hypotheses import Hypotheses, shape_to_json
from kvchat.cache.llamacpp.prediction import Prediction
from kvchat.cache.llamacpp.slot_observer import SOMEWHERE, UNSEEN, SlotObserver
from kvchat.chat.cache.turn_journal import TurnJournal
from kvchat.chat.ground import Ground
from kvchat.store import StoreError

State = tuple[str, str, int]
"""Conversation, digest of the last message, tokens: what identifies a state."""
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

    def claims(self) -> Iterator[Claim]:
        """All states that it names."""
        yield from filter(None, self.slots)
        yield from self.parked
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


def note_in(text: str) -> Note | None:
    """The note in `text`; None if it is not one, or an older kvchat's."""
    try:
        return msgspec.json.decode(text, type=Note)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


def notes_key(server: ServerInfo) -> str:
    """The name under which the store has the note of a server."""
    return f"cache states {server.base_url} {server.build} {server.model} {server.slots}"


class BranchIds(Protocol):
    """The token ids of branches of conversations on one server, each named by the digest of its last message."""

    def known(self, id: str, tip: str) -> Tokens | None:
        """As known at once."""

    async def find(self, id: str, tip: str) -> Tokens | None:
        """Found out; None where they cannot be."""


class ServerNotes:
    """The note of one server. What another run noted is taken over; the ids of its states are found out when they are
    needed."""

    def __init__(
        self, server: ServerInfo, ground: Ground, ids: BranchIds, slots: SlotObserver, journal: TurnJournal
    ) -> None:
        self._server = server
        self._name = notes_key(server)
        self._ground = ground
        self._ids = ids
        self._slots = slots
        self._simulator = slots.simulator
        self._journal = journal
        self._sure: dict[State, int] = {}
        """As other runs noted it: how many ids of its branch a state begins with."""
        self._unknown: dict[State, int] = {}
        """Of these, the states whose ids are not known yet."""
        self._counted: dict[State, int] = {}
        """The same, as it was found out for the last note."""
        self._asked: dict[tuple[str, str], asyncio.Task[None]] = {}
        """By branch: who asks for its ids."""
        self._left_running: int | None = None
        """The slot of a request that another run never ended."""
        self._last = ""
        """The note that was read or written last."""
        self._last_facts: object = None
        """What tells that there is nothing new to write."""

    # -- what others noted ------------------------------------------------------------------------------------------

    def recall(self) -> None:
        """Go on from what another run noted, which the next look corrects."""
        self._last = self._ground.setting(self._name)
        if (note := note_in(self._last)) is None:
            return
        slots = [claim.held() if claim is not None else None for claim in note.slots]
        parked = [claim.held() for claim in note.parked]
        self._simulator.recall(slots, parked, note.least_recent, note.memories)
        if note.shapes == _fingerprint(self._simulator):
            self._simulator.recall_records(note.records)
        self._merge(note)
        self._slots.state = ServerState(process=note.process, file=note.file)
        self._slots.tasks, self._slots.tokens, self._left_running = note.tasks, note.counts, note.running
        self._slots.looked_at = note.number / 1000

    def _merge(self, note: Note) -> None:
        """Take over who used the server."""
        uses = [use.use(self._server.base_url) for use in note.uses]
        self._journal.log.recall(self._server.base_url, note.number, uses, note.seen)
        self._journal.recall(self._server.base_url, note.reads)
        for claim in note.claims():
            if claim.sure:
                self._sure[claim.state] = self._unknown[claim.state] = min(claim.sure, claim.tokens)
                self._asked.pop(claim.state[:2], None)

    def explains(self, slot: int, found: SlotCount) -> bool:
        """Whether another kvchat noted that it left what a slot holds; the simulator then has it."""
        if self._left_running in (slot, SOMEWHERE):
            self._slots.inherits = True
            return True
        note = note_in(self._ground.setting(self._name))
        held = note.left_in(slot, found) if note is not None else None
        if note is None or held is None:
            return False
        self._simulator.adopt(slot, held, note.memories_of(slot))
        if (ours := note_in(self._last)) is not None:  # from which the other kvchat went on
            gone = {claim.state for claim in ours.parked} - {claim.state for claim in note.parked}
            self._simulator.forget_parked(lambda held: _state(held) in gone)
        self._merge(note)
        return True

    def looked(self) -> None:
        """The slots were looked at: what another run left running has ended, or is known by now."""
        self._left_running = None

    @property
    def is_known(self) -> bool:
        """Whether the ids of all states are known."""
        return not self._unknown

    async def identify(self, conversation: str | None = None) -> None:
        """Find out the ids of what slots hold, and of what is held, or was, of one conversation; None: of all."""
        held = {(held.owner, held.tip) for held in self._simulator.best.slots if held is not None}
        for owner, tip, _ in list(self._unknown):
            if conversation in (None, owner) or (owner, tip) in held:
                if (owner, tip) not in self._asked:
                    self._asked[owner, tip] = asyncio.create_task(self._identify(owner, tip))
                await asyncio.wait({self._asked[owner, tip]})

    async def _identify(self, owner: str, tip: str) -> None:
        ids = await self._ids.find(owner, tip)
        self._identified(ids, [state for state in self._unknown if state[:2] == (owner, tip)])

    def identify_by(self, ids: Tokens, tips: Collection[str]) -> None:
        """`ids` are those of a prompt on whose branch the messages with these digests are: states of that branch begin
        with them."""
        self._identified(ids, [state for state in self._unknown if state[1] in tips])

    def _identified(self, ids: Tokens | None, states: Sequence[State]) -> None:
        sure = {state: self._unknown.pop(state) for state in states}

        def known(held: Held) -> Held:
            count = sure.get(_state(held), 0)
            if not count or ids is None or count > len(ids) or held.tokens.known:
                return held
            return replace(held, tokens=ids.first(count) + held.tokens.after(count))

        if sure:
            self._simulator.identify(known)
            self._journal.log.identify(known)

    # -- what is noted ----------------------------------------------------------------------------------------------

    def note_down(self) -> None:
        """Note what is known of the server, if anything of it is new, without making anybody wait."""
        if self._is_new():
            self._ground.in_background(self._write())

    async def noted(self) -> None:
        """The same, waiting for it."""
        if self._is_new():
            await self._write()

    def _is_new(self) -> bool:
        slots = self._slots
        before, self._last_facts = (
            self._last_facts,
            (self._journal.log.number, slots.tasks, slots.tokens, slots.running),
        )
        return before != self._last_facts and not self._ground.incognito

    async def _write(self) -> None:
        stored = self._ground.setting(self._name)
        if stored != self._last and (others := note_in(stored)) is not None:
            self._merge(others)
        note = msgspec.json.encode(self._note()).decode()
        if note != self._last:
            self._last = note
            with suppress(StoreError):  # the next start reads a little more
                await self._ground.keep_setting(self._name, note)

    def _note(self) -> Note:
        best, url = self._simulator.best, self._server.base_url
        before, self._counted = self._counted, {}

        def claim(held: Held) -> Claim:
            state = _state(held)
            sure = self._sure.get(state, before.get(state))
            if sure is None and held.tip and held.tokens.known and (ids := self._ids.known(*state[:2])) is not None:
                sure = held.tokens.common(ids)  # an answer may be other tokens in a prompt than it was sampled in
            if sure is not None:
                self._counted[state] = sure
            return Claim(*state, sure or 0, held.at)

        return Note(
            process=self._slots.state.process,
            tasks=self._slots.tasks,
            counts=self._slots.tokens,
            running=self._slots.running,
            slots=tuple(claim(held) if held is not None else None for held in best.slots),
            parked=tuple(map(claim, best.parked)),
            least_recent=tuple(best.least_recent),
            memories={kind: tuple(memories) for kind, memories in self._simulator.memories.items()},
            records=tuple(self._simulator.records),
            shapes=_fingerprint(self._simulator),
            number=self._journal.log.number,
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
                for use, said in self._journal.log.uses_of(url, self._simulator.proved_shape)
            ),
            reads=self._journal.reads_of(url),
            seen=tuple(self._journal.log.seen_of(url)),
            file=self._slots.state.file,
        )


def _state(held: Held) -> State:
    return held.owner, held.tip, len(held.tokens)


def _fingerprint(simulator: Hypotheses) -> int:
    return zlib.crc32("".join(shape_to_json(shape) for shape in simulator.shapes).encode())
