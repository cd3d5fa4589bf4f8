"""Silence: a slow server is never given up, a dead one is."""

from __future__ import annotations

import asyncio

import pytest
from backend_kit import FakeTime, Heard, a_turn, llamacpp_at

from kvchat.backends.dialect import Trouble
from kvchat.prompt.message import State
from kvchat.text.notes import note_sentence
from toyserver import SSE_HEAD, ToyServer, Visit, chunked, drop, event, reply, tokens

HALF_HOUR = 1800.0
WORD = event({"choices": [{"index": 0, "delta": {"content": "word"}, "finish_reason": None}]})
FINISH = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})


async def silent_until(release: asyncio.Event, visit: Visit, before: bytes) -> None:
    """Send `before`, wait for `release`, then answer in full."""
    await visit.send(before)
    await release.wait()
    await visit.send((b"" if before else SSE_HEAD) + chunked(WORD) + chunked(FINISH) + b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("phase", "before", "text"),
    [
        ("queued", b"", "word"),
        ("prefill", SSE_HEAD, "word"),
        ("silent", SSE_HEAD + chunked(WORD), "wordword"),
    ],
    ids=["queued", "prefill", "silent"],
)
async def test_half_an_hour_of_silence_ends_nothing(phase: str, before: bytes, text: str, heard: Heard) -> None:
    time, release = FakeTime(), asyncio.Event()
    time.at(HALF_HOUR, release.set)
    async with ToyServer() as server:
        server.on_chat(lambda visit: silent_until(release, visit, before))
        ended = await llamacpp_at(server, time.clock).chat(a_turn(), heard)
        checks = sum(visit.path == "/health" for visit in server.visits)
        assert server.posts == 1
    assert (ended.state, heard.text) == (State.DONE, text)
    told = [event for event in heard.waiting if event.phase == phase]
    assert len(told) > 100
    assert [event.seconds for event in told] == sorted({event.seconds for event in told})
    assert all(event.server_alive for event in told[3:])
    assert checks > 100


async def test_pings_show_life_without_a_health_check(heard: Heard) -> None:
    time, release = FakeTime(), asyncio.Event()
    time.at(300, release.set)

    async def pinging(visit: Visit) -> None:
        await visit.send(SSE_HEAD)
        while not release.is_set():
            await visit.send(chunked(b":\n\n"))
            await asyncio.sleep(0.0005)
        await visit.send(chunked(WORD) + chunked(FINISH) + b"0\r\n\r\n")

    async with ToyServer() as server:
        server.on_chat(pinging)
        ended = await llamacpp_at(server, time.clock).chat(a_turn(), heard)
    assert ended.state is State.DONE
    assert any(event.phase == "prefill" and event.server_alive for event in heard.waiting)


@pytest.mark.parametrize(("before", "text"), [(b"", ""), (SSE_HEAD + chunked(WORD), "word")], ids=["queued", "silent"])
async def test_three_failed_health_checks_in_a_row_end_the_request(before: bytes, text: str, heard: Heard) -> None:
    never = asyncio.Event()
    async with ToyServer() as server:
        server.on_chat(lambda visit: silent_until(never, visit, before))
        server.on("/health", drop())
        ended = await llamacpp_at(server, FakeTime(lambda: heard.text == text).clock).chat(a_turn(), heard)
        assert sum(visit.path == "/health" for visit in server.visits) == 3
        await server.until(lambda: server.posts == 1)
        never.set()
        await server.until_closed()
    assert ended.state is State.INTERRUPTED and heard.text == text
    assert ended.error and ended.error.trouble is Trouble.DEAD and server.url in note_sentence(ended.note)
    assert heard.waiting and heard.waiting[-1].server_alive is False


async def test_two_failed_health_checks_and_a_good_one_end_nothing(heard: Heard) -> None:
    time, release, answers = FakeTime(), asyncio.Event(), iter([drop(), drop(), reply(200, {})] * 20)
    time.at(400, release.set)
    async with ToyServer() as server:
        server.on_chat(lambda visit: silent_until(release, visit, b""))
        server.on("/health", lambda visit: next(answers)(visit))
        ended = await llamacpp_at(server, time.clock).chat(a_turn(), heard)
    assert ended.state is State.DONE


async def test_a_quick_answer_is_not_watched_aloud(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("a", "b"))
        await llamacpp_at(server).chat(a_turn(), heard)
        assert [visit.path for visit in server.visits] == ["/v1/chat/completions"]
    assert not heard.waiting
