"""What a server that outlives kvchat still holds of our conversations, and who used which slot: noted as it happens,
and gone on from by the next kvchat, a short `kvchat ask` included.

The rule: a note is a claim, and the server's own words are the proof. It is taken as what the simulator knew when it
looked last, so that the next look corrects it as in one run: a slot with another count was used by somebody else, and
a process of another name holds nothing. Its note has no ids: they are noted with their conversations, when kvchat ends,
and asked for again where they are not.
"""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from array import array
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends.dialect import ServerState, SlotCount
from kvchat.cache.causes.evidence import Foreign
from kvchat.cache.llamacpp.checkpoints import Checkpoint, Memory
from kvchat.cache.llamacpp.hypotheses import Hypotheses, shape_to_json
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.cache.tokens import Tokens
from kvchat.chat.cache.turn_journal import Journal, NotedSight, NotedUse

BranchIds = Callable[[str, str], Awaitable[Tokens | None]]
"""The token ids of a branch, given the id of its conversation and the digest of its last message."""
Known = Callable[[str, str], Tokens | None]
"""The same, of what is known at once."""
Sure = Callable[[Held], int | None]
"""How many ids of its branch a state begins with; None: not known."""
State = tuple[str, str, int]
"""Conversation, digest of the last message, tokens: what a state is told apart by."""


SOMEWHERE = -1


class Note(Struct, frozen=True):
    """What was known of a server."""

    state: ServerState
    tasks: tuple[int | None, ...]
    counts: tuple[int, ...]
    running: int | None
    """The slot of a request that was not ended yet; SOMEWHERE: it was not known."""
    slots: tuple[Held | None, ...]
    parked: tuple[Held, ...]
    least_recent: tuple[int, ...]
    memories: Mapping[str, Sequence[Memory]]
    """As of `Hypotheses`."""
    records: tuple[tuple[float, int], ...]
    shapes: int
    """Tells lists of guesses apart."""
    number: int
    uses: tuple[NotedUse, ...]
    reads: Mapping[str, tuple[int, int | None]]
    """By the digest of an answer: the number of its request, and its slot."""
    seen: tuple[NotedSight, ...]
    sure: Mapping[State, int]
    """By state: how many ids of its branch it begins with."""

    def left_in(self, slot: int, count: SlotCount) -> Held | None:
        """What a request of ours left in a slot that the server says this of; None: it was another one."""
        if slot >= min(len(self.counts), len(self.tasks), len(self.slots)):
            return None
        same = (self.counts[slot], self.tasks[slot]) == (count.tokens, count.task) and count.task is not None
        held = self.slots[slot]
        return held if same and held is not None and held.owner and len(held.tokens) == count.tokens else None

    def memories_of(self, slot: int) -> dict[str, Memory]:
        """How far back what a slot holds can go, as of `Hypotheses.memories`."""
        at = sum(held is not None for held in self.slots[:slot])
        return {kind: memories[at] for kind, memories in self.memories.items() if at < len(memories)}


class Recollection:
    """What was noted of a server's states, of which the ids are found out when they are needed."""

    def __init__(self, server: str, simulator: Hypotheses, journal: Journal, prefixes: BranchIds) -> None:
        self._server = server
        self._simulator = simulator
        self._journal = journal
        self._prefixes = prefixes
        self._noted: dict[State, int] = {}
        """As of `Note.sure`."""
        self._sure: dict[State, int] = {}
        """Of these, the states whose ids are not known yet."""
        self._asked: dict[tuple[str, str], asyncio.Task[None]] = {}
        """By branch."""

    def recall(self, note: Note) -> None:
        """Go on from a note of this server."""
        self._simulator.recall(note.slots, note.parked, note.least_recent, note.memories)
        if note.shapes == _fingerprint(self._simulator):
            self._simulator.recall_records(note.records)
        self.merge(note)

    def merge(self, note: Note) -> None:
        """Take over who used the server, as another kvchat has noted it."""
        self._journal.recall(self._server, note.number, note.uses, note.reads, note.seen)
        self._noted.update(note.sure)
        self._sure.update(note.sure)
        for state in note.sure:
            self._asked.pop(state[:2], None)

    @property
    def is_known(self) -> bool:
        """Whether the ids of all states are known."""
        return not self._sure

    def adopt(self, note: Note, slot: int, held: Held) -> None:
        """Another kvchat noted that it left `held` in a slot."""
        self._simulator.adopt(slot, held, note.memories_of(slot))
        self.merge(note)

    def sure(self, held: Held) -> int | None:
        """How many ids of its branch a state begins with, where that was noted."""
        return self._noted.get(_state(held))

    async def identify(self, conversation: str | None = None) -> None:
        """Find out the ids of what slots hold, and of what is held, or was, of one conversation; None: of all."""
        held = {(held.owner, held.tip) for held in self._simulator.best.slots if held is not None}
        for owner, tip, _ in list(self._sure):
            if conversation in (None, owner) or (owner, tip) in held:
                if (owner, tip) not in self._asked:
                    self._asked[owner, tip] = asyncio.create_task(self._identify(owner, tip))
                await asyncio.wait({self._asked[owner, tip]})

    async def _identify(self, owner: str, tip: str) -> None:
        self._identified(await self._prefixes(owner, tip), [state for state in self._sure if state[:2] == (owner, tip)])

    def identify_by(self, ids: Tokens, tips: Collection[str]) -> None:
        """`ids` are those of a prompt on whose branch the messages with these digests stand: states of that branch
        begin with them."""
        self._identified(ids, [state for state in self._sure if state[1] in tips])

    def _identified(self, ids: Tokens | None, states: Sequence[State]) -> None:
        sure = {state: self._sure.pop(state) for state in states}

        def known(held: Held) -> Held:
            count = sure.get(_state(held), 0)
            if not count or ids is None or count > len(ids) or held.tokens.known:
                return held
            return replace(held, tokens=ids.first(count) + held.tokens.after(count))

        if sure:
            self._simulator.identify(known)
            self._journal.identify(known)

    async def aclose(self) -> None:
        """Ask for no more ids."""
        for task in self._asked.values():
            task.cancel()
        if self._asked:
            await asyncio.wait(self._asked.values())


class Notebook:
    """The note of one server, in the store."""

    def __init__(
        self,
        name: str,
        read: Callable[[str], str],
        write: Callable[[str, str], Awaitable[None]] | None,
        in_background: Callable[[Coroutine[Any, Any, None]], object],
        known: Known,
    ) -> None:
        """`write` None: nothing is kept, as in an incognito conversation."""
        self._name = name
        self._read = read
        self._write = write
        self._in_background = in_background
        self._known = known
        self._last = ""
        self._sure: dict[State, int] = {}
        """By state, as of `Note`: what was found out for the last note."""

    @property
    def note(self) -> Note | None:
        """What is noted now, perhaps by another kvchat."""
        return note_in(self._read(self._name))

    def _others(self) -> Note | None:
        """What another kvchat has noted since."""
        text = self._read(self._name)
        return note_in(text) if text != self._last else None

    def note_down(self, of: Noted) -> None:
        """Note what is known of the server, without making anybody wait."""
        if self._write is not None:
            self._in_background(self.write(of))

    async def write(self, of: Noted) -> None:
        """As `note_down`, and wait for it."""
        if (others := self._others()) is not None:
            of.merge(others)
        before, self._sure = self._sure, {}

        def sure(held: Held) -> int | None:
            state = _state(held)
            count = before.get(state)
            if count is None and held.tip and held.tokens.known and (ids := self._known(*state[:2])) is not None:
                count = held.tokens.common(ids)  # an answer may be other tokens in a prompt than it was sampled in
            if count is not None:
                self._sure[state] = count
            return count

        note = of.noted(sure)
        if self._write is not None and note != self._last:
            self._last = note
            await self._write(self._name, note)


class Noted(Protocol):
    """Who knows a server."""

    def merge(self, note: Note) -> None:
        """Take over what another kvchat has noted of who used it."""

    def noted(self, sure: Sure) -> str:
        """What is known of it, as JSON."""


def noted(
    simulator: Hypotheses,
    journal: Journal,
    server: str,
    state: ServerState,
    tasks: Sequence[int | None],
    counts: Sequence[int],
    running: int | None,
    sure: Sure,
) -> str:
    """What is known of a server, as JSON."""
    best, uses = simulator.best, journal.uses_of(server, simulator.proved_shape)

    def claim(held: Held) -> dict[str, object]:
        return {
            "conversation": held.owner,
            "tip": held.tip,
            "tokens": len(held.tokens),
            "sure": sure(held) or 0,
            "at": held.at,
        }

    def claims(states: Iterable[Held | None]) -> list[dict[str, object] | None]:
        return [claim(held) if held is not None else None for held in states]

    return json.dumps(
        {
            "process": state.process,
            "tasks": list(tasks),
            "counts": list(counts),
            "running": running,
            "slots": claims(best.slots),
            "parked": claims(best.parked),
            "least_recent": list(best.least_recent),
            "memories": {
                kind: [
                    [memory.first, [[c.tokens, c.first, c.request] for c in memory.checkpoints]] for memory in memories
                ]
                for kind, memories in simulator.memories.items()
            },
            "records": simulator.records,
            "shapes": _fingerprint(simulator),
            "number": journal.number,
            "uses": [
                {
                    "number": use.number,
                    "kind": use.kind,
                    "conversation": use.conversation,
                    "slot": use.slot,
                    "by_prefix": use.by_prefix,
                    "overwritten": claims(use.overwritten),
                    "pushed_out": claims(use.pushed_out),
                }
                for use in uses
            ],
            "reads": journal.reads_of(server),
            "seen": [
                [seen.number, seen.what, seen.foreign and seen.foreign.slot, seen.foreign and seen.foreign.tokens]
                for seen in journal.seen_of(server)
            ],
        }
    )


def note_in(text: str) -> Note | None:
    """The note in `text`; None if it is not one."""
    sure: dict[State, int] = {}
    marks = iter(range(2, 1 << 20))

    def held(one: Mapping[str, Any]) -> Held:
        tokens = int(one["tokens"])
        state = Held(
            Tokens.unknown(tokens, next(marks)), str(one["conversation"]), float(one["at"]), tip=str(one["tip"])
        )
        if int(one["sure"]):
            sure[_state(state)] = min(int(one["sure"]), tokens)
        return state

    try:
        found = json.loads(text)
        return Note(
            ServerState(process=str(found["process"])),
            tuple(None if task is None else int(task) for task in found["tasks"]),
            tuple(map(int, found["counts"])),
            None if found["running"] is None else int(found["running"]),
            tuple(held(one) if one else None for one in found["slots"]),
            tuple(held(one) for one in found["parked"]),
            tuple(map(int, found["least_recent"])),
            {
                str(kind): [
                    Memory(int(first), tuple(Checkpoint(*map(int, c)) for c in points)) for first, points in memories
                ]
                for kind, memories in found["memories"].items()
            },
            tuple((float(wrong), int(mistakes)) for wrong, mistakes in found["records"]),
            int(found["shapes"]),
            int(found["number"]),
            tuple(
                NotedUse(
                    int(use["number"]),
                    use["kind"],
                    str(use["conversation"]),
                    int(use["slot"]),
                    bool(use["by_prefix"]),
                    tuple(map(held, use["overwritten"])),
                    tuple(map(held, use["pushed_out"])),
                )
                for use in found["uses"]
            ),
            {
                str(digest): (int(number), None if slot is None else int(slot))
                for digest, (number, slot) in found["reads"].items()
            },
            tuple(
                (int(number), what, None if tokens is None else Foreign(slot and int(slot), int(tokens)))
                for number, what, slot, tokens in found["seen"]
            ),
            sure,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


MOST_IDS = 1 << 16
"""Token ids that are noted of a state; those of a longer one are asked for again."""


def ids_noted(process: str, ids: Mapping[str, Tokens]) -> str:
    """The token ids of branches, by the digest of their last message, that a process of a server holds, as JSON."""
    return json.dumps(
        {
            "process": process,
            "ids": {
                tip: base64.b64encode(zlib.compress(tokens.data, 1)).decode()
                for tip, tokens in ids.items()
                if tokens.known == len(tokens) <= MOST_IDS
            },
        }
    )


def ids_in(note: str, process: str) -> dict[str, Tokens]:
    """What was noted of this process; nothing of another, nor where the note is damaged."""
    try:
        found = json.loads(note or "{}")
        if not process or found.get("process") != process:
            return {}
        return {str(tip): _unpacked(packed) for tip, packed in found["ids"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error):
        return {}


def _unpacked(packed: str) -> Tokens:
    unpacking = zlib.decompressobj()
    return Tokens(array("i", unpacking.decompress(base64.b64decode(packed), MOST_IDS * array("i").itemsize)))


def _state(held: Held) -> State:
    return held.owner, held.tip, len(held.tokens)


def _fingerprint(simulator: Hypotheses) -> int:
    return zlib.crc32("".join(shape_to_json(shape) for shape in simulator.shapes).encode())
