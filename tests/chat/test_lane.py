"""One lane per server: one generation at a time, in order, and a cancelled waiter never blocks the rest."""

import asyncio

from kvchat.chat.server.lane import Lane


async def test_generations_run_one_at_a_time_in_the_order_they_were_asked_for():
    lane, order = Lane(), []

    async def chat(name):
        async with lane.chat(name):
            order.append(f"{name} begins")
            assert lane.holder == name
            await asyncio.sleep(0)
            order.append(f"{name} ends")

    await asyncio.gather(*(chat(name) for name in "abc"))
    assert order == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]
    assert lane.holder == ""


async def test_a_cancelled_waiter_gives_its_place_up_at_any_moment():
    for ticks in range(6):
        lane, ran = Lane(), []

        async def chat(name, lane=lane, ran=ran):
            async with lane.chat(name):
                ran.append(name)
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(chat(name)) for name in "abcd"]
        for _ in range(ticks):
            await asyncio.sleep(0)
        tasks[1].cancel()
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [name for name in ran if name != "b"] == ["a", "c", "d"]
        async with asyncio.timeout(1), lane.chat("e"):
            pass


async def test_nobody_slips_in_between_two_holders():
    lane = Lane()
    together = 0
    most = 0

    async def chat(name):
        nonlocal together, most
        async with lane.chat(name):
            together += 1
            most = max(most, together)
            await asyncio.sleep(0)
            together -= 1

    tasks = []
    for name in "abcdef":
        tasks.append(asyncio.create_task(chat(name)))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert most == 1


class Request:
    """A request that runs until it is let go or cancelled, and takes a moment to close."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.go = asyncio.Event()
        self.began = asyncio.Event()

    async def run(self) -> None:
        self.events.append("begins")
        self.began.set()
        try:
            await self.go.wait()
            self.events.append("ends")
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            self.events.append("closed")


async def test_a_chat_ends_background_work_and_begins_when_that_has_closed():
    lane, request = Lane(), Request()
    working = asyncio.create_task(lane.in_background(request.run()))
    await request.began.wait()
    async with lane.chat("a"):
        assert request.events == ["begins", "closed"]
        assert not lane.works_in_background
        assert await lane.in_background(Request().run()) is False
    assert await working is False


async def test_reading_ahead_ends_background_work_and_background_work_ends_nothing():
    lane, request, ahead = Lane(), Request(), Request()
    working = asyncio.create_task(lane.in_background(request.run()))
    await request.began.wait()
    reading = asyncio.create_task(lane.in_spare_time(ahead.run()))
    await ahead.began.wait()
    assert request.events == ["begins", "closed"] and await working is False
    assert await lane.in_background(Request().run()) is False
    assert ahead.events == ["begins"]
    ahead.go.set()
    assert await reading is True


async def test_one_background_request_at_a_time():
    lane, first, second = Lane(), Request(), Request()
    working = asyncio.create_task(lane.in_background(first.run()))
    await first.began.wait()
    assert await lane.in_background(second.run()) is False and not second.events
    first.go.set()
    assert await working is True
    second.go.set()
    assert await lane.in_background(second.run()) is True


async def test_who_waits_for_the_lane_is_told_when_nothing_runs_any_more():
    lane, request = Lane(), Request()
    async with lane.chat("a"):
        waiting = asyncio.create_task(lane.freed())
        await asyncio.sleep(0)
        queued = asyncio.create_task(lane.in_spare_time(request.run()))
        assert await queued is False
        assert not waiting.done()
    await asyncio.wait_for(waiting, 120)
    working = asyncio.create_task(lane.in_background(request.run()))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(lane.freed())
    await request.began.wait()
    assert not waiting.done()
    request.go.set()
    await asyncio.wait_for(waiting, 120)
    await working


async def test_a_message_that_was_announced_and_does_not_come_frees_the_lane():
    lane = Lane()
    lane.expect("a")
    waiting = asyncio.create_task(lane.freed())
    await asyncio.sleep(0)
    assert not lane.is_free and not waiting.done()
    lane.expect_no_more("a")
    await asyncio.wait_for(waiting, 120)
    assert lane.is_free


async def test_background_work_that_fails_frees_the_lane():
    lane = Lane()

    async def fail() -> None:
        raise ValueError("it failed")

    try:
        await lane.in_background(fail())
    except ValueError:
        pass
    else:
        raise AssertionError("the failure was swallowed")
    assert lane.is_free and not lane.works_in_background
