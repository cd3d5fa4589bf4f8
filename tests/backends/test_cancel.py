"""Cancelling a chat, at any moment and any number of times: the server must see its connection close."""

from __future__ import annotations

import asyncio
import random

import pytest
from backend_kit import FakeTime, Heard, a_turn, hurried, llamacpp_at

from kvchat.backends.http.transport import unskippable
from toyserver import Answer, ToyServer, error, hang, loading, raw, tokens

ANSWERS: dict[str, Answer] = {
    "no header": hang(),
    "header only": raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", then="hang"),
    "in prefill": tokens("a", hang_after=0),
    "in generation": tokens(*["word "] * 500, delay=0.001),
    "after the last token": tokens("a", "b", finish=None, hang_after=2),
    "error without an end": raw(b"HTTP/1.1 500 No\r\nContent-Length: 99\r\n\r\nhalf", then="hang"),
    "loading": loading(),
    "an error": error(500, "no"),
}


def others() -> set[asyncio.Task[object]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


async def cancelled(task: asyncio.Task[object], times: int) -> bool:
    """Cancel `task` `times` times, one turn of the loop apart. Returns whether it was running."""
    running = not task.done()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    try:
        await task
    except asyncio.CancelledError:
        assert running
    return running


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("name", ANSWERS)
async def test_the_server_sees_the_close_and_nothing_is_left_running(name: str, times: int) -> None:
    dice = random.Random(f"{name}{times}")
    async with ToyServer() as server:
        server.on_chat(ANSWERS[name])
        backend = llamacpp_at(server)
        await backend.alive()
        before = others()
        for attempt in range(8):
            task = asyncio.create_task(backend.chat(a_turn(), Heard()))
            await server.until(lambda wanted=attempt + 1: server.posts >= wanted)  # type: ignore[misc]
            await asyncio.sleep(dice.random() * 0.02)
            await cancelled(task, times)
            await server.until_closed()
        assert others() <= before
    assert server.posts == 8


async def test_50_random_moments_of_the_whole_exchange() -> None:
    dice = random.Random(50)
    async with ToyServer() as server:
        server.on_chat(tokens("a", "b", "c", delay=0.001))
        backend = llamacpp_at(server)
        await backend.alive()
        before, stopped = others(), 0
        for moment in range(50):
            task = asyncio.create_task(backend.chat(a_turn(), Heard()))
            for _ in range(moment // 2):  # the first moments by turns of the loop, the rest by the clock
                await asyncio.sleep(0)
            if moment > 20:
                await asyncio.sleep(dice.random() * 0.02)
            stopped += await cancelled(task, moment % 3 + 1)
            await server.until_closed()
        assert others() <= before
        assert stopped > 10, "those by turns of the loop are, however fast the machine is"


async def test_cancels_that_keep_coming_while_the_connection_closes_change_nothing() -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("a", hang_after=0))
        task = asyncio.create_task(llamacpp_at(server).chat(a_turn(), Heard()))
        await server.until(lambda: server.posts == 1)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert task.cancelled()
        await server.until_closed()


async def test_the_connection_is_closed_before_the_cancelled_task_ends() -> None:
    """A next request may go out as soon as the task has ended; the server must not find two of them."""
    async with ToyServer() as server:
        server.on_chat(tokens("a", hang_after=0), tokens("b"))
        backend = llamacpp_at(server)
        for _ in range(10):
            server.on_chat(tokens("a", hang_after=0))
            task = asyncio.create_task(backend.chat(a_turn(), Heard()))
            await server.until(lambda: server.open == 1)
            await cancelled(task, 2)
            await asyncio.sleep(0.01)
            assert server.open == 0


async def test_a_cancel_during_a_health_check_closes_that_too() -> None:
    async with ToyServer() as server:
        server.on("/health", hang())
        server.on_chat(hang())
        before = others()
        task = asyncio.create_task(llamacpp_at(server, FakeTime().clock).chat(a_turn(), Heard()))
        await server.until(lambda: len(server.visits) >= 2)
        await cancelled(task, 3)
        await server.until_closed()
        assert others() <= before


async def test_a_cancel_while_the_model_loads_ends_the_wait() -> None:
    async with ToyServer() as server:
        server.on_chat(loading())
        server.on("/health", loading())
        task = asyncio.create_task(llamacpp_at(server, hurried()).chat(a_turn(), Heard()))
        await server.until(lambda: len(server.visits) > 5)
        assert await cancelled(task, 1)
        await server.until_closed()
    assert server.posts == 1


async def test_a_finished_chat_leaves_no_connection_and_no_task() -> None:
    async with ToyServer() as server:
        before = others()
        for _ in range(5):
            await llamacpp_at(server).chat(a_turn(), Heard())
        assert others() <= before
        await server.until_closed()


async def test_clean_up_outlasts_every_cancel_and_then_lets_it_go_on() -> None:
    steps: list[str] = []

    async def clean_up() -> None:
        for step in "abc":
            await asyncio.sleep(0.001)
            steps.append(step)

    task = asyncio.create_task(unskippable(clean_up()))
    await asyncio.sleep(0)
    assert await cancelled(task, 3)
    assert steps == ["a", "b", "c"] and task.cancelled()


async def test_clean_up_that_fails_says_so() -> None:
    async def failing() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await unskippable(failing())
