"""What is noted of a server: the next kvchat knows what the last one knew, and a damaged note is no note."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest

from corpus import corpus
from kvchat.backends.dialect import HostClass, ServerInfo
from kvchat.cache import Held, ServerState, SlotCount
from kvchat.cache.cache import Cache
from kvchat.cache.causes.evidence import Foreign
from kvchat.cache.journal import Journal
from kvchat.cache.llamacpp.hypotheses import Hypotheses
from kvchat.cache.notes import Note
from kvchat.cache.tokens import Tokens
from kvchat.chat.cache.server_notes import ServerNotes
from kvchat.chat.cache.turn_journal import TurnJournal

SERVER = "http://127.0.0.1:8080"
LIGHT, SHIPS = Tokens(range(100, 400)), Tokens(range(1000, 1300))
BRANCHES = {("light", "a1"): LIGHT, ("ships", "b1"): SHIPS, ("light", "a2"): LIGHT + Tokens(range(500, 540))}


class Run:
    """One run of kvchat with a server, as far as notes are concerned: it is its own ground, and knows the ids of
    branches."""

    def __init__(self, text: str = "", slots: int = 1, *, at: float = 1000.0, incognito: bool = False) -> None:
        self.incognito, self.stored, self.written = incognito, text, 0
        self.asked: list[tuple[str, str]] = []
        self.turns = TurnJournal(lambda: at)
        self.journal = self.turns.log
        self.cache = Cache(slots, server=SERVER, journal=self.journal)
        self.simulator, self.slots = self.cache._guesses, self.cache.slots
        self.notes = ServerNotes(
            ServerInfo("llama.cpp", SERVER, HostClass.LOOPBACK),
            self,
            self,  # type: ignore[arg-type]
            self.cache,
            self.turns,
        )
        self.notes.recall()

    def setting(self, key: str) -> str:
        return self.stored

    async def keep_setting(self, key: str, value: str) -> None:
        self.stored = value
        self.written += 1

    def known(self, conversation: str, tip: str) -> Tokens | None:
        return BRANCHES.get((conversation, tip))

    async def find(self, conversation: str, tip: str) -> Tokens | None:
        self.asked.append((conversation, tip))
        return BRANCHES.get((conversation, tip))

    def turn(self, conversation: str, tip: str, extra: int = 5) -> int:
        """A request whose reply ends with other tokens than it has as history; what was predicted of it."""
        found = self.simulator.begin(BRANCHES[conversation, tip], conversation, 7.0, tip=tip)
        self.journal.used("conversation", conversation, SERVER, found.slot, self.simulator.all_said)
        self.simulator.reported(found.cached)
        self.simulator.end(Tokens.unknown(extra + 1), tip=tip)
        return found.cached

    async def note(self) -> str:
        counts = tuple(len(held.tokens) if held else 0 for held in self.simulator.best.slots)
        self.slots.state, self.slots.tasks, self.slots.tokens = ServerState(process="p"), (3,) * len(counts), counts
        await self.notes.noted()
        return self.stored


def shapes(simulator: Hypotheses) -> list[tuple[str, str, int, int]]:
    return [(held.owner, held.tip, len(held.tokens), held.tokens.known) for held in simulator.best.held]


@pytest.mark.parametrize("slots", [1, 2, 4])
async def test_the_next_run_knows_what_the_last_one_knew(slots: int) -> None:
    first = Run(slots=slots)
    for branch in (("light", "a1"), ("ships", "b1"), ("light", "a1"), ("ships", "b1")):
        first.turn(*branch)
    second = Run(await first.note(), slots)
    assert {known for *_, known in shapes(second.simulator)} == {0}, "ids are not in a note"
    await second.notes.identify()
    assert shapes(second.simulator) == shapes(first.simulator)
    assert second.notes.is_known and sorted(set(second.asked)) == sorted(second.asked)
    assert second.turn("light", "a2") == first.turn("light", "a2")


async def test_a_state_whose_ids_nobody_asked_for_is_noted_as_it_was() -> None:
    first = Run()
    for branch in (("light", "a1"), ("ships", "b1")):
        first.turn(*branch)
    third = Run(await Run(await first.note()).note())
    await third.notes.identify()
    assert shapes(third.simulator) == shapes(first.simulator)


async def test_only_what_is_needed_is_asked_for() -> None:
    first = Run()
    for branch in (("light", "a1"), ("ships", "b1")):
        first.turn(*branch)
    second = Run(await first.note())
    await second.notes.identify("ships")
    assert second.asked == [("ships", "b1")] and not second.notes.is_known
    second.notes.identify_by(LIGHT + Tokens(range(9, 12)), {"a1", "other"})
    assert second.notes.is_known and second.asked == [("ships", "b1")]
    assert shapes(second.simulator) == shapes(first.simulator)


async def test_a_conversation_that_is_gone_leaves_its_states_without_ids() -> None:
    first = Run()
    first.turn("light", "a1")
    note = (await first.note()).replace('"light"', '"deleted"')
    second = Run(note)
    await second.notes.identify()
    assert shapes(second.simulator) == [("deleted", "a1", 305, 0)] and second.notes.is_known


async def test_what_a_request_ran_over_and_what_was_seen_is_taken_over_once() -> None:
    first = Run()
    for branch in (("light", "a1"), ("ships", "b1")):
        first.turn(*branch)
    first.journal.saw(SERVER, "foreign", Foreign(0, 12))
    second = Run(await first.note())
    second.notes.recall()
    uses = second.journal.uses_of(SERVER, second.simulator.proved_shape)
    assert [(use.conversation, [held.owner for held in said.overwritten]) for use, said in uses] == [
        ("light", []),
        ("ships", ["light"]),
    ]
    assert [seen.foreign for seen in second.journal.seen_of(SERVER)] == [Foreign(0, 12)]
    assert second.journal.number == first.journal.number and second.journal.next() > first.journal.number


async def test_a_slot_is_ours_only_as_it_was_left() -> None:
    run = Run(slots=2)
    run.turn("light", "a1")
    note = Note.from_json(await run.note())
    assert note is not None
    slot = next(slot for slot, held in enumerate(note.slots) if held is not None)
    left = note.left_in(slot, SlotCount(305, 3))
    assert left is not None and left.owner == "light"
    for other in (SlotCount(305, 4), SlotCount(304, 3), SlotCount(305, None)):
        assert note.left_in(slot, other) is None
    assert note.left_in(1 - slot, SlotCount(0, 3)) is None and note.left_in(7, SlotCount(305, 3)) is None


async def test_a_parked_state_that_another_kvchat_took_is_gone_here_too() -> None:
    app = Run()
    for branch in (("light", "a1"), ("ships", "b1")):
        app.turn(*branch)
    beside = Run(await app.note())
    await beside.notes.identify()
    beside.turn("light", "a2")
    app.stored = await beside.note()
    left = len(beside.simulator.best.slots[0].tokens)  # type: ignore[union-attr]
    app.simulator.observe([left])
    assert app.notes.explains(0, SlotCount(left, task=3))
    assert [one[:3] for one in shapes(app.simulator)] == [one[:3] for one in shapes(beside.simulator)]
    assert ("light", "a1") not in {one[:2] for one in shapes(app.simulator)}


@pytest.mark.parametrize(("slots", "before"), [(1, []), (1, ["ships"]), (2, ["ships"])])
async def test_what_another_kvchat_has_restored_a_state_over_is_gone_here_too(slots: int, before: list[str]) -> None:
    app = Run(slots=slots)
    for owner in before:
        app.turn(owner, "b1")
    app.turn("light", "a1")
    beside = Run(await app.note(), slots)
    await beside.notes.identify()
    slot = next(slot for slot, held in enumerate(beside.simulator.best.slots) if held and held.owner == "light")
    beside.slots.restored(slot, Held(SHIPS.first(200), "ships", 8.0, tip="b0"))
    app.stored = await beside.note()
    app.simulator.observe([None] * slot + [200])
    assert ("light", "a1", 305) in {one[:3] for one in shapes(app.simulator)}, "another client's prompt parks it"
    assert app.notes.explains(slot, SlotCount(200, task=3))
    assert sorted(one[:3] for one in shapes(app.simulator)) == sorted(one[:3] for one in shapes(beside.simulator))
    assert ("light", "a1") not in {one[:2] for one in shapes(app.simulator)}


@pytest.mark.parametrize("act", ["restores", "restores and asks", "asks"])
async def test_what_another_kvchat_left_parked_is_still_there(act: str) -> None:
    """Also a state of which the one that it restored a state over was the longer end."""
    app = Run(slots=2)
    for branch in (("light", "a1"), ("ships", "b1"), ("light", "a2")):
        app.turn(*branch, extra=0)
    assert ("light", "a1", 300, 300) in shapes(app.simulator), "it was parked when the other slot was used"
    beside = Run(await app.note(), 2, at=2000.0)
    await beside.notes.identify()
    slot = next(slot for slot, held in enumerate(beside.simulator.best.slots) if held and held.tip == "a2")
    if act != "asks":
        beside.slots.restored(slot, Held(SHIPS.first(200), "ships", 8.0, tip="b0"))
    if act != "restores":
        beside.turn("ships", "b1", extra=2)
    app.stored = await beside.note()
    counts = [SlotCount(len(held.tokens) if held else 0, task=3) for held in beside.simulator.best.slots]
    app.slots.tasks = (2, 2)
    assert app.notes.catch_up(counts) and not app.cache.left(counts, explains=app.notes.explains)
    assert sorted(one[:3] for one in shapes(app.simulator)) == sorted(one[:3] for one in shapes(beside.simulator))
    assert app.turn("light", "a2", extra=0) == beside.turn("light", "a2", extra=0) > 0


async def test_what_another_kvchat_noted_is_nothing_where_the_slots_are_not_as_it_left_them() -> None:
    app = Run(slots=2)
    app.turn("light", "a1")
    beside = Run(await app.note(), 2, at=2000.0)
    beside.turn("ships", "b1")
    app.stored = await beside.note()
    before, (one, other) = shapes(app.simulator), app.slots.tokens
    for counts in ([SlotCount(one, 3), SlotCount(other, 3)], [SlotCount(one, 3), SlotCount(77, 4)], []):
        assert not app.notes.catch_up(counts)
    app.slots.request_sent()
    assert not app.notes.catch_up([SlotCount(count, 3) for count in beside.slots.tokens])
    assert shapes(app.simulator) == before


async def test_a_request_on_its_way_is_noted() -> None:
    run = Run()
    run.simulator.begin(LIGHT, "light", 0.0)
    note = Note.from_json(await run.note())
    assert note is not None and note.running == 0
    run.simulator.end(Tokens.unknown(3))
    note = Note.from_json(await run.note())
    assert note is not None and note.running is None


NOTE = json.loads(asyncio.run(Run().note()))


ODD = (None, "x", -1, 1e300, [], {}, [1], [[1]], [{}], {"x": [1]})


@corpus(
    "text",
    [
        "",
        "null",
        "x",
        "[" * 100_000,
        '[{"slot": 0, "conversation": "c", "path": ["a"], "tokens": 9, "sure": 9, "at": 1.0}]',
        *(json.dumps({**NOTE, key: odd}) for key in NOTE for odd in ODD),
    ],
)
async def test_a_damaged_or_old_note_is_none_or_harmless(text: str) -> None:
    if Note.from_json(text) is not None:
        run = Run(text)
        run.turn("light", "a1")
        note = Note.from_json(await run.note())
        assert note is not None and any(claim.sure for claim in note.claims())


def test_numbers_are_the_time_and_never_go_back() -> None:
    clock = [5.0]
    journal = Journal(lambda: clock[0])
    numbers = [journal.next(), journal.next()]
    clock[0] = 4.0
    numbers.append(journal.next())
    clock[0] = 60.0
    assert [*numbers, journal.next()] == [5000, 5001, 5002, 60_000]


async def test_what_others_wrote_is_kept_and_nothing_is_written_twice() -> None:
    one, second = Run(), Run(at=2000.0)
    one.turn("light", "a1")
    second.turn("ships", "b1")
    mine, theirs = await one.note(), await second.note()
    await one.note()
    assert one.written == 1
    one.stored = theirs
    await one.notes.noted()
    assert one.stored == theirs, "nothing of ours is new"
    one.turn("light", "a2")
    now = Note.from_json(await one.note())
    assert one.written == 2 and now is not None and mine != one.stored
    assert {use.conversation for use in now.uses} == {"light", "ships"}


async def test_nothing_is_noted_incognito() -> None:
    silent = Run(incognito=True)
    silent.turn("light", "a1")
    assert await silent.note() == ""


async def test_the_note_of_a_long_day_is_small() -> None:
    run = Run(slots=4)
    branches: Mapping[tuple[str, str], Tokens] = BRANCHES
    for turn in range(300):
        run.turn(*list(branches)[turn % 3])
    assert len(await run.note()) < 64_000
