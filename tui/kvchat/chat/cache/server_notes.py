"""What a server that outlives kvchat still holds of our conversations, and who used which slot: noted in the store as
it happens, so that the next kvchat, a short `kvchat ask` included, goes on from there.

A note is a claim, and the server's own words are the proof: the next look corrects it as in one run. A slot with
another count was used by somebody else, and a process of another name holds nothing. A note has no token ids: they are
noted with their conversations when kvchat ends, and asked for where they are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec
from msgspec.structs import replace

from kvchat.backends.dialect import ServerInfo
from kvchat.cache import Cache, Held, SlotCount, Tokens
from kvchat.cache.tracking import Claim, Note, State
from kvchat.chat.cache.turn_journal import TurnJournal
from kvchat.chat.ground import Ground
from kvchat.store import StoreError


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
        self, server: ServerInfo, ground: Ground, ids: BranchIds, simulated: Cache, journal: TurnJournal
    ) -> None:
        self._server = server
        self._name = notes_key(server)
        self._ground = ground
        self._ids = ids
        self._simulated = simulated
        self._slots = simulated.slots
        self._journal = journal
        self._sure: dict[State, int] = {}
        """As other runs noted it: how many ids of its branch a state begins with."""
        self._unknown: dict[State, int] = {}
        """Of these, the states whose ids are not known yet."""
        self._counted: dict[State, int] = {}
        """The same, as it was found out for the last note."""
        self._asked: dict[tuple[str, str], asyncio.Task[None]] = {}
        """By branch: who asks for its ids."""
        self._recalled: Note | None = None
        """What another run noted, until the slots are looked at: it may never have ended a request."""
        self._last = ""
        """The note that was read or written last."""
        self._last_facts: object = None
        """What tells that there is nothing new to write."""

    # -- what others noted ------------------------------------------------------------------------------------------

    def recall(self) -> None:
        """Go on from what another run noted, which the next look corrects."""
        self._last = self._ground.setting(self._name)
        if (note := Note.from_json(self._last)) is None:
            return
        self._simulated.notes.recall(note)
        self._merge(note)
        self._recalled = note

    def _merge(self, note: Note) -> None:
        """Take over who used the server."""
        self._simulated.notes.recall_uses(note)
        self._journal.recall(self._server.base_url, note.reads)
        for claim in note.claims():
            if claim.sure:
                self._sure[claim.state] = self._unknown[claim.state] = min(claim.sure, claim.tokens)
                self._asked.pop(claim.state[:2], None)

    def catch_up(self, counts: Sequence[SlotCount]) -> bool:
        """Whether another kvchat has used the server since and noted how it left all slots: the simulator goes on from
        that. By the slots alone it would not be known what that one restored, parked and took."""
        if not self._slots.is_seen or self._slots.running is not None or self._slots.is_as_left(counts):
            return False
        stored = self._ground.setting(self._name)
        note = Note.from_json(stored) if stored != self._last else None
        if note is None or not note.is_of(counts):
            return False
        self._simulated.notes.catch_up(note)
        self._merge(note)
        self._last = stored
        return True

    def explains(self, slot: int, found: SlotCount) -> bool:
        """Whether another kvchat noted that it left what a slot holds; the simulator then has it."""
        if self._recalled is not None and self._recalled.runs_in(slot):
            self._slots.inherits = True
            return True
        note = Note.from_json(self._ground.setting(self._name))
        held = note.left_in(slot, found) if note is not None else None
        if note is None or held is None:
            return False
        self._slots.adopt(slot, held, note.memories_of(slot))
        if (ours := Note.from_json(self._last)) is not None:  # from which the other kvchat went on
            gone = {claim.state for claim in ours.held()} - {claim.state for claim in note.held()}
            self._slots.forget_parked(lambda held: held.state in gone)
        self._merge(note)
        return True

    def looked(self) -> None:
        """The slots were looked at: what another run left running has ended, or is known by now."""
        self._recalled = None

    @property
    def is_known(self) -> bool:
        """Whether the ids of all states are known."""
        return not self._unknown

    async def identify(self, conversation: str | None = None) -> None:
        """Find out the ids of what slots hold, and of what is held, or was, of one conversation; None: of all."""
        held = {(held.owner, held.tip) for held in self._simulated.best.slots if held is not None}
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
            count = sure.get(held.state, 0)
            if not count or ids is None or count > len(ids) or held.tokens.known:
                return held
            return replace(held, tokens=ids.first(count) + held.tokens.after(count))

        if sure:
            self._simulated.notes.identify(known)

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
            (self._simulated.journal.number, slots.tasks, slots.tokens, slots.running),
        )
        return before != self._last_facts and not self._ground.incognito

    async def _write(self) -> None:
        stored = self._ground.setting(self._name)
        if stored != self._last and (others := Note.from_json(stored)) is not None:
            self._merge(others)
        note = msgspec.json.encode(self._note()).decode()
        if note != self._last:
            self._last = note
            with suppress(StoreError):  # the next start reads a little more
                await self._ground.keep_setting(self._name, note)

    def _note(self) -> Note:
        before, self._counted = self._counted, {}

        def claim(held: Held) -> Claim:
            state = held.state
            sure = self._sure.get(state, before.get(state))
            if sure is None and held.tip and held.tokens.known and (ids := self._ids.known(*state[:2])) is not None:
                sure = held.tokens.common(ids)  # an answer may be other tokens in a prompt than it was sampled in
            if sure is not None:
                self._counted[state] = sure
            return Claim(*state, sure or 0, held.at)

        return self._simulated.notes.note(claim, self._journal.reads_of(self._server.base_url))
