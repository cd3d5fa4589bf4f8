"""The slots of cancelled requests: how long they are waited for, and what other kvchats are told of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence

from kvchat.backends.dialect import BackendError, HostClass, ServerInfo, Trouble, failure
from kvchat.backends.errors import NoAnswerError
from kvchat.cache import SlotCount
from kvchat.cache.llamacpp.cancelled import FORGOTTEN_S, LATE
from kvchat.chat.cache.cancelled_slots import CancelledSlots
from kvchat.text.faults import Fault

IDLE, URL = SlotCount(0, None, False), "http://127.0.0.1:1"
Answer = Sequence[SlotCount] | BackendError


class Server:
    """Answers looks at its slots with what it is given, the last one again and again."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.looks = 0
        self.now = 1000.0
        self.notes: list[str | None] = []
        self.seen: list[Sequence[SlotCount]] = []

    async def slot_counts(self) -> Sequence[SlotCount]:
        self.looks += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BackendError):
            raise answer
        return answer

    def timestamp(self) -> float:
        return self.now

    def setting(self, key: str) -> str:
        return (self.notes and self.notes[-1]) or ""

    async def keep_setting(self, key: str, value: str | None) -> None:
        self.notes.append(value)

    def in_background(self, work: Coroutine[object, object, None]) -> None:
        with contextlib.suppress(StopIteration):
            work.send(None)

    def slots(self) -> CancelledSlots:
        here = ServerInfo("llama.cpp", URL, HostClass.LOOPBACK)
        return CancelledSlots(self, here, self, self.seen.append)  # type: ignore[arg-type]


def busy(tokens: int, task: int = 7) -> SlotCount:
    return SlotCount(tokens, task, True)


async def waited_out(server: Server, slot: int = 0, most: int = 100) -> CancelledSlots:
    slots = server.slots()
    slots.add(slot, most)
    async with asyncio.timeout(60):
        assert await slots.free()
    return slots


async def test_it_is_waited_for_until_its_batch_is_computed() -> None:
    server = Server([busy(60), IDLE], [busy(60), IDLE], [busy(100), IDLE], [SlotCount(100, 7, False), IDLE])
    await waited_out(server)
    assert server.looks == 4 and server.seen == [[SlotCount(100, 7, False), IDLE]]


async def test_a_request_that_the_server_had_not_begun_with_may_come_to_its_slot_yet() -> None:
    server = Server([IDLE], [busy(60)], [busy(60)], [IDLE])
    slots = server.slots()
    slots.add(0, 100, heard=False)
    assert await slots.free()
    assert server.looks == 4


async def test_a_look_that_is_not_answered_within_its_time_is_made_again() -> None:
    server = Server(NoAnswerError(URL, 10), NoAnswerError(URL, 10), [busy(60)], [IDLE])
    await waited_out(server)
    assert server.looks == 4


async def test_another_task_in_the_slot_is_somebody_elses() -> None:
    server = Server([busy(60, task=7)], [busy(60, task=9)])
    await waited_out(server)
    assert server.looks == 2


async def test_a_slot_that_writes_on_is_not_waited_for() -> None:
    """A proxy did not pass on that the client has gone."""
    server = Server([busy(100)], [busy(100 + LATE)], [busy(100 + LATE + 1)])
    await waited_out(server)
    assert server.looks == 3


async def test_a_server_that_has_ended_or_shows_no_slots_holds_nothing_up() -> None:
    for trouble, status in ((Trouble.UNREACHABLE, None), (Trouble.REFUSED, 501)):
        server = Server(failure(trouble, Fault.TOLD, sentence="no", status=status))
        slots = await waited_out(server)
        assert server.looks == 1
        assert slots.requests.computing()  # it could not be seen that it ended
        assert not slots.requests.computing()


async def test_only_what_belongs_into_such_a_slot_waits() -> None:
    server = Server([busy(60), IDLE], [IDLE, IDLE])
    slots = server.slots()
    slots.add(0, 100)
    assert slots.requests.hold_up(0) and slots.requests.hold_up(None) and not slots.requests.hold_up(1)
    assert await slots.free()
    assert not slots.requests.hold_up(0)


async def test_another_kvchat_waits_by_the_note_and_for_every_request() -> None:
    server = Server([busy(60), IDLE], [busy(60), IDLE], [IDLE, IDLE])
    one, other = server.slots(), server.slots()
    one.add(0, 100)
    other.take_over()
    assert other.requests.hold_up(0) and other.requests.hold_up(1)
    assert await one.free() and await other.free()
    assert server.notes[-1] is None, "the note is taken back"


async def test_an_old_note_and_one_that_is_none_tell_nothing() -> None:
    server = Server([busy(60)], [IDLE])
    one, other = server.slots(), server.slots()
    one.add(0, 100)
    server.now += FORGOTTEN_S
    for note in (server.notes[0], "", "null", "{}", '{"at": 1, "slots": 3}', "[]", '{"at": "x", "slots": []}'):
        server.notes.append(note)
        other.take_over()
    assert not other.requests
    await one.free()
