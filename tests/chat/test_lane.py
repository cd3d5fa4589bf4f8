"""One lane per server: one generation at a time, in order, and a cancelled waiter never blocks the rest."""

import asyncio

from kvchat.chat.lane import Lane


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
