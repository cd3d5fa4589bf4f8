"""The time saved is told by one source: the same on the screen's line, in F2, by `kvchat cache` and `kvchat stats`, and
in an export."""

from __future__ import annotations

import asyncio

import pytest

from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.prompt.message import State
from kvchat.store.stats import cache_stats
from kvchat.text.format import duration
from toyserver import ToyServer, tokens


async def say(service: ChatService, id: str, text: str) -> None:
    await service.turns.send(id, Question(text))
    await service.conversations.wait(id)


async def talked(service: ChatService, server: ToyServer) -> str:
    id = (await service.new_conversations.create()).id
    size = 1_000
    for number in range(4):
        server.on_chat(tokens("Twenty", "-six", prompt=size, cached=size - 400 if number else 0, prompt_ms=400.0))
        await say(service, id, f"Question {number}")
        size += 400
    return id


async def test_it_is_equal_everywhere_and_after_a_restart_without_the_server(make, server) -> None:  # type: ignore[no-untyped-def]
    service = make(server.url)
    id = await talked(service, server)
    conversation = service.conversations.loaded[id]
    speed = service.speeds.on(conversation.path())
    assert speed is not None
    saved = conversation.totals(speed).seconds_saved
    report = await service.cache_reports.report(id)
    assert saved and report.here.totals.seconds_saved == saved
    week = cache_stats(service.store, service.clock().timestamp())
    assert week.totals.seconds_saved == pytest.approx(saved) == report.week.totals.seconds_saved
    assert report.days == week.days and week.days[-1].totals.turns == 4
    exported = "".join(service.exports.text([id], "md"))
    assert f"{duration(saved)} saved" in exported
    await service.aclose()
    again = make("http://127.0.0.1:9")
    assert (await again.cache_reports.report(id)).here.totals.seconds_saved == saved
    assert "".join(again.exports.text([id], "md")) == exported


async def test_a_stopped_turn_saves_nothing(service: ChatService, server: ToyServer) -> None:
    id = await talked(service, server)
    conversation = service.conversations.loaded[id]
    before = conversation.totals(service.speeds.on(conversation.path())).seconds_saved
    server.on_chat(tokens("Twenty", "never", prompt=3_000, cached=2_900, hang_after=1))
    await service.turns.send(id, Question("Stop"))
    while not (conversation.live and conversation.live.text):  # noqa: ASYNC110 - an event for each text would say less
        await asyncio.sleep(0.01)
    await service.conversations.stop(id)
    assert conversation.path()[-1].state is State.CANCELLED
    after = conversation.totals(service.speeds.on(conversation.path())).seconds_saved
    assert after == pytest.approx(before)
