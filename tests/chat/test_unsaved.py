"""What the disk refuses waits, in order."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from kvchat.chat.keeper import Keeper
from kvchat.store import StoreError, StoreUnavailable


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 4))
def test_writes_land_once_each_and_in_order_whoever_tries_them_again(refused: list[bool], tries: int) -> None:
    """A write fails as often as `refused` says, and is tried again from several places at once."""
    landed: list[int] = []
    troubles = iter(refused)

    def write(number: int) -> None:
        if next(troubles, False):
            raise StoreUnavailable("The disk is full.")
        if number not in landed:
            landed.append(number)

    async def play() -> None:
        keeper = Keeper(lambda _: None)

        async def again() -> None:
            try:
                await keeper.flush()
            except StoreError:
                pass

        for number in range(6):
            await asyncio.gather(keeper.write(lambda number=number: write(number)), *(again() for _ in range(tries)))
        while keeper.unsaved:
            await asyncio.gather(*(again() for _ in range(tries)))
        await keeper.aclose()

    asyncio.run(play())
    assert landed == list(range(6))


async def test_a_write_does_not_overtake_one_that_fails() -> None:
    landed: list[str] = []
    failed = False

    def first() -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise StoreUnavailable("The disk is full.")
        landed.append("first")

    keeper = Keeper(lambda _: None)
    await asyncio.gather(keeper.write(first), keeper.write(lambda: landed.append("second")))
    await keeper.flush()
    await keeper.aclose()
    assert landed == ["first", "second"]
